"""Mean attention of chosen layers, computed from queries and keys beside fused attention, which never holds it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unmask.models.transformer import PLAIN, AttentionInputs, Transformer

_SCORES_AT_ONCE = 1 << 26
"""Most attention scores that are held in memory at a time: 256 MiB in float32."""


def read_attention(model: Transformer, watched: Sequence[AttentionInputs], bias: Tensor) -> Tensor:
    """Compute the mean attention of a pass, with a Triton kernel where the model's layers run on Triton kernels."""
    if model.ops is not PLAIN and bias.is_cuda:
        from unmask.models.triton_kernels import fused_mean_attention, supports_readout

        if all(map(supports_readout, watched)):
            return fused_mean_attention(watched, bias)
    return mean_attention(watched, bias)


def mean_attention(watched: Sequence[AttentionInputs], bias: Tensor | None = None) -> Tensor:
    """Compute the mean probability over layers and heads of each query and key: (B, N, N), float32.

    P = exp(q.k / sqrt(d) + bias - lse). Scores are float32: rounded to bfloat16, rows would not sum to one.
    """
    total = sum(_mean_over_heads(layer, bias) for layer in watched)
    assert isinstance(total, Tensor), "watch at least one layer"
    return total / len(watched)


def _mean_over_heads(layer: AttentionInputs, bias: Tensor | None) -> Tensor:
    """Compute the mean probability over the heads of one layer."""
    batch, heads, queries, width = layer.q_BMNF.shape
    k_BMNF = layer.k_BGNF
    if k_BMNF.shape[1] < heads:
        k_BMNF = k_BMNF.repeat_interleave(heads // k_BMNF.shape[1], 1)
    # Cut by rows: if heads were cut by the size of the batch, that size would set the order in which they are summed.
    at_once = max(1, _SCORES_AT_ONCE // (heads * queries * k_BMNF.shape[2]))
    parts = []
    for start in range(0, batch, at_once):
        rows = slice(start, start + at_once)
        score = layer.q_BMNF[rows].float().mul(width**-0.5) @ k_BMNF[rows].float().transpose(-1, -2)
        score.sub_(layer.lse_BMN[rows, ..., None].float())
        if bias is not None:
            score.add_(bias[rows].float())
        parts.append(score.exp_().sum(1))
    return torch.cat(parts) / heads
