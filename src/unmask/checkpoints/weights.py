"""Weights between safetensors files under published names and our fused parameters, tensor by tensor."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import CheckpointError
from unmask.base.files import atomic_write, write_text
from unmask.checkpoints.config import INDEX, SINGLE, weight_map
from unmask.checkpoints.shard_header import StoredTensor, damaged, read_header
from unmask.denoisers.transformer import Spec, Transformer

STORED = ("F32", "F16", "BF16")
"""Types of stored weights."""


@dataclass(frozen=True)
class Names:
    """How a family spells its tensors; those of a layer follow `layer`, whose {} is the layer's number."""

    embed: str
    norm: str
    head: str
    layer: str
    attn_norm: str
    q: str
    k: str
    v: str
    out: str
    mlp_norm: str
    gate: str
    up: str
    down: str

    def parts(self, spec: Spec) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
        """For each of our parameters, the published tensors it is stacked from, with their shapes."""
        width, mlp = spec.width, spec.mlp
        table: dict[str, list[tuple[str, tuple[int, ...]]]] = {
            "embed.weight": [(f"{self.embed}.weight", (spec.vocab, width))],
            "norm.weight": [(f"{self.norm}.weight", (width,))],
            "head.weight": [(f"{self.head}.weight", (spec.vocab, width))],
        }
        for n in range(spec.layers):
            ours, theirs = f"layers.{n}", self.layer.format(n)
            qkv = list(zip((self.q, self.k, self.v), spec.qkv, strict=True))
            table |= {
                f"{ours}.attn_norm.weight": [(f"{theirs}.{self.attn_norm}.weight", (width,))],
                f"{ours}.qkv.weight": [(f"{theirs}.{name}.weight", (rows, width)) for name, rows in qkv],
                f"{ours}.out.weight": [(f"{theirs}.{self.out}.weight", (width, width))],
                f"{ours}.mlp_norm.weight": [(f"{theirs}.{self.mlp_norm}.weight", (width,))],
                f"{ours}.gate_up.weight": [(f"{theirs}.{name}.weight", (mlp, width)) for name in (self.gate, self.up)],
                f"{ours}.down.weight": [(f"{theirs}.{self.down}.weight", (width, mlp))],
            }
            if spec.qkv_bias:
                table[f"{ours}.qkv.bias"] = [(f"{theirs}.{name}.bias", (rows,)) for name, rows in qkv]
        return table


