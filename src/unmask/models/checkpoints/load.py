"""From a checkpoint folder to network and codec. No code from the folder is ever executed."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unmask.base.errors import CheckpointError, NotEnoughMemory, format_value, require, warn_once
from unmask.core import Vocabulary
from unmask.models.checkpoints.config import Family, is_switched_off, read_config, read_json
from unmask.models.checkpoints.text_codec import TextCodec
from unmask.models.checkpoints.weights import OnTensor, load_weights
from unmask.models.execution import dtype_name, free_memory, resolve_engine, use_engine
from unmask.models.network import QUERIES, Network, default_readout_layers
from unmask.models.transformer import TransformerSpec

MANIFEST = "manifest.json"
RESTORE = f"restore the folder; or, if you changed it yourself, delete {MANIFEST} to load it as it is"


@dataclass(frozen=True)
class CheckpointInfo:
    """Facts about a checkpoint folder that are known before its weights are read."""

    family: Family
    spec: TransformerSpec
    codec: TextCodec
    max_length: int
    """Positions of the longest canvas."""
    unknown_keys: dict[str, Any]
    """Keys of `config.json` that this package does not know, with their values."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded network with the facts about its folder."""

    network: Network
    info: CheckpointInfo


def load_checkpoint(
    folder: Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    engine: str = "auto",
    invariant: bool = False,
    chat: bool | None = None,
    readout: Sequence[int] | None = None,
    query: str = "own",
    on_tensor: OnTensor | None = None,
) -> Checkpoint:
    """Load a checkpoint folder: configuration, tokenizer and weights, in this order, so that cheap checks come first.

    `invariant` gives a row the same bits alone and in a batch.
    """
    check_manifest(folder)
    info = describe_checkpoint(folder, chat=chat)
    family, spec, codec = info.family, info.spec, info.codec
    layers = default_readout_layers(spec.layers) if readout is None else tuple(dict.fromkeys(readout))
    fits = bool(layers) and all(0 <= layer < spec.layers for layer in layers)
    require(fits, "readout", list(layers), f"layers 0 to {spec.layers - 1}, one or more", "leave it out for a default")
    require(query in QUERIES, "query", query, " or ".join(QUERIES), "whose attention is read out for a position")
    idle = query != "own" and not family.shift
    require(not idle, "query", query, f"own with {family.name}, whose slots predict themselves", "leave it out")
    engine = resolve_engine(engine, device)
    needed, free = spec.parameters * dtype.itemsize, free_memory(device)
    if free is not None and needed > free:
        # Now, and not half-way through the weights, when the system would kill the process.
        advice = "choose --dtype bf16, " if dtype == torch.float32 else ""
        raise NotEnoughMemory(
            f"the weights need {needed / 2**30:.1f} GiB in {dtype_name(dtype)}; allowed: {free / 2**30:.1f} GiB, what "
            f"{device} has free; free some, {advice}or use another device"
        )
    for key, value in info.unknown_keys.items():
        if not is_switched_off(value):
            warn_once(
                f"{key!r} in {folder / 'config.json'} is {format_value(value, 200)}, a key that is not known here: it "
                "is ignored, and predictions are wrong if it changes the network"
            )
    model = load_weights(spec, family.names, folder, device, dtype, on_tensor)
    network = Network(model, Vocabulary(spec.vocab, codec.mask_id, codec.eos_ids), family.shift, layers, query)
    return Checkpoint(use_engine(network, engine, invariant=invariant), info)


def describe_checkpoint(folder: Path, *, chat: bool | None = None) -> CheckpointInfo:
    """Read and check configuration and tokenizer of a checkpoint folder, without its weights."""
    family, config = read_config(folder)
    mask_id, spec = config.mask_token_id, config.spec
    ends: tuple[int | str, ...] = (config.eos_token_id, *family.ends)
    codec = TextCodec.read(folder, mask_id=mask_id, vocab=spec.vocab, ends=ends, chat=chat)
    if codec.mask != family.mask:
        raise CheckpointError(
            f"'mask_token_id' in {folder / 'config.json'} is {mask_id}, the token {codec.mask!r}; allowed: the id of "
            f"{family.mask!r}; tokenizer and config.json belong to different models"
        )
    if codec.template is None and chat is None:
        raise CheckpointError(
            f"{folder} has no chat template; allowed: a tokenizer_config.json with one, as published; download it, or "
            "load with chat=False to give the model plain prompts"
        )
    max_length = min(config.max_length, family.max_length or config.max_length)
    return CheckpointInfo(family, spec, codec, max_length, config.unknown_keys)


DATA_FILES = (".json", ".safetensors", ".txt", ".jinja", ".model")
HASHED_WHOLE = 64 << 20
"""Largest size of a file that is hashed whole. Reading 16 GB of weights for a name would take longer than loading."""


def fingerprint(folder: Path) -> str:
    """Hash a checkpoint's files, except code; of a large file only 256 evenly spaced pieces."""
    digest = hashlib.sha256()
    # Names and sizes are hashed too, so that moving bytes from one file to another shows.
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in DATA_FILES):
        size, piece = path.stat().st_size, HASHED_WHOLE // 256
        pieces = [(0, size)]
        if size > HASHED_WHOLE:
            pieces = [(i * (size - piece) // 255, piece) for i in range(256)]
        digest.update(json.dumps([path.name, size]).encode())
        with path.open("rb") as file:
            for start, length in pieces:
                file.seek(start)
                digest.update(file.read(length))
    return digest.hexdigest()[:16]


def check_manifest(folder: Path) -> dict[str, Any] | None:
    """Refuse a folder exported by `unmask train` whose files differ from its manifest; return the manifest.

    Return None for other folders: published ones have no manifest, so a flipped bit in their weights goes unnoticed.
    """
    path = folder / MANIFEST
    if not path.exists():
        return None
    manifest = read_json(path)
    # Every manifest of ours has this key; files of this name from other programs are left alone.
    if "config_sha256" not in manifest:
        return None
    files = manifest.get("files")
    # A name with a folder in it would make us read files elsewhere.
    if not isinstance(files, dict) or not all(Path(name).name == name for name in files):
        raise CheckpointError(f"{path} was changed; allowed: what `unmask train` wrote; {RESTORE}")
    wrong = []
    for name, digest in files.items():
        try:
            same = hash_file(folder / name) == digest
        except (OSError, ValueError):
            same = False
        if not same:
            wrong.append(name)
    if wrong:
        raise CheckpointError(
            f"{folder} is not as its run left it: {', '.join(wrong)} missing or changed; allowed: the files of its "
            f"{MANIFEST}; {RESTORE}"
        )
    return manifest


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
