"""The attention read-out: mean attention of chosen layers, recomputed from q and k beside fused attention."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.models.kernels import readout_kernel
from unmask.models.transformer import PLAIN, AttentionInputs, KVStore, Transformer

_SCORES = 1 << 26
"""Score elements held at a time: 256 MiB in float32."""


def default_layers(layers: int) -> tuple[int, ...]:
    """Four layers spread over the upper half, where heads attend to content more than to position."""
    upper = range(layers // 2, layers)
    return tuple(sorted({upper[(2 * i + 1) * len(upper) // 8] for i in range(4)}))


class Output(NamedTuple):
    """What a pass through the layers gives."""

    x_BNH: Tensor
    """The last hidden states, before the final norm; of kept slots alone as one row."""
    attention_BNN: Tensor | None
    """The read-out of the watched layers; None without any."""


def run(
    model: Transformer,
    tokens_BN: Tensor,
    position_BN: Tensor,
    bias: Tensor,
    keep_R: Tensor | None = None,
    *,
    watch: Sequence[int] = (),
    memory: KVStore | None = None,
) -> Output:
    """The layers and the read-out of some of them."""
    hidden = model(tokens_BN, position_BN, bias, keep_R, watch=watch, memory=memory)
    return Output(hidden.x_BNH, _read_out(model, hidden.watched, bias) if watch else None)


def _read_out(model: Transformer, watched: Sequence[AttentionInputs], bias: Tensor) -> Tensor:
    """Of all slots; by a kernel where the network's layers run on kernels, too."""
    if model.norm.ops is PLAIN or not bias.is_cuda:
        return mean_attention(watched, bias)
    kernel = readout_kernel()
    fused_BNN: Tensor | None = kernel.mean_attention(watched, bias) if all(map(kernel.takes, watched)) else None
    return mean_attention(watched, bias) if fused_BNN is None else fused_BNN


def mean_attention(
    watched: Iterable[AttentionInputs],
    bias: Tensor | None = None,
    *,
    rows_BQ: Tensor | None = None,
    columns_BS: Tensor | None = None,
    heads: Iterable[int] | None = None,
) -> Tensor:
    """Mean probability over layers and heads with which query rows attend to key columns: (B, Q, S), float32.

    P = exp(q.k / sqrt(d) + bias - lse), so columns nobody asked for cost nothing. Rows and columns default to all
    slots. Scores are float32: rounded to bfloat16 the rows would not sum to one.
    """
    layers = list(watched)
    total = sum(_layer(w, bias, rows_BQ, columns_BS, heads) for w in layers)
    assert isinstance(total, Tensor), "watch at least one layer"
    return total / len(layers)


def _layer(
    watched: AttentionInputs,
    bias: Tensor | None,
    rows_BQ: Tensor | None,
    columns_BS: Tensor | None,
    heads: Iterable[int] | None,
) -> Tensor:
    q_BMQF = _take(watched.q_BMNF, rows_BQ)
    k_BGSF = _take(watched.k_BGNF, columns_BS)
    lse_BMQ = _take(watched.lse_BMN[..., None], rows_BQ)[..., 0]
    bias = None if bias is None else _take_bias(bias, watched, rows_BQ, columns_BS)
    if heads is not None:
        chosen = list(heads)
        q_BMQF, lse_BMQ = q_BMQF[:, chosen], lse_BMQ[:, chosen]
        k_BGSF = k_BGSF[:, [h // (_h(watched.q_BMNF) // _h(watched.k_BGNF)) for h in chosen]]
    k_BMSF = k_BGSF.repeat_interleave(_h(q_BMQF) // _h(k_BGSF), 1) if _h(k_BGSF) < _h(q_BMQF) else k_BGSF
    batch, count, m, d = q_BMQF.shape
    # Cut by rows: were heads cut by the size of the batch, so would be the order in which they are summed.
    at_once = max(1, _SCORES // (count * m * k_BMSF.shape[2]))
    parts = []
    for rows in (slice(start, start + at_once) for start in range(0, batch, at_once)):
        score = q_BMQF[rows].float().mul(d**-0.5) @ k_BMSF[rows].float().transpose(-1, -2)
        score.sub_(lse_BMQ[rows, ..., None].float())
        if bias is not None:
            score.add_(bias[rows])
        parts.append(score.exp_().sum(1))
    return torch.cat(parts) / count


def _take(x_BMNF: Tensor, index_BS: Tensor | None) -> Tensor:
    if index_BS is None:
        return x_BMNF
    return x_BMNF.gather(2, index_BS[:, None, :, None].expand(-1, _h(x_BMNF), -1, x_BMNF.shape[-1]))


def _take_bias(bias: Tensor, watched: AttentionInputs, rows_BQ: Tensor | None, columns_BS: Tensor | None) -> Tensor:
    """(B, 1, queries or 1, keys), cut to the rows and columns."""
    queries, keys = watched.q_BMNF.shape[2], watched.k_BGNF.shape[2]
    if rows_BQ is not None and bias.shape[2] != 1:
        bias = bias.expand(-1, -1, queries, -1).gather(2, rows_BQ[:, None, :, None].expand(-1, 1, -1, keys))
    if columns_BS is not None:
        bias = bias.gather(3, columns_BS[:, None, None, :].expand(-1, 1, bias.shape[2], -1))
    return bias.float()


def _h(x_BMNF: Tensor) -> int:
    return x_BMNF.shape[1]