class Shards:
    """The tensors of a checkpoint folder, found by name in whichever file holds them and read one at a time."""

    def __init__(self, folder: Path, device: torch.device | str, stack: ExitStack):
        self.folder = folder
        self._file: dict[str, Path] = {}
        self._open: dict[Path, Any] = {}
        self._stored: dict[str, StoredTensor] = {}
        listed = self._listed()
        for path in sorted(set(listed.values())) or [folder / SINGLE]:
            header = read_header(path)
            for name in sorted(header.keys() & self._file.keys()):
                raise CheckpointError(
                    f"the tensor {name!r} is in {self._file[name]} and in {path}; allowed: every tensor once; the "
                    "shards belong to different models, download them again"
                )
            self._file |= dict.fromkeys(header, path)
            self._stored |= header
            self._open[path] = stack.enter_context(_open(path, device))
        self._check_index(listed)

    def read(self, name: str) -> Tensor:
        try:
            tensor: Tensor = self._open[self._file[name]].get_tensor(name)
        except Exception as error:
            raise damaged(self._file[name], error) from error
        return tensor

    def check(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Exactly these tensors with exactly these shapes, before a byte of them is read."""
        for name, shape in expected.items():
            if name not in self._file:
                raise CheckpointError(
                    f"{self.folder} has no tensor {name!r}; allowed: every tensor its config.json implies; a shard is "
                    "missing or belongs to another model, download it again"
                )
            stored = self._stored[name]
            if stored.dtype not in STORED:
                raise CheckpointError(
                    f"tensor {name!r} in {self._file[name]} is stored as {stored.dtype}; allowed: {', '.join(STORED)}; "
                    "quantised checkpoints need their scales, which this code does not read"
                )
            if stored.shape != shape:
                raise CheckpointError(
                    f"tensor {name!r} in {self._file[name]} has shape {stored.shape}; allowed: {shape}, by "
                    "config.json; config and weights belong to different models"
                )
        for name in sorted(set(self._file) - set(expected)):
            raise CheckpointError(
                f"{self._file[name]} holds the tensor {name!r}; allowed: the {len(expected)} tensors its config.json "
                "implies; config and weights belong to different models"
            )

    def _listed(self) -> dict[str, Path]:
        """Where the index says each tensor is; empty for a checkpoint of one file."""
        if not (self.folder / INDEX).exists() and (self.folder / SINGLE).exists():
            return {}
        if not (self.folder / INDEX).exists():
            raise CheckpointError(
                f"{self.folder} has no safetensors weights; allowed: {SINGLE}, or shards with {INDEX}; download them "
                "(pickles such as *.bin are never read)"
            )
        return {name: self.folder / file for name, file in weight_map(self.folder).items()}

    def _check_index(self, listed: Mapping[str, Path]) -> None:
        for name, path in listed.items():
            if self._file.get(name) != path:
                raise CheckpointError(
                    f"{path} lacks the tensor {name!r} that {self.folder / INDEX} places there; allowed: an index that "
                    "fits its shards; download both again"
                )


def load(
    spec: Spec, names: Names, folder: Path, device: torch.device | str, dtype: torch.dtype, on_tensor: Any = None
) -> Transformer:
    """The network with its weights, each tensor going straight to its device and type."""
    parts = names.parts(spec)
    with ExitStack() as stack:
        shards = Shards(folder, device, stack)
        shards.check({name: shape for tensors in parts.values() for name, shape in tensors})
        model = Transformer.empty(spec, device, dtype).requires_grad_(False).eval()
        for parameter, tensors in parts.items():
            target, row = model.get_parameter(parameter), 0
            for name, shape in tensors:
                target[row : row + shape[0]].copy_(shards.read(name))
                row += shape[0]
            if on_tensor is not None:
                on_tensor(parameter, target.numel() * target.element_size())
    return model


def save(model: Transformer, names: Names, folder: Path, shards: int = 1, dtype: torch.dtype | None = None) -> None:
    """The network under published names; several shards get an index. Each file is complete or absent."""
    from safetensors.torch import save as packed

    tensors = {name: tensor.to(dtype or model.dtype) for name, tensor in published(model, names)}
    # Dealt out in turn: one layer's tensors end up in different files, as in the published checkpoints.
    files = [SINGLE] if shards == 1 else [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    home = {name: files[i % shards] for i, name in enumerate(tensors)}
    for file in files:
        held = {name: tensor.contiguous() for name, tensor in tensors.items() if home[name] == file}
        with atomic_write(folder / file) as part:
            # Not written by the library: what is wrong with a disk is then an error of the system, and known as one.
            part.write_bytes(packed(held, metadata={"format": "pt"}))
    if shards > 1:
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(home.items()))}
        write_text(folder / INDEX, json.dumps(index, indent=2) + "\n")
    else:
        # An older checkpoint's index would be read first.
        (folder / INDEX).unlink(missing_ok=True)


def published(model: Transformer, names: Names) -> Iterator[tuple[str, Tensor]]:
    """Every tensor under its published name, as a view of our parameters."""
    for parameter, tensors in names.parts(model.spec).items():
        rows = [shape[0] for _, shape in tensors]
        for (name, _), part in zip(tensors, model.get_parameter(parameter).detach().split(rows), strict=True):
            yield name, part


def _open(path: Path, device: torch.device | str) -> Any:
    from safetensors import safe_open

    try:
        return safe_open(str(path), framework="pt", device=str(device))
    except Exception as error:
        raise damaged(path, error) from error
