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

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Numbers of rows that are compared, as far as `SLOTS` allows."""
SLOTS = 1 << 15
"""Slots of the largest pass that is compared."""


class Bounds(NamedTuple):
    """Allowed numbers of rows in a pass: fewer are filled up with copies, more are cut into several passes."""

    least: int = 1
    most: int | None = None


_found: dict[tuple[object, ...], Bounds] = {}
"""Bounds by everything that the choice of kernels may depend on. Finding them takes hundredths of a second."""


@dataclass(frozen=True, eq=False)
class RowBounds:
    """Measures the bounds within which a row's bits do not depend on the number of rows."""

    model: Transformer

    def rows(self, queries: int, keys: int, most: int | None = None) -> Bounds:
        """Find the bounds of passes with so many queries and keys; `most` rows go through the layers at once."""
        room = max(1, SLOTS // queries) if most is None else most
        sizes = [size for size in SIZES if size < room] + ([room] if most is not None or room <= SIZES[-1] else [])
        key = (*self._kernel_choice_key, "layer", queries, keys, tuple(sizes))
        if key not in _found:
            _found[key] = find_bounds(_run_layer(self.model, queries, keys), sizes, most)
        return _found[key]

    def packs(self, pack: int) -> Bounds:
        """Find the bounds of final norm and head, counted in packs of so many rows."""
        key = (*self._kernel_choice_key, "head", pack, self.model.spec.vocab)
        if key not in _found:
            _found[key] = find_bounds(_run_head(self.model, pack), SIZES)
        return _found[key]

    @property
    def _kernel_choice_key(self) -> tuple[object, ...]:
        """Everything that the choice of kernels may depend on."""
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
    """Find the least size from which all sizes agree; where no two agree, every pass has the largest.

    `run(n)` returns what each of n copies of one row gives: (n, ...).
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


def _run_layer(model: Transformer, queries: int, keys: int) -> Callable[[int], Tensor]:
    """Return a function that runs one layer on copies of one row, as a pass does."""
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


def _run_head(model: Transformer, pack: int) -> Callable[[int], Tensor]:
    """Return a function that runs final norm and head on copies of one pack of rows."""
    draw = torch.Generator(model.device).manual_seed(0)
    x_RH = torch.randn(pack, model.spec.width, generator=draw, device=model.device).to(model.dtype)

    @torch.inference_mode()
    def run_packs(packs: int) -> Tensor:
        return model.head(model.norm(x_RH.repeat(packs, 1))).unflatten(0, (packs, pack))

    return run_packs
