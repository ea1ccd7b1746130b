"""The models that `load` knows, by name, and any checkpoint by its folder or hub id."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, overload

import torch

from unmask.api.model import Model
from unmask.api.request import TextSide, text_side
from unmask.base.errors import CheckpointError, ConfigError, UnknownName, require
from unmask.base.options import check_types
from unmask.core import choose_statistics
from unmask.lab.cluster.remote_model import ModelName, RemoteModel
from unmask.lab.cluster.where import Ray
from unmask.models import ExactDenoiser, JointDistribution, LetterCodec
from unmask.models.checkpoints import (
    Checkpoint,
    describe_checkpoint,
    find_family,
    find_local,
    fingerprint,
    is_cached,
    load_checkpoint,
    resolve_path,
)
from unmask.models.execution import choose_execution, dtype_name, resolve_device, resolve_dtype, resolve_engine
from unmask.models.masked_lm import load_masked_lm

OnProgress = Callable[[str, int], None]
"""Called with a parameter's name and its bytes after each one is read."""


@dataclass(frozen=True)
class ExactOptions:
    """Options of `exact`."""

    n: int = 8
    """Positions of the canvas, prompt included."""
    vocab: int = 4
    """Tokens: the first letters of the alphabet."""
    dependence: float = 1.5
    """How strongly positions depend on each other; 0 for not at all."""
    structure: str = "dense"
    """Which positions depend on each other: dense, chain, pairs or far."""
    seed: int = 0
    """Which distribution of that kind."""
    eos: str | None = None
    """Letters to be read as end of text and end of turn, e.g. "d" or "dc"; None for neither."""


@dataclass(frozen=True)
class PlaceOptions:
    """Where the files of a checkpoint are."""

    path: str | None = None
    """A folder or a hub id; None for the published one, where there is one."""
    revision: str | None = None
    """A branch, tag or commit of the hub repository."""
    offline: bool = False
    """Use the local cache only."""


