"""The attention read-out in one pass: probabilities of a layer's heads are summed where they are made.

Its oracle is `denoisers.readout.mean_attention` in torch's own operations, which writes every head's scores to memory
several times over. Scores are float32 here too, from the same rounded queries and keys; products and heads are summed
in another order, one that follows from the network alone, so that neither batch size nor neighbours move a bit.
"""

import math
from collections.abc import Sequence
from functools import reduce

import torch
import triton
import triton.language as tl
from torch import Tensor

from unmask.models.transformer import AttentionInputs

_TILE = 64
"""Queries, and keys, of a program."""
_PARTS = 4
"""Parts that a layer's heads are summed in at most, each by programs of its own: one row fills few of a GPU's cores."""
_ROOM = 1 << 26
"""Numbers of such sums that are held at a time."""


@triton.jit
def _layer(  # type: ignore[no-untyped-def]
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
    """Add the probabilities of some of a layer's heads, of some queries and keys of one row."""
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
        total += tl.exp(tl.dot(q, k) * scale - lse[:, None] + bias)
    out_at = out_ptr + (sum_at * slots + query[:, None]) * slots + key[None, :]
    if not FIRST:
        total += tl.load(out_at, mask=inside, other=0.0)
    tl.store(out_at, total, mask=inside)


def takes(watched: AttentionInputs) -> bool:
    """Whether the kernel is made for these heads: half precision, and widths that a tile can have."""
    width = watched.q_BMNF.shape[-1]
    return watched.q_BMNF.dtype in (torch.bfloat16, torch.float16) and width >= 16 and width & (width - 1) == 0


def mean_attention(watched: Sequence[AttentionInputs], bias: Tensor) -> Tensor:
    """Mean probability over layers and heads, of every query and key: (B, N, N), float32."""
    batch, heads, slots, _ = watched[0].q_BMNF.shape
    parts = math.gcd(heads, _PARTS)
    # Some rows at a time where their sums take much memory; a row's are the same alone.
    rows = max(1, _ROOM // (parts * slots * slots))
    means = [_sums(watched, bias, slice(at, at + rows), parts) / (heads * len(watched)) for at in range(0, batch, rows)]
    return means[0] if len(means) == 1 else torch.cat(means)


def _sums(watched: Sequence[AttentionInputs], bias: Tensor, rows: slice, parts: int) -> Tensor:
    """Sums over layers and heads of some rows, the parts added in a fixed order."""
    bias = bias[rows]
    batch, heads, slots, width = watched[0].q_BMNF[rows].shape
    sum_BPNN = torch.empty(batch, parts, slots, slots, dtype=torch.float32, device=bias.device)
    tiles = -(-slots // _TILE)
    # (B, 1, queries or 1, keys): one line of it may stand for all queries.
    bias_slot = bias.stride(2) if bias.shape[2] > 1 else 0
    with torch.cuda.device_of(sum_BPNN):
        for number, layer in enumerate(watched):
            q, k = (x if x.stride(-1) == 1 else x.contiguous() for x in (layer.q_BMNF[rows], layer.k_BGNF[rows]))
            _layer[(batch * parts, tiles, tiles)](
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
