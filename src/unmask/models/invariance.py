"""How many rows a pass needs so that a row has the same bits alone and in a batch.

Matrix products of few rows run other kernels than those of many, which add in another order: in half precision on a GPU
a row alone differs in its last bits from the same row in a batch. From some size on the kernels agree. Which size that
is depends on the device, so it is looked for there: one layer of the network, and its head, on copies of one row.
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.base.errors import DenoiserError
from unmask.models.transformer import Layer, Rotation, Transformer, attend

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Rows of the passes that are compared, as far as `SLOTS` allows."""
SLOTS = 1 << 15
"""Slots of the largest one."""


class Bounds(NamedTuple):
    """How many rows a pass may have; fewer are filled up with dummies, more are cut."""

    least: int = 1
    most: int | None = None


@dataclass(frozen=True, eq=False)
class Floors:
    """The bounds within which a row's bits do not depend on the number of rows."""

    model: Transformer

    def rows(self, queries: int, keys: int, most: int | None = None) -> Bounds:
        """Of passes over so many slots that read so many; `most` rows go through the layers together."""
        room = max(1, SLOTS // queries) if most is None else most
        sizes = [size for size in SIZES if size < room] + ([room] if most is not None or room <= SIZES[-1] else [])
        key = (*_signature(self.model), "layer", queries, keys, tuple(sizes))
        return _remembered(key, lambda: find_bounds(_layer(self.model, queries, keys), sizes, most))

    def packs(self, pack: int) -> Bounds:
        """Of the final norm and the head, in packs of so many packed rows."""
        key = (*_signature(self.model), "head", pack, self.model.spec.vocab)
        return _remembered(key, lambda: find_bounds(_head(self.model, pack), SIZES))


def find_bounds(run: Callable[[int], Tensor], sizes: Sequence[int], most: int | None = None) -> Bounds:
    """`run(n)` gives the numbers of one row as computed in each of n places: (n, ...).

    Where no two sizes agree, every pass has the largest.
    """
    sizes, truth = _largest(run, list(sizes))
    least = sizes[-1]
    for size in reversed(sizes[:-1]):
        if not _same(run(size), truth):
            break
        least = size
    alone = least == sizes[-1]
    return Bounds(least, sizes[-1] if alone else most)


def _largest(run: Callable[[int], Tensor], sizes: list[int]) -> tuple[list[int], Tensor]:
    """The sizes for which there is memory, and the row's numbers at the largest."""
    while True:
        try:
            whole = run(sizes[-1])
            break
        except torch.OutOfMemoryError:
            if len(sizes) == 1:
                raise
            sizes = sizes[:-1]
    if not _same(whole, whole[0]):
        raise DenoiserError(
            f"invariant is True, but on this device a row's bits depend on its place among {sizes[-1]} rows; allowed: "
            "False here; load the model without it"
        )
    return sizes, whole[0].clone()


def _same(places: Tensor, truth: Tensor) -> bool:
    return bool((places == truth).all())


def _layer(model: Transformer, queries: int, keys: int) -> Callable[[int], Tensor]:
    """One layer on copies of one row, as a pass runs it."""
    layer, spec, dtype, device = model.layers[0], model.spec, model.dtype, model.device
    assert isinstance(layer, Layer)
    draw = torch.Generator(device).manual_seed(0)
    x_1QH = torch.randn(1, queries, spec.width, generator=draw, device=device).to(dtype)
    kv_1GNF = torch.randn(1, spec.kv_heads, keys, spec.head_dim, generator=draw, device=device).to(dtype)
    position_1Q = torch.arange(queries, device=device)[None]

    @torch.inference_mode()
    def run(rows: int) -> Tensor:
        rotate = Rotation.of(position_1Q.expand(rows, -1), spec, dtype)
        x_BQH, q, k, v = layer.project(x_1QH.repeat(rows, 1, 1), None, rotate)
        if keys != queries:
            k = v = kv_1GNF.repeat(rows, 1, 1, 1)
        bias = torch.zeros(rows, 1, 1, keys, dtype=dtype, device=device)
        x_BQH, delta_BQH = layer.finish(x_BQH, attend(q, k, v, bias))
        return x_BQH + delta_BQH

    return run


def _head(model: Transformer, pack: int) -> Callable[[int], Tensor]:
    """Final norm and head on copies of one pack of rows."""
    draw = torch.Generator(model.device).manual_seed(0)
    x_RH = torch.randn(pack, model.spec.width, generator=draw, device=model.device).to(model.dtype)

    @torch.inference_mode()
    def run(packs: int) -> Tensor:
        return model.head_of(model.norm(x_RH.repeat(packs, 1))).unflatten(0, (packs, pack))

    return run


_known: dict[tuple[object, ...], Bounds] = {}


def _remembered(key: tuple[object, ...], find: Callable[[], Bounds]) -> Bounds:
    """For the process: finding it anew takes a few hundredths of a second."""
    if key not in _known:
        _known[key] = find()
    return _known[key]


def _signature(model: Transformer) -> tuple[object, ...]:
    """What the choice of kernels may depend on."""
    layer, spec = model.layers[0], replace(model.spec, layers=1, vocab=1)
    assert isinstance(layer, Layer)
    compiled = "finish" in layer.__dict__
    return (*_machine(model.device), torch.__version__, model.dtype, spec, type(layer.ops), layer.qkv.fused, compiled)


def _machine(device: torch.device) -> tuple[object, ...]:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
    return device.type, platform.machine(), torch.get_num_threads()