@dataclass(frozen=True)
class DeviceOptions:
    """Where a network runs, and in which type."""

    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`, ...; `auto` is a GPU if there is one."""
    dtype: str = "auto"
    """`bf16`, `fp16` or `fp32`; `auto` is bf16 on a GPU and fp32 on a CPU."""


@dataclass(frozen=True)
class EmbeddedOptions(DeviceOptions):
    """Options of the models inside the package."""

    engine: str = "auto"
    """`eager`, or on a GPU `fused` and `graph`; `auto` is fused on a GPU that has Triton."""
    invariant: bool = False
    """Fill small batches up with dummies, so that a row has the same bits alone and in a batch."""
    chat: bool | None = None
    """Whether prompts go through the chat template; None for yes if there is one."""
    readout: Sequence[int] | None = None
    """Layers whose mean attention is read out; None for four of the upper half."""
    query: str = "own"
    """Whose attention speaks for a slot: its `own`, or that of the slot `predicting` it, in Dream the one before."""


@dataclass(frozen=True)
class CheckpointOptions(EmbeddedOptions, PlaceOptions):
    """Options of LLaDA and Dream checkpoints: those of a place, then those of a network."""


@dataclass(frozen=True)
class MaskedLMOptions(DeviceOptions, PlaceOptions):
    """Options of `masked-lm`."""

    attention: bool = False
    """Make attention readable, by slower kernels."""
    readout: Sequence[int] | None = None
    """Layers whose mean attention is read out; None for the upper half."""


@dataclass(frozen=True)
class ModelEntry:
    """What `load` knows about a name."""

    about: str
    options: type
    """A frozen dataclass: the options with their defaults."""
    build: Callable[[Any, OnProgress | None], Model]
    status: Callable[[], str]
    """Whether it can be loaded here and now, in words."""


def running_here(entry: ModelEntry) -> dict[str, Any]:
    """What runs its layers and its pass over the vocabulary unless told otherwise, and why.

    No engine for a model without a choice.
    """
    options = entry.options()
    device = resolve_device(options.device) if isinstance(options, DeviceOptions) else torch.device("cpu")
    engine = (
        {"engine": asdict(choose_execution(options.engine, device))} if isinstance(options, EmbeddedOptions) else {}
    )
    return engine | {"statistics": asdict(choose_statistics(device))}


@overload
def load(
    name_or_path: str | Path, *, on_progress: OnProgress | None = None, where: None = None, **options: Any
) -> Model: ...
@overload
def load(
    name_or_path: str | Path, *, on_progress: OnProgress | None = None, cluster: Ray, **options: Any
) -> RemoteModel: ...
def load(
    name_or_path: str | Path, *, on_progress: OnProgress | None = None, cluster: Ray | None = None, **options: Any
) -> Model | RemoteModel:
    """A model by name (`exact`, `llada`, `dream`, ...), hub id or checkpoint folder; `unmask models` lists them.

    `load("exact", n=6, vocab=3)`, `load("GSAI-ML/LLaDA-8B-Instruct", dtype="bf16")`, `load("path/to/folder")`. A name
    comes before a folder of that name: write "./llada" for the folder. `where=Ray(...)` has it loaded by the workers of
    a cluster, for `generate` and `infill` of many prompts.
    """
    ok = isinstance(name_or_path, str | Path)
    require(ok, "model", name_or_path, "a name, a hub id or a folder", "pass a string")
    place = str(name_or_path)
    if cluster is not None:
        return RemoteModel(cluster, load_named, ModelName(place, options))
    if place in MODELS:
        return _build(place, options, on_progress)
    if not _is_place(place):
        raise UnknownName("model", place, MODELS)
    require("path" not in options, "path", options.get("path"), "nothing beside a folder or id", "leave it out")
    # What no kind of checkpoint takes is refused before anything is downloaded.
    _check_options(place, options, CheckpointOptions, MaskedLMOptions)
    folder = _locate(place, options.get("revision"), options.get("offline", False))
    return _build(_kind(folder), options | {"path": place}, on_progress)


def check_model(name_or_path: str | Path, options: Mapping[str, Any]) -> None:
    """Refuse a name that `load` does not know, and options that no such model takes: names and types, no device."""
    place = str(name_or_path)
    if place not in MODELS and not _is_place(place):
        raise UnknownName("model", place, MODELS)
    _check_names(
        place, options, *((MODELS[place].options,) if place in MODELS else (CheckpointOptions, MaskedLMOptions))
    )


def load_named(name: ModelName) -> Model:
    """On a worker."""
    return load(name.model, **name.options)


def text_side_of(name_or_path: str | Path, options: Mapping[str, Any]) -> TextSide | None:
    """Tokenizer and sizes of a model, where they are on this machine; None where they are not. Reads no weights."""
    place = str(name_or_path)
    if place == "exact":
        return text_side(load(place, **options))
    folder = _at_hand(place, options)
    if folder is None:
        return None
    try:
        described = describe_checkpoint(folder, chat=options.get("chat"))
    except CheckpointError:
        return None
    return TextSide(described.codec, described.spec.vocab, described.length)


def _at_hand(place: str, options: Mapping[str, Any]) -> Path | None:
    """The folder of a checkpoint as far as it is here."""
    if isinstance(MODELS.get(place), ModelEntry) and MODELS[place].options is EmbeddedOptions:
        return EMBEDDED / place
    wanted = options.get("path") or PUBLISHED.get(place, place)
    return find_local(wanted, options.get("revision"))


def _build(name: str, options: Mapping[str, Any], on_progress: OnProgress | None) -> Model:
    # A family may have folders and no published name.
    entry = MODELS.get(name) or _folders_of(name)
    _check_options(name, options, entry.options)
    return entry.build(entry.options(**options), on_progress)


def _check_options(name: str, options: Mapping[str, Any], *kinds: type) -> None:
    """Names and types, and where and in which type a network would run."""
    owners = _check_names(name, options, *kinds)
    if "device" in owners:
        device = resolve_device(options.get("device", "auto"))
        resolve_dtype(options.get("dtype", "auto"), device)
        resolve_engine(options.get("engine", "auto"), device)


def _check_names(name: str, options: Mapping[str, Any], *kinds: type) -> dict[str, type]:
    """Names and types; which class has which option."""
    owners = {f.name: kind for kind in reversed(kinds) for f in fields(kind)}
    for key, value in options.items():
        if key not in owners:
            raise UnknownName(f"option of {name}", key, owners)
        check_types(owners[key], {key: value}, name)
    return owners


def _kind(folder: Path) -> str:
    """The name under which a checkpoint of this folder is built."""
    family = find_family(folder)
    return "masked-lm" if family is None else family.name


def _is_place(name: str) -> bool:
    """A folder, something written like a path, or a hub id; the rest must be a name of ours."""
    return "/" in name or name.startswith((".", "~")) or os.path.isdir(name)


def _locate(place: str, revision: str | None, offline: bool) -> Path:
    return resolve_path(place, revision=revision, offline=offline)


def _exact(options: ExactOptions, on_progress: OnProgress | None) -> Model:
    codec = LetterCodec(options.vocab)
    require(options.seed >= 0, "seed", options.seed, "0 or more", "choose another distribution")
    require(1 <= options.n <= 1000, "n", options.n, "1 or more, as far as the table fits in memory", "change it")
    joint = JointDistribution.random(
        options.n, options.vocab, dependence=options.dependence, seed=options.seed, structure=options.structure
    )
    letters = options.eos or ""
    require(len(set(letters)) == len(letters), "eos", options.eos, "different letters", "name each token once")
    first = int(joint.marginals({})[0].argmax())
    return Model(
        name="exact",
        denoiser=ExactDenoiser(joint, eos_ids=tuple(codec.encode(letters))),
        codec=codec,
        options=asdict(options),
        max_length=joint.n,
        default_prompt=codec.decode([first]),
    )


def _checkpoint(name: str, family: str, published: str) -> Callable[[CheckpointOptions, OnProgress | None], Model]:
    def build(options: CheckpointOptions, on_progress: OnProgress | None) -> Model:
        place = options.path or published
        folder = _locate(place, options.revision, options.offline)
        kind = _kind(folder)
        require(kind == family, f"path of {name}", place, f"a {family} checkpoint", f"load {kind} with this path")
        return _open(folder, replace(options, path=place), place if place != published else name, on_progress)

    return build


_UNCLOSED = (
    "A page was cut off after <main><section><p>hello. Give only the missing closing tags inside <answer>...</answer>."
)


def _embedded(name: str) -> Callable[[EmbeddedOptions, OnProgress | None], Model]:
    def build(options: EmbeddedOptions, on_progress: OnProgress | None) -> Model:
        model = _open(EMBEDDED / name, options, name, on_progress)
        return replace(model, default_prompt=_UNCLOSED, max_new_tokens=48)

    return build


def _open(folder: Path, options: EmbeddedOptions, name: str, on_progress: OnProgress | None) -> Model:
    """A checkpoint as a model, with its options resolved."""
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.dtype, device)
    engine = resolve_engine(options.engine, device)
    checkpoint = load_checkpoint(
        folder,
        device=device,
        dtype=dtype,
        engine=engine,
        invariant=options.invariant,
        chat=options.chat,
        readout=options.readout,
        query=options.query,
        on_tensor=on_progress,
    )
    resolved = replace(
        options,
        device=str(device),
        dtype=dtype_name(dtype),
        engine=engine,
        chat=checkpoint.codec.template is not None,
        readout=checkpoint.network.readout,
    )
    return Model(
        name=name,
        denoiser=checkpoint.network,
        codec=checkpoint.codec,
        options=_told(resolved) | _origin(checkpoint, folder),
        max_length=checkpoint.length,
        default_prompt="Hello! What can you do?",
        max_new_tokens=128,
        reference=checkpoint.family.policy,
    )


def _told(options: EmbeddedOptions) -> dict[str, Any]:
    """The options as a result's configuration has them: those that older results lack only where they are not usual."""
    later = {"invariant", "query"}
    usual = {field.name: field.default for field in fields(options) if field.name in later}
    return {name: value for name, value in asdict(options).items() if name not in usual or value != usual[name]}


def _origin(checkpoint: Checkpoint, folder: Path) -> dict[str, Any]:
    """Which checkpoint it is, and which keys of its config.json are unknown."""
    ignored = {"ignored": checkpoint.ignored} if checkpoint.ignored else {}
    return {"family": checkpoint.family.model_type, "fingerprint": fingerprint(folder), **ignored}


def _masked_lm(options: MaskedLMOptions, on_progress: OnProgress | None) -> Model:
    if options.path is None:
        raise ConfigError(
            "path of masked-lm is None; allowed: a folder or a hub id; e.g. load('masked-lm', "
            "path='google-bert/bert-base-uncased')"
        )
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.dtype, device)
    folder = _locate(options.path, options.revision, options.offline)
    masked_lm = load_masked_lm(
        folder, device=device, dtype=dtype, attention=options.attention, readout_layers=options.readout
    )
    layers = masked_lm.denoiser.readout_layers
    resolved = replace(options, device=str(device), dtype=dtype_name(dtype), readout=layers)
    return Model(
        name=options.path,
        denoiser=masked_lm.denoiser,
        codec=masked_lm.codec,
        options=asdict(resolved) | {"fingerprint": fingerprint(folder)},
        max_length=masked_lm.denoiser.max_positions,
        default_prompt="Hello",
        max_new_tokens=8,
    )


def _hub_status(published: str) -> Callable[[], str]:
    def status() -> str:
        return "ready: in the local cache" if is_cached(published) else "not downloaded: loading it fetches it"

    return status


def _masked_lm_status() -> str:
    return "ready: give a path" if find_spec("transformers") else "needs `pip install unmask[hf]`"


EMBEDDED = Path(__file__).parents[1] / "models" / "shipped"
"""Where the models of the package lie, each in its family's published format with a manifest and a card."""


PUBLISHED = {
    "llada": "GSAI-ML/LLaDA-8B-Instruct",
    "llada-1.5": "GSAI-ML/LLaDA-1.5",
    "dream": "Dream-org/Dream-v0-Instruct-7B",
}
"""The hub ids of the models that go by a name."""


def _published(name: str, family: str, about: str) -> ModelEntry:
    hub_id = PUBLISHED[name]
    return ModelEntry(f"{about} ({hub_id})", CheckpointOptions, _checkpoint(name, family, hub_id), _hub_status(hub_id))


def _folders_of(family: str) -> ModelEntry:
    return ModelEntry("", CheckpointOptions, _checkpoint(family, family, ""), lambda: "ready: give a path")


def _small(name: str, about: str) -> ModelEntry:
    return ModelEntry(about, EmbeddedOptions, _embedded(name), lambda: "ready: in the package")


MODELS: dict[str, ModelEntry] = {
    "mini": _small("mini", "LLaDA's architecture and format, 6.6 million parameters; trained on the suite's tasks."),
    "mini-dream": _small("mini-dream", "Dream's architecture and format, 6.3 million parameters; the same training."),
    "exact": ModelEntry(
        "A random joint distribution small enough to enumerate: every prediction is the true conditional.",
        ExactOptions,
        _exact,
        lambda: "ready",
    ),
    "llada": _published("llada", "llada", "LLaDA, 8 billion parameters, 16 GB."),
    "llada-1.5": _published("llada-1.5", "llada", "LLaDA after preference tuning, 16 GB."),
    "dream": _published("dream", "dream", "Dream, 7 billion parameters, 15 GB."),
    "masked-lm": ModelEntry(
        "Any masked language model of Hugging Face transformers: BERT, RoBERTa, ALBERT, ModernBERT, ESM, ...",
        MaskedLMOptions,
        _masked_lm,
        _masked_lm_status,
    ),
}
"""Every model by name. A new one is a dataclass of options, a function that builds it, and a line here."""
