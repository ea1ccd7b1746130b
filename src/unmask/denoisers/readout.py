"""The attention read-out: mean attention of chosen layers, recomputed from q and k beside fused attention."""

from collections.abc import Iterable

import torch
from torch import Tensor

from unmask.denoisers.transformer import Watched

_SCORES = 1 << 26
"""Score elements held at a time: 256 MiB in float32."""


def default_layers(layers: int) -> tuple[int, ...]:
    """Four layers spread over the upper half, where heads attend to content more than to position."""
    upper = range(layers // 2, layers)
    return tuple(sorted({upper[(2 * i + 1) * len(upper) // 8] for i in range(4)}))


def mean_attention(
    watched: Iterable[Watched],
    bias: Tensor | None = None,
    *,
    rows_BM: Tensor | None = None,
    columns_BK: Tensor | None = None,
    heads: Iterable[int] | None = None,
) -> Tensor:
    """Mean probability over layers and heads with which query rows attend to key columns: (B, M, K), float32.

    P = exp(q.k / sqrt(d) + bias - lse), so columns nobody asked for cost nothing. Rows and columns default to all
    slots. Scores are float32: rounded to bfloat16 the rows would not sum to one.
    """
    layers = list(watched)
    total = sum(_layer(w, bias, rows_BM, columns_BK, heads) for w in layers)
    assert isinstance(total, Tensor), "watch at least one layer"
    return total / len(layers)


def _layer(
    watched: Watched,
    bias: Tensor | None,
    rows_BM: Tensor | None,
    columns_BK: Tensor | None,
    heads: Iterable[int] | None,
) -> Tensor:
    q_BHMD = _take(watched.q_BHND, rows_BM)
    k_BGKD = _take(watched.k_BGND, columns_BK)
    lse_BHM = _take(watched.lse_BHN[..., None], rows_BM)[..., 0]
    bias = None if bias is None else _take_bias(bias, watched, rows_BM, columns_BK)
    chosen = list(range(_h(q_BHMD)) if heads is None else heads)
    group = _h(q_BHMD) // _h(k_BGKD)
    batch, _, m, d = q_BHMD.shape
    at_once = max(1, _SCORES // (batch * m * k_BGKD.shape[2]))
    out_BMK = q_BHMD.new_zeros(batch, m, k_BGKD.shape[2], dtype=torch.float32)
    for start in range(0, len(chosen), at_once):
        some = chosen[start : start + at_once]
        q = q_BHMD[:, some].float()
        k = k_BGKD[:, [h // group for h in some]].float()
        score = q @ k.transpose(-1, -2) * d**-0.5
        score = score if bias is None else score + bias
        out_BMK += (score - lse_BHM[:, some, :, None].float()).exp().sum(1)
    return out_BMK / len(chosen)


def _take(x_BHND: Tensor, index_BM: Tensor | None) -> Tensor:
    if index_BM is None:
        return x_BHND
    return x_BHND.gather(2, index_BM[:, None, :, None].expand(-1, _h(x_BHND), -1, x_BHND.shape[-1]))


def _take_bias(bias: Tensor, watched: Watched, rows_BM: Tensor | None, columns_BK: Tensor | None) -> Tensor:
    """(B, 1, queries or 1, keys), cut to the rows and columns."""
    queries, keys = watched.q_BHND.shape[2], watched.k_BGND.shape[2]
    if rows_BM is not None and bias.shape[2] != 1:
        bias = bias.expand(-1, -1, queries, -1).gather(2, rows_BM[:, None, :, None].expand(-1, 1, -1, keys))
    if columns_BK is not None:
        bias = bias.gather(3, columns_BK[:, None, None, :].expand(-1, 1, bias.shape[2], -1))
    return bias.float()


def _h(x_BHND: Tensor) -> int:
    return x_BHND.shape[1]
