"""Residual and norm, rotation, gate, and the attention read-out as fused Triton kernels.

The kernels of a layer round wherever `transformer.PlainOps` rounds: products, sums and quotients go to the network's
type one by one (no fused multiply-add), and `exp` is the one that torch calls, so elementwise results are those of the
plain path to the bit. A norm sums its squares in another order: its scale may differ in the last bits of float32, the
scaled number then by one unit of a shorter type, and times its weight by two.

The read-out sums the probabilities of a layer's heads where they are made. Its oracle is
`attention_readout.mean_attention`, which writes the scores of every head to memory several times over.

Every row is computed by programs whose shapes and order follow from the network alone, so neither the batch size nor
a neighbour can move a bit of it. Only this module of the package imports Triton, and it is imported on first use: a
machine without Triton decodes all the same.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from unmask.models.transformer import AttentionInputs, PlainOps, Rotation

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Triton's interpreter has no libdevice, and cuts float32 to bfloat16 instead of rounding it."""

_GATE_BLOCK = 2048
_PAIRS = 1024
"""Rotated pairs per program."""
_TILE = 64
"""Queries, and keys, that one program of the read-out kernel handles."""
_PARTS = 4
"""Most groups in which the heads of a layer are summed in parallel, because one row fills few GPU cores."""
_SUMS_AT_ONCE = 1 << 26
"""Most partial sums that the read-out kernel holds in memory at a time."""


