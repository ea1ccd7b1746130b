"""Residual + RMSNorm, rotary embedding and SwiGLU in one pass each, rounding wherever `transformer.PlainOps` rounds.

Products, sums and quotients are rounded to the network's type one by one (no fused multiply-add), and `exp` is the one
that torch calls, so that elementwise results are the plain path's to the bit. A norm sums its squares in another order:
its scale may differ in the last bits of float32, the scaled number then by one unit of a shorter type, and times its
weight by two. A row is computed by
one program whose shape follows from the network alone, so that no neighbour and no batch size can move a bit of it.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from unmask.models.transformer import PLAIN, Rotation

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Triton's interpreter has no libdevice, and cuts float32 to bfloat16 instead of rounding it."""

_GATE_BLOCK = 2048
_PAIRS = 1024
"""Rotated pairs per program."""


@triton.jit
def _rounded(x, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """float32 to the nearest number of a type, ties to even."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        up = bits + 0x7FFF + ((bits >> 16) & 1)
        # A NaN stays one whatever its payload: adding could carry it into the sign.
        return tl.where(x == x, up >> 16, 0x7FC0).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return x.to(dtype)


@triton.jit
def _add_norm(  # type: ignore[no-untyped-def]
    x_ptr,
    delta_ptr,
    weight_ptr,
    normed_ptr,
    ADD: tl.constexpr,
    WIDTH: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """x += delta, and the RMSNorm of x: one row."""
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    start = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    x = tl.load(x_ptr + start + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total = x + tl.load(delta_ptr + start + at, mask=inside, other=0.0).to(tl.float32)
        kept = _rounded(total, dtype)
        tl.store(x_ptr + start + at, kept, mask=inside)
        x = kept.to(tl.float32)
    mean = tl.reduce(x * x, 0, tl.standard._sum_combine) * (1.0 / WIDTH)
    scaled = _rounded(x * tl.rsqrt(mean + EPS), dtype).to(tl.float32)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed_ptr + start + at, _rounded(weight * scaled, dtype), mask=inside)


@triton.jit
def _rotate(  # type: ignore[no-untyped-def]
    x_ptr,
    cos_ptr,
    sin_ptr,
    STRIDE: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Some heads of one slot, where they lie. Angles come in the type in which the network rotates."""
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    inner: tl.constexpr = cos_ptr.dtype.element_ty
    slot = (tl.program_id(0) // CHUNKS).to(tl.int64)
    head = (tl.program_id(0) % CHUNKS) * HEAD_BLOCK + tl.arange(0, HEAD_BLOCK)
    at = tl.arange(0, HALF_BLOCK)
    inside = (head < HEADS)[:, None] & (at < HALF)[None, :]
    place = x_ptr + slot * STRIDE + head[:, None] * (2 * HALF) + at[None, :]
    left = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(place + HALF, mask=inside, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + slot * (2 * HALF) + at, mask=at < HALF, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + slot * (2 * HALF) + at, mask=at < HALF, other=0.0).to(tl.float32)[None, :]
    new_left = _rounded(left * cos, inner).to(tl.float32) - _rounded(right * sin, inner).to(tl.float32)
    new_right = _rounded(right * cos, inner).to(tl.float32) + _rounded(left * sin, inner).to(tl.float32)
    tl.store(place, _rounded(_rounded(new_left, inner).to(tl.float32), dtype), mask=inside)
    tl.store(place + HALF, _rounded(_rounded(new_right, inner).to(tl.float32), dtype), mask=inside)


@triton.jit
def _gate(  # type: ignore[no-untyped-def]
    gate_ptr, up_ptr, out_ptr, STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr
):
    """silu(gate) * up: part of one row."""
    dtype: tl.constexpr = gate_ptr.dtype.element_ty
    row = (tl.program_id(0) // CHUNKS).to(tl.int64)
    at = (tl.program_id(0) % CHUNKS) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(gate_ptr + row * STRIDE + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * STRIDE + at, mask=inside, other=0.0).to(tl.float32)
    if INTERPRETED:
        decay = tl.exp(-gate)
    else:
        decay = libdevice.exp(-gate)
    opened = _rounded(tl.math.div_rn(gate, 1.0 + decay), dtype).to(tl.float32)
    tl.store(out_ptr + row * WIDTH + at, _rounded(opened * up, dtype), mask=inside)


class FusedOps:
    """A layer's small operations as one kernel each. They have no gradients: who asks for some gets the plain ones."""

    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if x.requires_grad:
            return PLAIN.add_norm(x, delta, weight, eps)
        width = x.shape[-1]
        x, normed = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
        added = x if delta is None else delta.contiguous()
        block = triton.next_power_of_2(width)
        with _on(x):
            for grid in _grid(x.numel() // width):
                _add_norm[grid](
                    x,
                    added,
                    weight,
                    normed,
                    ADD=delta is not None,
                    WIDTH=width,
                    EPS=eps,
                    BLOCK=block,
                    num_warps=max(1, min(16, block // 512)),
                    enable_fp_fusion=False,
                )
        return x, normed

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, head_dim: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        if q.requires_grad:
            return PLAIN.rotate(q, k, v, rotation, head_dim)
        if _side_by_side(q, k):
            _rotate_heads(q, (q.shape[-1] + k.shape[-1]) // head_dim, rotation, head_dim)
        else:
            _rotate_heads(q, q.shape[-1] // head_dim, rotation, head_dim)
            _rotate_heads(k, k.shape[-1] // head_dim, rotation, head_dim)
        by_head = tuple(part.unflatten(-1, (-1, head_dim)).transpose(1, 2) for part in (q, k, v))
        return by_head[0], by_head[1], by_head[2]

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        if gate.requires_grad:
            return PLAIN.gate(gate, up)
        width, stride = gate.shape[-1], gate.stride(-2)
        assert _rows_follow(gate), "rows at equal distances"
        assert gate.stride() == up.stride(), "two halves of one product"
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        block = min(_GATE_BLOCK, triton.next_power_of_2(width))
        chunks = triton.cdiv(width, block)
        with _on(gate):
            for grid in _grid(gate.numel() // width * chunks):
                _gate[grid](
                    gate, up, out, STRIDE=stride, WIDTH=width, BLOCK=block, CHUNKS=chunks, enable_fp_fusion=False
                )
        return out


def _rotate_heads(x: Tensor, heads: int, rotation: Rotation, head_dim: int) -> None:
    """The first heads of every slot from where `x` begins."""
    assert _rows_follow(x), "slots at equal distances"
    half = head_dim // 2
    half_block = triton.next_power_of_2(half)
    head_block = min(triton.next_power_of_2(heads), max(1, _PAIRS // half_block))
    chunks = triton.cdiv(heads, head_block)
    cos, sin = rotation.cos_B1NF.contiguous(), rotation.sin_B1NF.contiguous()
    with _on(x):
        for grid in _grid(x.numel() // x.shape[-1] * chunks):
            _rotate[grid](
                x,
                cos,
                sin,
                STRIDE=x.stride(-2),
                HEADS=heads,
                HALF=half,
                HEAD_BLOCK=head_block,
                HALF_BLOCK=half_block,
                CHUNKS=chunks,
                enable_fp_fusion=False,
            )


def _side_by_side(q: Tensor, k: Tensor) -> bool:
    """Whether k begins where q ends, in every slot: both come from one product."""
    return q.stride() == k.stride() and k.data_ptr() == q.data_ptr() + q.shape[-1] * q.element_size()


def _rows_follow(x: Tensor) -> bool:
    """Whether all rows lie at one distance, so that a row's number alone says where it is."""
    return x.stride(-1) == 1 and all(
        x.shape[axis] == 1 or x.stride(axis) == x.stride(axis + 1) * x.shape[axis + 1] for axis in range(x.dim() - 2)
    )


def _grid(programs: int) -> tuple[tuple[int], ...]:
    """None where there is nothing to do: a launch of no programs is an error."""
    return ((programs,),) if programs else ()


def _on(x: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
