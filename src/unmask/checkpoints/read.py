"""From a checkpoint folder to a denoiser with its tokenizer. No code from the folder is ever executed."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from unmask.base.errors import CheckpointError, ConfigError, require
from unmask.checkpoints import weights
from unmask.checkpoints.codec import TextCodec
from unmask.checkpoints.config import CheckpointConfig
from unmask.checkpoints.device import check_memory
from unmask.checkpoints.dream import DREAM
from unmask.checkpoints.family import Family
from unmask.checkpoints.llada import LLADA
from unmask.checkpoints.manifest import check_manifest
from unmask.core import Vocabulary
from unmask.denoisers.engines import resolve_engine, use_engine
from unmask.denoisers.network import QUERIES, Network
from unmask.denoisers.readout import default_layers
from unmask.denoisers.transformer import Spec

FAMILIES: dict[str, Family] = {family.model_type: family for family in (LLADA, DREAM)}
"""By config.json's `model_type`."""


@dataclass(frozen=True)
class Checkpoint:
    """A network that reads and writes text."""

    family: Family
    network: Network
    codec: TextCodec
    length: int
    ignored: tuple[str, ...] = ()
    """Keys of its config.json that are not known here, but null, false or empty."""


class Description(NamedTuple):
    """What a folder says of a network before its weights are read."""

    family: Family
    spec: Spec
    codec: TextCodec
    mask_id: int
    length: int
    ignored: tuple[str, ...]


def read(
    folder: Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    engine: str = "auto",
    invariant: bool = False,
    wanted_only: bool = False,
    chat: bool | None = None,
    readout: Sequence[int] | None = None,
    query: str = "own",
    accept: Collection[str] = (),
    on_tensor: Callable[[str, int], None] | None = None,
) -> Checkpoint:
    """Read configuration, tokenizer and weights, in that order: what is cheap to refuse is refused first.

    `invariant` gives a row the same bits alone and in a batch; `wanted_only` spares other slots half of the last layer.
    `accept` names keys of config.json that are not known here and are to be passed over.
    """
    check_manifest(folder)
    described = describe(folder, chat=chat, accept=accept)
    family, spec, codec = described.family, described.spec, described.codec
    layers = default_layers(spec.layers) if readout is None else tuple(dict.fromkeys(readout))
    fits = bool(layers) and all(0 <= layer < spec.layers for layer in layers)
    require(fits, "readout", list(layers), f"layers 0 to {spec.layers - 1}, one or more", "leave it out for a default")
    require(query in QUERIES, "query", query, " or ".join(QUERIES), "whose attention is read out for a position")
    idle = query != "own" and not family.shift
    require(not idle, "query", query, f"own with {family.name}, whose slots predict themselves", "leave it out")
    engine = resolve_engine(engine, device)
    check_memory(spec.parameters, dtype, device)
    model = weights.load(spec, family.names, folder, device, dtype, on_tensor)
    vocabulary = Vocabulary(spec.vocab, described.mask_id, codec.eos_ids)
    network = Network(model, vocabulary, family.shift, layers, query, wanted_only=wanted_only)
    engaged = use_engine(network, engine, invariant=invariant)
    return Checkpoint(family, engaged, codec, described.length, described.ignored)


def describe(folder: Path, *, chat: bool | None = None, accept: Collection[str] = ()) -> Description:
    """Configuration and tokenizer of a checkpoint; its weights need not be there."""
    config = CheckpointConfig.read(folder)
    if config.model_type not in FAMILIES:
        raise CheckpointError(
            f"'model_type' in {config.path} is {config.values.get('model_type')!r}; allowed: {', '.join(FAMILIES)}, or "
            "a masked LM of transformers through masked-lm; this network is not known here"
        )
    family = FAMILIES[config.model_type]
    try:
        spec = family.spec(config)
    except ConfigError as error:
        raise CheckpointError(
            f"{config.path} describes no network: {error}; check that the file is the published one"
        ) from error
    stated = config.whole(family.length)
    length = stated if family.usable is None else min(stated, family.usable)
    mask_id, end_id = config.whole("mask_token_id", 0), config.whole("eos_token_id", 0)
    ignored = config.finish(accept)
    codec = TextCodec.read(folder, mask_id=mask_id, vocab=spec.vocab, ends=(end_id, *family.ends), chat=chat)
    if codec.mask != family.mask:
        raise CheckpointError(
            f"'mask_token_id' in {config.path} is {mask_id}, the token {codec.mask!r}; allowed: the id of "
            f"{family.mask!r}; tokenizer and config.json belong to different models"
        )
    if codec.template is None and chat is None:
        raise CheckpointError(
            f"{folder} has no chat template; allowed: a tokenizer_config.json with one, as published; download it, or "
            "load with chat=False to give the model plain prompts"
        )
    return Description(family, spec, codec, mask_id, length, ignored)