@triton.jit
def _round_to_dtype(x, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """Round float32 to the nearest number of `dtype`, ties to even."""
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
    """Add the residual to one row of x in place, and write the RMSNorm of the sum."""
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    # 64 bits: offsets of a large batch pass 2**31.
    start = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    x = tl.load(x_ptr + start + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total = x + tl.load(delta_ptr + start + at, mask=inside, other=0.0).to(tl.float32)
        # The norm reads the sum as it is stored: of the unrounded one it would be another norm than the plain path's.
        kept = _round_to_dtype(total, dtype)
        tl.store(x_ptr + start + at, kept, mask=inside)
        x = kept.to(tl.float32)
    mean = tl.reduce(x * x, 0, tl.standard._sum_combine) * (1.0 / WIDTH)
    scaled = _round_to_dtype(x * tl.rsqrt(mean + EPS), dtype).to(tl.float32)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed_ptr + start + at, _round_to_dtype(weight * scaled, dtype), mask=inside)


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
    """Apply rotary angles to some heads of one slot, in place."""
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
    # Each product and sum is rounded on its own, as by torch's operations; a fused multiply-add would not be.
    new_left = _round_to_dtype(left * cos, inner).to(tl.float32) - _round_to_dtype(right * sin, inner).to(tl.float32)
    new_right = _round_to_dtype(right * cos, inner).to(tl.float32) + _round_to_dtype(left * sin, inner).to(tl.float32)
    tl.store(place, _round_to_dtype(_round_to_dtype(new_left, inner).to(tl.float32), dtype), mask=inside)
    tl.store(place + HALF, _round_to_dtype(_round_to_dtype(new_right, inner).to(tl.float32), dtype), mask=inside)


@triton.jit
def _gate(  # type: ignore[no-untyped-def]
    gate_ptr, up_ptr, out_ptr, STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr
):
    """Compute silu(gate) * up for part of one row."""
    dtype: tl.constexpr = gate_ptr.dtype.element_ty
    row = (tl.program_id(0) // CHUNKS).to(tl.int64)
    at = (tl.program_id(0) % CHUNKS) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    gate = tl.load(gate_ptr + row * STRIDE + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * STRIDE + at, mask=inside, other=0.0).to(tl.float32)
    # libdevice's exp and a correctly rounded division have torch's bits; Triton's fast ones do not.
    if INTERPRETED:
        decay = tl.exp(-gate)
    else:
        decay = libdevice.exp(-gate)
    opened = _round_to_dtype(tl.math.div_rn(gate, 1.0 + decay), dtype).to(tl.float32)
    tl.store(out_ptr + row * WIDTH + at, _round_to_dtype(opened * up, dtype), mask=inside)


class FusedOps(PlainOps):
    """The operations between a layer's matrix products, as one Triton kernel each.

    Kernels have no gradients: where one is asked for, the plain operations run.
    """

    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if x.requires_grad:
            return super().add_norm(x, delta, weight, eps)
        width = x.shape[-1]
        x, normed = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
        added = x if delta is None else delta.contiguous()
        block = triton.next_power_of_2(width)
        with _make_device_current(x):
            for grid in _launch_grid(x.numel() // width):
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
            return super().rotate(q, k, v, rotation, head_dim)
        if _follows_in_memory(q, k):
            _rotate_heads(q, (q.shape[-1] + k.shape[-1]) // head_dim, rotation, head_dim)
        else:
            _rotate_heads(q, q.shape[-1] // head_dim, rotation, head_dim)
            _rotate_heads(k, k.shape[-1] // head_dim, rotation, head_dim)
        by_head = tuple(part.unflatten(-1, (-1, head_dim)).transpose(1, 2) for part in (q, k, v))
        return by_head[0], by_head[1], by_head[2]

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        if gate.requires_grad:
            return super().gate(gate, up)
        width, stride = gate.shape[-1], gate.stride(-2)
        assert _rows_are_evenly_spaced(gate), "rows at equal distances"
        assert gate.stride() == up.stride(), "two halves of one product"
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        block = min(_GATE_BLOCK, triton.next_power_of_2(width))
        chunks = triton.cdiv(width, block)
        with _make_device_current(gate):
            for grid in _launch_grid(gate.numel() // width * chunks):
                _gate[grid](
                    gate, up, out, STRIDE=stride, WIDTH=width, BLOCK=block, CHUNKS=chunks, enable_fp_fusion=False
                )
        return out


def _rotate_heads(x: Tensor, heads: int, rotation: Rotation, head_dim: int) -> None:
    """Apply the rotary angles to the first `heads` heads of every slot, in place, from the first element of `x` on."""
    assert _rows_are_evenly_spaced(x), "slots at equal distances"
    half = head_dim // 2
    half_block = triton.next_power_of_2(half)
    head_block = min(triton.next_power_of_2(heads), max(1, _PAIRS // half_block))
    chunks = triton.cdiv(heads, head_block)
    cos, sin = rotation.cos_B1NF.contiguous(), rotation.sin_B1NF.contiguous()
    with _make_device_current(x):
        for grid in _launch_grid(x.numel() // x.shape[-1] * chunks):
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


def _follows_in_memory(q: Tensor, k: Tensor) -> bool:
    """Tell whether k lies right behind q in memory, so that one kernel launch can rotate both."""
    return q.stride() == k.stride() and k.data_ptr() == q.data_ptr() + q.shape[-1] * q.element_size()


def _rows_are_evenly_spaced(x: Tensor) -> bool:
    """Tell whether rows lie at equal distances in memory, as the kernels assume."""
    return x.stride(-1) == 1 and all(
        x.shape[axis] == 1 or x.stride(axis) == x.stride(axis + 1) * x.shape[axis + 1] for axis in range(x.dim() - 2)
    )


def _launch_grid(programs: int) -> Iterator[tuple[int]]:
    """Yield the grid for a number of programs; yield nothing for 0, because an empty grid is an error."""
    if programs:
        yield (programs,)


def _make_device_current(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which the tensor's device is current, because Triton launches there."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


@triton.jit
def _sum_heads(  # type: ignore[no-untyped-def]
    q_ptr,
    k_ptr,
    lse_ptr,
    bias_ptr,
    out_ptr,
    q_row,
    q_head,
    q_slot,
    k_row,
    k_head,
    k_slot,
    bias_row,
    bias_slot,
    slots,
    scale,
    HEADS: tl.constexpr,
    PARTS: tl.constexpr,
    SHARED: tl.constexpr,
    WIDTH: tl.constexpr,
    FIRST: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum the attention probabilities of a group of heads, for one tile of queries and keys of one row."""
    sum_at = tl.program_id(0).to(tl.int64)
    row, part = sum_at // PARTS, sum_at % PARTS
    query, key = tl.program_id(1) * TILE + tl.arange(0, TILE), tl.program_id(2) * TILE + tl.arange(0, TILE)
    feature = tl.arange(0, WIDTH)
    read, seen = query < slots, key < slots
    inside = read[:, None] & seen[None, :]
    q_at = q_ptr + row * q_row + query[:, None] * q_slot + feature[None, :]
    k_at = k_ptr + row * k_row + key[None, :] * k_slot + feature[:, None]
    lse_at = lse_ptr + row * HEADS * slots + query
    bias = tl.load(bias_ptr + row * bias_row + query[:, None] * bias_slot + key[None, :], mask=inside, other=0.0)
    bias = bias.to(tl.float32)
    total = tl.full((TILE, TILE), 0.0, tl.float32)
    for number in range(HEADS // PARTS):
        head = part * (HEADS // PARTS) + number
        q = tl.load(q_at + head * q_head, mask=read[:, None], other=0.0)
        k = tl.load(k_at + head // SHARED * k_head, mask=seen[None, :], other=0.0)
        lse = tl.load(lse_at + head * slots, mask=read, other=0.0).to(tl.float32)
        # The pass has computed the log-sum-exp, so that no second sweep over the keys is needed to normalise.
        total += tl.exp(tl.dot(q, k) * scale - lse[:, None] + bias)
    out_at = out_ptr + (sum_at * slots + query[:, None]) * slots + key[None, :]
    # The buffer holds whatever was in memory before the first layer.
    if not FIRST:
        total += tl.load(out_at, mask=inside, other=0.0)
    tl.store(out_at, total, mask=inside)


def supports_readout(watched: AttentionInputs) -> bool:
    """Tell whether the read-out kernel can compute these heads: half precision, and a width that a tile can have."""
    width = watched.q_BMNF.shape[-1]
    return watched.q_BMNF.dtype in (torch.bfloat16, torch.float16) and width >= 16 and width & (width - 1) == 0


def fused_mean_attention(watched: Sequence[AttentionInputs], bias: Tensor) -> Tensor:
    """Compute the mean attention probability over layers and heads, (B, N, N), in float32."""
    batch, heads, slots, _ = watched[0].q_BMNF.shape
    parts = math.gcd(heads, _PARTS)
    # Sums of many rows take much memory, so some rows are computed at a time; a row's sums are the same alone.
    rows = max(1, _SUMS_AT_ONCE // (parts * slots * slots))
    means = []
    for start in range(0, batch, rows):
        sums = _sum_attention(watched, bias, slice(start, start + rows), parts)
        means.append(sums / (heads * len(watched)))
    return means[0] if len(means) == 1 else torch.cat(means)


def _sum_attention(watched: Sequence[AttentionInputs], bias: Tensor, rows: slice, parts: int) -> Tensor:
    """Sum the attention probabilities of some rows over layers and heads, in a fixed order."""
    bias = bias[rows]
    batch, heads, slots, width = watched[0].q_BMNF[rows].shape
    sum_BPNN = torch.empty(batch, parts, slots, slots, dtype=torch.float32, device=bias.device)
    tiles = -(-slots // _TILE)
    # The bias is (B, 1, queries or 1, keys): a stride of 0 reads its one line for all queries.
    bias_slot = bias.stride(2) if bias.shape[2] > 1 else 0
    with torch.cuda.device_of(sum_BPNN):
        for number, layer in enumerate(watched):
            q, k = (x if x.stride(-1) == 1 else x.contiguous() for x in (layer.q_BMNF[rows], layer.k_BGNF[rows]))
            _sum_heads[(batch * parts, tiles, tiles)](
                *(q, k, layer.lse_BMN[rows].contiguous(), bias, sum_BPNN),
                *(*q.stride()[:3], *k.stride()[:3], bias.stride(0), bias_slot, slots, width**-0.5),
                HEADS=heads,
                PARTS=parts,
                SHARED=heads // k.shape[1],
                WIDTH=width,
                FIRST=number == 0,
                TILE=_TILE,
            )
    return reduce(torch.add, sum_BPNN.unbind(1))
