"""The models that `load` knows by name, and any checkpoint by its folder or hub id."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
from pydantic import Field

from unmask.api.model import Model
from unmask.api.request import TextInfo, get_text_info
from unmask.base.errors import CheckpointError, ConfigError, UnknownName, UnmaskError, require
from unmask.base.options import Options
from unmask.models import Codec, ExactDenoiser, JointDistribution, LetterCodec
from unmask.models.checkpoints import (
    describe_checkpoint,
    find_family,
    find_local_copy,
    fingerprint,
    is_cached,
    load_checkpoint,
    resolve_path,
)
from unmask.models.execution import DTYPES, resolve_device, resolve_dtype, resolve_engine

if TYPE_CHECKING:
    from unmask.lab.cluster import Ray
    from unmask.lab.cluster.remote_model import ModelName, RemoteModel

AnyOptions = TypeVar("AnyOptions", bound=Options)
OnProgress = Callable[[str, int], None]
"""Function that is called with the name and the bytes of each loaded parameter."""

SHIPPED = Path(__file__).parents[1] / "models" / "shipped"
"""Folder with the models inside the package, each in the published format of its family."""

PUBLISHED = {
    "llada": "GSAI-ML/LLaDA-8B-Instruct",
    "llada-1.5": "GSAI-ML/LLaDA-1.5",
    "dream": "Dream-org/Dream-v0-Instruct-7B",
}
"""Hub ids of published models, by their short names."""

LATER_OPTIONS = ("invariant", "query")
"""Options added after results had been stored: omitted at their default, so that configurations stay equal."""

UNCLOSED_PAGE = (
    "A page was cut off after <main><section><p>hello. Give only the missing closing tags inside <answer>...</answer>."
)


class ExactOptions(Options):
    """Options of the model `exact`, whose predictions are computed from a table of joint probabilities."""

    n: int = Field(8, description="Positions of the canvas, prompt included.")
    vocab: int = Field(4, description="Number of tokens: the first letters of the alphabet.")
    dependence: float = Field(1.5, description="How strongly positions depend on each other; 0 for not at all.")
    structure: str = Field("dense", description="Which positions depend on each other: dense, chain, pairs or far.")
    seed: int = Field(0, description="Which distribution of that kind.")
    eos: str | None = Field(None, description='Letters that end a text and a turn, e.g. "d" or "dc"; None for neither.')


class SourceOptions(Options):
    """Options that say where the files of a checkpoint are."""

    path: str | None = Field(None, description="A folder or a hub id; None for the published one, where there is one.")
    revision: str | None = Field(None, description="A branch, tag or commit of the hub repository.")
    offline: bool = Field(False, description="Use the local cache only.")


class DeviceOptions(Options):
    """Options that say where a network runs, and in which dtype."""

    device: str = Field("auto", description="`cpu`, `cuda`, `cuda:1`, ...; `auto` is a GPU if there is one.")
    dtype: str = Field("auto", description="`bf16`, `fp16` or `fp32`; `auto` is bf16 on a GPU and fp32 on a CPU.")


class NetworkOptions(DeviceOptions):
    """Options of the models inside the package."""

    engine: str = Field(
        "auto",
        description="How the layers run: `eager`, or on a GPU `fused` and `graph`; `auto` is fused on a GPU that has "
        "Triton.",
    )
    invariant: bool = Field(
        False, description="Fill small batches up with dummies, so that a row has the same bits alone and in a batch."
    )
    chat: bool | None = Field(
        None, description="Whether prompts go through the chat template; None for yes if there is one."
    )
    readout: tuple[int, ...] | None = Field(
        None, description="Layers whose mean attention is read; None for four of the upper half."
    )
    query: str = Field(
        "own",
        description="Whose attention speaks for a slot: its `own`, or that of the slot `predicting` it, in Dream the "
        "one before.",
    )


class CheckpointOptions(NetworkOptions, SourceOptions):
    """Options of LLaDA and Dream checkpoints."""


class MaskedLMOptions(DeviceOptions, SourceOptions):
    """Options of masked language models of transformers (`masked-lm`)."""

    attention: bool = Field(False, description="Make attention readable, by slower kernels.")
    readout: tuple[int, ...] | None = Field(
        None, description="Layers whose mean attention is read; None for the upper half."
    )


@dataclass(frozen=True)
class ModelEntry:
    """A model that `load` knows by name."""

    about: str
    options: type[Options]
    build: Callable[[Any, OnProgress | None], Model]
    """Function that builds the model from options with device, dtype and engine resolved."""
    status: Callable[[], str]
    """Function that returns a text: whether the model can be loaded on this machine now."""


@overload
def load(
    name_or_path: str | Path, *, on_progress: OnProgress | None = None, cluster: None = None, **options: Any
) -> Model: ...
@overload
def load(
    name_or_path: str | Path, *, on_progress: OnProgress | None = None, cluster: "Ray", **options: Any
) -> "RemoteModel": ...
def load(
    name_or_path: str | Path, *, on_progress: OnProgress | None = None, cluster: "Ray | None" = None, **options: Any
) -> "Model | RemoteModel":
    """Load a model by name (`exact`, `llada`, `dream`, ...), hub id or folder; `unmask models` lists names and options.

    `load("exact", n=6, vocab=3)`, `load("GSAI-ML/LLaDA-8B-Instruct", dtype="bf16")`, `load("path/to/folder")`. A name
    comes before a folder of that name: write "./llada" for the folder. `cluster=Ray(...)` has it loaded by the workers
    of a cluster, for `generate` and `infill` of many prompts.
    """
    ok = isinstance(name_or_path, str | Path)
    require(ok, "model", name_or_path, "a name, a hub id or a folder", "pass a string")
    name = str(name_or_path)
    if cluster is not None:
        # The one import from the laboratory: everything else here works without it.
        from unmask.lab.cluster.remote_model import ModelName, RemoteModel

        return RemoteModel(cluster, load_on_worker, ModelName(name, options))
    # Unknown options, and devices that are not here, are refused before anything is downloaded.
    found = [_resolve_device(kind) for kind in check_model_name(name, options)]
    if name in MODELS:
        return MODELS[name].build(found[0], on_progress)
    family = find_family(resolve_path(name, revision=options.get("revision"), offline=options.get("offline", False)))
    options = {**options, "path": name}
    if family is None:
        return _build_masked_lm(_resolve_device(MaskedLMOptions.from_table(options, name)), on_progress)
    resolved = _resolve_device(CheckpointOptions.from_table(options, name))
    return _build_published(family.name, family.name, resolved, on_progress)


def load_on_worker(name: "ModelName") -> Model:
    """Load a model inside a worker of a cluster."""
    return load(name.model, **name.options)


def check_model_name(name_or_path: str | Path, options: Mapping[str, Any]) -> tuple[Options, ...]:
    """Refuse an unknown model name, and options that the model does not take; return the checked options.

    A folder or hub id is not opened, so it may have options of either kind of checkpoint. No device is used.
    """
    name = str(name_or_path)
    # Which kind a folder holds is known when it is opened; until then options of both are allowed.
    kinds: tuple[type[Options], ...] = (CheckpointOptions, MaskedLMOptions)
    if name in MODELS:
        kinds = (MODELS[name].options,)
    # A folder, something written like a path, or a hub id; anything else must be a name of ours.
    elif not ("/" in name or name.startswith((".", "~")) or os.path.isdir(name)):
        raise UnknownName("model", name, MODELS)
    else:
        require("path" not in options, "path", options.get("path"), "nothing beside a folder or id", "leave it out")
    known = {key for kind in kinds for key in kind.model_fields}
    for key in options:
        if key not in known:
            raise UnknownName(f"option of {name}", key, known)
    return tuple(
        kind.from_table({key: value for key, value in options.items() if key in kind.model_fields}, name)
        for kind in kinds
    )


def _resolve_device(options: AnyOptions) -> AnyOptions:
    """Replace `auto` in device, dtype and engine by concrete values; refuse those that this machine lacks."""
    if not isinstance(options, DeviceOptions):
        return options
    device = resolve_device(options.device)
    resolved = {"device": str(device), "dtype": resolve_dtype(options.dtype, device)}
    if isinstance(options, NetworkOptions):
        resolved["engine"] = resolve_engine(options.engine, device)
    return options.model_copy(update=resolved)


def find_text_info(name_or_path: str | Path, options: Mapping[str, Any]) -> TextInfo | None:
    """Return tokenizer and sizes of a model without reading weights; None if its files are not here."""
    name = str(name_or_path)
    if name == "exact":
        return get_text_info(load(name, **options))
    shipped = name in MODELS and MODELS[name].options is NetworkOptions
    place = options.get("path") or PUBLISHED.get(name, name)
    folder = SHIPPED / name if shipped else find_local_copy(place, options.get("revision"))
    if folder is None:
        return None
    try:
        info = describe_checkpoint(folder, chat=options.get("chat"))
    except CheckpointError:
        return None
    return TextInfo(info.codec, info.spec.vocab, info.max_length)


def find_saved_codec(config: Mapping[str, Any] | None) -> Codec | None:
    """Return the codec of the model that a run's configuration names; None if it is not on this machine.

    Without the chat template, because only stored tokens are spelled. The configuration may come from any file.
    """
    described = (config or {}).get("model")
    if not isinstance(described, Mapping) or not isinstance(described.get("name"), str):
        return None
    name, options = described["name"], {key: value for key, value in described.items() if key != "name"}
    try:
        side = find_text_info(name, options if name == "exact" else {**options, "chat": False})
    except (UnmaskError, OSError, TypeError, ValueError):
        return None
    return None if side is None else side.codec


# The models. A new one is a class of options, a function that builds it, and a line in `MODELS`.


def _build_exact(options: ExactOptions, on_progress: OnProgress | None) -> Model:
    """Build the model `exact`: draw a joint distribution from the options."""
    codec = LetterCodec(options.vocab)
    require(options.seed >= 0, "seed", options.seed, "0 or more", "choose another distribution")
    require(1 <= options.n <= 1000, "n", options.n, "1 or more, as far as the table fits in memory", "change it")
    joint = JointDistribution.random(
        options.n, options.vocab, dependence=options.dependence, seed=options.seed, structure=options.structure
    )
    letters = options.eos or ""
    require(len(set(letters)) == len(letters), "eos", options.eos, "different letters", "name each token once")
    return Model(
        name="exact",
        denoiser=ExactDenoiser(joint, eos_ids=tuple(codec.encode(letters))),
        codec=codec,
        options=dict(options),
        max_length=joint.n,
        default_prompt=codec.decode([int(joint.marginals({})[0].argmax())]),
    )


def _build_published(name: str, family: str, options: CheckpointOptions, on_progress: OnProgress | None) -> Model:
    """Load a published checkpoint, or another checkpoint of its family from `path`."""
    place = options.path or PUBLISHED[name]
    folder = resolve_path(place, revision=options.revision, offline=options.offline)
    found = find_family(folder)
    kind = "masked-lm" if found is None else found.name
    require(kind == family, f"path of {name}", place, f"a {family} checkpoint", f"load {kind} with this path")
    return _open_checkpoint(
        name if place == PUBLISHED.get(name) else place, folder, options.model_copy(update={"path": place}), on_progress
    )


def _open_checkpoint(
    name: str,
    folder: Path,
    options: NetworkOptions,
    on_progress: OnProgress | None,
    *,
    default_prompt: str = "Hello! What can you do?",
    max_new_tokens: int = 128,
) -> Model:
    """Load a checkpoint in LLaDA's or Dream's format, and record the options that it was loaded with."""
    checkpoint = load_checkpoint(
        folder,
        device=torch.device(options.device),
        dtype=DTYPES[options.dtype],
        engine=options.engine,
        invariant=options.invariant,
        chat=options.chat,
        readout=options.readout,
        query=options.query,
        on_tensor=on_progress,
    )
    info = checkpoint.info
    found = {"chat": info.codec.template is not None, "readout": checkpoint.network.readout}
    # Recorded and hashed: keys and their order never change.
    fields = type(options).model_fields
    recorded = {
        key: value
        for key, value in options.model_copy(update=found)
        if key not in LATER_OPTIONS or value != fields[key].default
    }
    recorded |= {"family": info.family.model_type, "fingerprint": fingerprint(folder)}
    if info.unknown_keys:
        recorded["ignored"] = tuple(info.unknown_keys)  # stored name
    return Model(
        name=name,
        denoiser=checkpoint.network,
        codec=info.codec,
        options=recorded,
        max_length=info.max_length,
        default_prompt=default_prompt,
        max_new_tokens=max_new_tokens,
        reference=info.family.policy,
    )


def _build_masked_lm(options: MaskedLMOptions, on_progress: OnProgress | None) -> Model:
    """Load a masked language model of transformers."""
    # transformers is an extra.
    from unmask.models.masked_lm import load_masked_lm

    if options.path is None:
        raise ConfigError(
            "path of masked-lm is None; allowed: a folder or a hub id; e.g. load('masked-lm', "
            "path='google-bert/bert-base-uncased')"
        )
    folder = resolve_path(options.path, revision=options.revision, offline=options.offline)
    denoiser, codec = load_masked_lm(
        folder,
        device=torch.device(options.device),
        dtype=DTYPES[options.dtype],
        attention=options.attention,
        readout_layers=options.readout,
    )
    return Model(
        name=options.path,
        denoiser=denoiser,
        codec=codec,
        options=dict(options) | {"readout": denoiser.readout_layers, "fingerprint": fingerprint(folder)},
        max_length=denoiser.max_positions,
        default_prompt="Hello",
        max_new_tokens=8,
    )


def _make_shipped_entry(name: str, about: str) -> ModelEntry:
    build = partial(_open_checkpoint, name, SHIPPED / name, default_prompt=UNCLOSED_PAGE, max_new_tokens=48)
    return ModelEntry(about, NetworkOptions, build, lambda: "ready: in the package")


def _make_published_entry(name: str, family: str, about: str) -> ModelEntry:
    words = {True: "ready: in the local cache", False: "not downloaded: loading it fetches it"}
    build = partial(_build_published, name, family)
    about = f"{about} ({PUBLISHED[name]})"
    return ModelEntry(about, CheckpointOptions, build, lambda: words[is_cached(PUBLISHED[name])])


MODELS: dict[str, ModelEntry] = {
    "mini": _make_shipped_entry(
        "mini", "LLaDA's architecture and format, 6.6 million parameters; trained on the suite's tasks."
    ),
    "mini-dream": _make_shipped_entry(
        "mini-dream", "Dream's architecture and format, 6.3 million parameters; the same training."
    ),
    "exact": ModelEntry(
        "A random joint distribution small enough to enumerate: every prediction is the true conditional.",
        ExactOptions,
        _build_exact,
        lambda: "ready",
    ),
    "llada": _make_published_entry("llada", "llada", "LLaDA, 8 billion parameters, 16 GB."),
    "llada-1.5": _make_published_entry("llada-1.5", "llada", "LLaDA after preference tuning, 16 GB."),
    "dream": _make_published_entry("dream", "dream", "Dream, 7 billion parameters, 15 GB."),
    "masked-lm": ModelEntry(
        "Any masked language model of Hugging Face transformers: BERT, RoBERTa, ALBERT, ModernBERT, ESM, ...",
        MaskedLMOptions,
        _build_masked_lm,
        lambda: "ready: give a path" if find_spec("transformers") else "needs pip install 'unmask[hf]'",
    ),
}
"""All models that `load` knows, by name."""
