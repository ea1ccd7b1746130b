"""How many rows a pass needs so that a row has the same bits alone and in a batch.

Matrix products of few rows run other kernels than those of many, which add in another order: in half precision on a GPU
a row alone differs in its last bits from the same row in a batch. From some size on the kernels agree. That size
depends on the device, so it is measured there with one layer of the network, and its head, on copies of one row.
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.base.errors import DenoiserError
from unmask.models.transformer import Layer, Rotation, Transformer, attend

COMPARED_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Numbers of rows whose results are compared, as far as `MOST_COMPARED_SLOTS` allows."""
MOST_COMPARED_SLOTS = 1 << 15
"""Number of slots of the largest pass to compare."""


class Bounds(NamedTuple):
    """Least and largest number of rows in a pass: fewer are filled up with copies, more are cut into passes."""

    least: int = 1
    most: int | None = None


_measured_bounds: dict[tuple[object, ...], Bounds] = {}
"""Bounds that were measured in this process, by everything that the choice of kernels may depend on."""


@dataclass(frozen=True, eq=False)
class RowBounds:
    """The numbers of rows in a pass for which a row's bits stay the same, as measured on this device."""

    model: Transformer

    def find_layer_bounds(self, queries: int, keys: int, most: int | None = None) -> Bounds:
        """Find the row bounds of a pass through the layers, for a number of queries and keys per row.

        A pass of at most `most` rows goes through the layers at once; None for no limit.
        """
        room = max(1, MOST_COMPARED_SLOTS // queries) if most is None else most
        sizes = [size for size in COMPARED_ROWS if size < room] + (
            [room] if most is not None or room <= COMPARED_ROWS[-1] else []
        )
        key = (*self._kernel_choice_key, "layer", queries, keys, tuple(sizes))
        if key not in _measured_bounds:
            _measured_bounds[key] = find_bounds(_make_layer_run(self.model, queries, keys), sizes, most)
        return _measured_bounds[key]

    def find_head_bounds(self, pack: int) -> Bounds:
        """Find the row bounds of the final norm and head, counted in packs of `pack` rows."""
        key = (*self._kernel_choice_key, "head", pack, self.model.spec.vocab)
        if key not in _measured_bounds:
            _measured_bounds[key] = find_bounds(_make_head_run(self.model, pack), COMPARED_ROWS)
        return _measured_bounds[key]

    @property
    def _kernel_choice_key(self) -> tuple[object, ...]:
        """Device, versions, dtype and sizes: everything that the choice of kernels may depend on."""
        model, device = self.model, self.model.device
        # Depth and vocabulary do not enter a layer's products, so models that differ in them share the bounds.
        layer, spec = model.layers[0], replace(model.spec, layers=1, vocab=1)
        assert isinstance(layer, Layer)
        if device.type == "cuda":
            machine: tuple[object, ...] = (
                torch.cuda.get_device_name(device),
                torch.cuda.get_device_capability(device),
            )
        else:
            machine = (device.type, platform.machine(), torch.get_num_threads())
        return (*machine, torch.__version__, model.dtype, spec, type(layer.ops), layer.qkv.fused)


def find_bounds(run: Callable[[int], Tensor], sizes: Sequence[int], most: int | None = None) -> Bounds:
    """Find the least number of rows from which all larger numbers give the same bits, else the largest.

    `run(n)` returns the results of n copies of one row, (n, ...).
    """
    sizes = list(sizes)
    while True:
        try:
            whole = run(sizes[-1])
            break
        except torch.OutOfMemoryError:
            # The largest pass that fits will do: a pass that does not fit is never run.
            if len(sizes) == 1:
                raise
            sizes.pop()
    # Copies of one row at all places of the largest pass: if these differ, no number of rows can help.
    if not bool((whole == whole[0]).all()):
        raise DenoiserError(
            f"invariant is True, but on this device a row's bits depend on its place among {sizes[-1]} rows; allowed: "
            "False here; load the model without it"
        )
    truth = whole[0].clone()
    least = sizes[-1]
    # Downwards, up to the first size that disagrees: below it a smaller one might agree by chance.
    for size in reversed(sizes[:-1]):
        if not bool((run(size) == truth).all()):
            break
        least = size
    return Bounds(least, sizes[-1] if least == sizes[-1] else most)


def _make_layer_run(model: Transformer, queries: int, keys: int) -> Callable[[int], Tensor]:
    """Return a function that runs one layer on n copies of a random row."""
    layer, spec, dtype, device = model.layers[0], model.spec, model.dtype, model.device
    assert isinstance(layer, Layer)
    draw = torch.Generator(device).manual_seed(0)
    x_1QH = torch.randn(1, queries, spec.width, generator=draw, device=device).to(dtype)
    kv_1GNF = torch.randn(1, spec.kv_heads, keys, spec.head_dim, generator=draw, device=device).to(dtype)
    position_1Q = torch.arange(queries, device=device)[None]

    @torch.inference_mode()
    def run_copies(rows: int) -> Tensor:
        rotate = Rotation.of(position_1Q.expand(rows, -1), spec, dtype)
        x_BQH, q, k, v = layer.project(x_1QH.repeat(rows, 1, 1), None, rotate)
        if keys != queries:
            # As in a block cache: short spans of queries against the keys of the whole canvas.
            k = v = kv_1GNF.repeat(rows, 1, 1, 1)
        # Given although it is all zeros, because passes have one and attention without it runs another kernel.
        bias = torch.zeros(rows, 1, 1, keys, dtype=dtype, device=device)
        x_BQH, delta_BQH = layer.finish(x_BQH, attend(q, k, v, bias))
        return x_BQH + delta_BQH

    return run_copies


def _make_head_run(model: Transformer, pack: int) -> Callable[[int], Tensor]:
    """Return a function that runs the final norm and head on n copies of a random pack of rows."""
    draw = torch.Generator(model.device).manual_seed(0)
    x_RH = torch.randn(pack, model.spec.width, generator=draw, device=model.device).to(model.dtype)

    @torch.inference_mode()
    def run_packs(packs: int) -> Tensor:
        return model.head(model.norm(x_RH.repeat(packs, 1))).unflatten(0, (packs, pack))

    return run_packs
