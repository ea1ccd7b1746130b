"""The statistics of one step in one pass over the vocabulary.

The plain path of `core.fused`, which runs kernels with the same answers where it can; nothing else reads logits. It
works through chunks of packed rows that stay in cache, so peak memory is the logits plus a few scratch rows, and each
row's numbers are a bitwise function of its own logits.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from unmask.base.errors import ConfigError
from unmask.core.prediction import Edit, Posterior

_CHUNK = 1 << 20
"""Scratch elements per chunk on the CPU: 4 MiB in float32."""
_GPU_CHUNK, _GPU_ROWS = 1 << 25, 1 << 11
"""The same elsewhere, and the most rows, since every chunk there has as many: few launches for many rows of a large
vocabulary, little waste on few rows of a small one."""
_BLOCK = 512
"""Tokens per block in the search for the largest."""
_FEW = 1 << 14
"""Elements of a chunk on the CPU up to which whole rows are searched instead."""


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from a row. Temperature 0 takes the first largest."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    uniform_RD: Tensor | None = None
    """One uniform per row and draw: inverse CDF."""
    uniform_vocab: Callable[[Tensor], Tensor] | None = None
    """One uniform per entry and draw of the given packed rows: Gumbel, as LLaDA's loop does it."""
    bits_RD: Tensor | None = None
    """The counters that `uniform_vocab` makes its uniforms of (`Noise.bits`), where it is made of such."""

    @property
    def filters(self) -> bool:
        return self.top_p < 1.0 or self.top_k > 0


@dataclass(frozen=True)
class PassOptions:
    """What is wanted of the pass."""

    top_k: int = 2
    edit: Edit = Edit()
    draw: Sampling = Sampling()
    filtered: bool = False
    untrusted: tuple[int, ...] = ()
    """Tokens whose proposals get confidence 0; the others are renormalised without them."""
    given_R: Tensor | None = None
    previous: Posterior | None = None
    previous_R: Tensor | None = None
    """Packed row of `previous` for each row, -1 where there is none."""


@dataclass(frozen=True)
class Pass:
    """The pass's answers, one entry per packed row."""

    top_RK: Tensor
    p_RK: Tensor
    entropy_R: Tensor
    logz_R: Tensor
    token_RD: Tensor
    confidence_RD: Tensor
    proposed_R: Tensor
    filtered_top_RK: Tensor
    filtered_p_RK: Tensor
    filtered_entropy_R: Tensor
    given_R: Tensor
    drift_R: Tensor
    displacement_R: Tensor


def one_pass(logits_RV: Tensor, request: PassOptions) -> Pass:
    """Statistics of every packed row."""
    rows, vocab = logits_RV.shape
    on_cpu = logits_RV.device.type == "cpu"
    size = max(2, _CHUNK // vocab) if on_cpu else max(2, min(_GPU_CHUNK // vocab, _GPU_ROWS))
    # Kernels choose how to reduce by shape, and with it their rounding. On the CPU only a single long row is split
    # over threads; on a GPU every shape differs, so all chunks there have one.
    least = 2 if on_cpu else size
    scratch = _Scratch(max(least, min(size, rows)), logits_RV)
    parts = []
    for start in range(0, max(rows, 1), size):
        count = min(size, rows - start)
        row_C = torch.arange(start, start + count, device=logits_RV.device)
        spare = max(0, least - count) if count else 0
        if spare:
            row_C = torch.cat((row_C, row_C[:1].expand(spare)))
        part = _chunk(logits_RV, row_C, request, scratch)
        parts.append(_mapped(lambda x_C, count=count: x_C[:count], part) if spare else part)
    return parts[0] if len(parts) == 1 else _mapped(lambda *x_C: torch.cat(x_C), *parts)


def _mapped(change: Callable[..., Tensor], *parts: Pass) -> Pass:
    """One answer out of several, name by name; names that share a tensor go on sharing one."""
    made: dict[int, Tensor] = {}
    values = {}
    for field in fields(Pass):
        tensors = [getattr(part, field.name) for part in parts]
        key = id(tensors[0])
        if key not in made:
            made[key] = change(*tensors)
        values[field.name] = made[key]
    return Pass(**values)


class _Scratch:
    """Buffers that all chunks share: fresh memory for every product would cost more than the product."""

    def __init__(self, rows: int, logits_RV: Tensor):
        self.dtype = torch.promote_types(logits_RV.dtype, torch.float32)
        self._shape, self._device = (rows, logits_RV.shape[1]), logits_RV.device
        self._made: dict[str, Tensor] = {}

    def get(self, name: str, rows: int, dtype: torch.dtype | None = None) -> Tensor:
        """The first rows of the buffer of that name, whatever they hold."""
        if name not in self._made:
            self._made[name] = torch.empty(self._shape, dtype=dtype or self.dtype, device=self._device)
        return self._made[name][:rows]


def _chunk(logits_RV: Tensor, row_C: Tensor, request: PassOptions, scratch: _Scratch) -> Pass:
    z_CV = _rows(logits_RV, row_C, scratch.get("z", len(row_C)))
    request.edit.apply_(z_CV)
    draw = request.draw
    top = _top(z_CV, request.top_k)
    tempered_CV = _temper(z_CV, request, scratch)
    token_CD = _draw_tokens(z_CV, tempered_CV, top.index_CK, draw, row_C, scratch)
    # The first largest: its numbers are among those of the largest already.
    greedy = token_CD is top.index_CK
    token_CD = token_CD[:, :1] if greedy else token_CD
    token_z_CD = top.z_CK[:, :1] if greedy else z_CV.gather(1, token_CD)
    given_z_C = None if request.given_R is None else _gather_given(z_CV, request.given_R[row_C])
    trusted = _normaliser_without(z_CV, request.untrusted) if request.untrusted else None

    filtered = None
    if request.filtered and tempered_CV is not None:
        filtered_top = _top(tempered_CV, request.top_k)
        filtered = _softmax_stats(tempered_CV, filtered_top, token_CD, scratch)

    peak_C = top.z_CK[:, 0]
    clean = _softmax_stats(z_CV, top, None if greedy else token_CD, scratch)
    if filtered is None:
        filtered = clean
    drift_C, displacement_C = _divergence_(clean, request, row_C, scratch)
    # Peak first: adding it to the log of the sum would round large logits, and confidence is compared with p_RK.
    if greedy:
        confidence_CD = clean.p_CK[:, :1]
    else:
        confidence_CD = (token_z_CD - peak_C[:, None] - clean.log_sum_C[:, None]).exp()
    if trusted is not None:
        trusted_peak_C1, trusted_log_sum_C1 = trusted
        confidence_CD = (token_z_CD - trusted_peak_C1 - trusted_log_sum_C1).exp()
        for token in request.untrusted:
            confidence_CD = torch.where(token_CD == token, 0.0, confidence_CD)
    return Pass(
        top_RK=top.index_CK,
        p_RK=clean.p_CK,
        entropy_R=clean.entropy_C,
        logz_R=clean.log_sum_C + peak_C,
        token_RD=token_CD,
        confidence_RD=confidence_CD,
        proposed_R=filtered.token_p_C,
        filtered_top_RK=filtered.index_CK,
        filtered_p_RK=filtered.p_CK,
        filtered_entropy_R=filtered.entropy_C,
        given_R=torch.zeros_like(peak_C) if given_z_C is None else (given_z_C - peak_C - clean.log_sum_C).exp(),
        drift_R=drift_C,
        displacement_R=displacement_C,
    )


@dataclass(frozen=True)
class _Top:
    z_CK: Tensor
    index_CK: Tensor


def _rows(logits_RV: Tensor, row_C: Tensor, out_CV: Tensor) -> Tensor:
    """Copy the rows to a buffer of at least float32."""
    if logits_RV.dtype == out_CV.dtype:
        return torch.index_select(logits_RV, 0, row_C, out=out_CV)
    return out_CV.copy_(logits_RV[row_C])


def _top(z_CV: Tensor, k: int) -> _Top:
    """The k largest, ties to the lower token, since top-k promises no order. Restores z.

    One maximum per block of the vocabulary, then a search in the best block only: a maximum with its index over the
    whole row takes many times as long. Where fewer than k tokens are above -inf, the list repeats tokens, at -inf.
    """
    vocab = z_CV.shape[1]
    if z_CV.numel() <= _FEW and z_CV.device.type == "cpu":
        return _top_of_few(z_CV, k)
    whole = vocab - vocab % _BLOCK
    blocks = [z_CV[:, :whole].unflatten(1, (-1, _BLOCK)).amax(-1)] if whole else []
    if whole < vocab:
        blocks.append(z_CV[:, whole:].amax(-1, keepdim=True))
    peaks = torch.cat(blocks, -1)
    offset = torch.arange(_BLOCK, device=z_CV.device)
    values: list[Tensor] = []
    indices: list[Tensor] = []
    for _ in range(min(k, vocab)):
        block_C1 = peaks.max(-1, keepdim=True).indices
        # Past the end the last token is repeated; its first place in the block is its own.
        tokens = (block_C1 * _BLOCK + offset).clamp(max=vocab - 1)
        inside = z_CV.gather(1, tokens)
        value_C1, place_C1 = inside.max(-1, keepdim=True)
        index_C1 = tokens.gather(1, place_C1)
        values.append(value_C1)
        indices.append(index_C1)
        z_CV.scatter_(1, index_C1, float("-inf"))
        rest_C1 = inside.masked_fill_(tokens == index_C1, float("-inf")).amax(-1, keepdim=True)
        peaks.scatter_(1, block_C1, rest_C1)
    # Last first: a token that was repeated must get its own value back, not -inf.
    for value_C1, index_C1 in zip(reversed(values), reversed(indices), strict=True):
        z_CV.scatter_(1, index_C1, value_C1)
    return _Top(torch.cat(values, -1), torch.cat(indices, -1))


def _top_of_few(z_CV: Tensor, k: int) -> _Top:
    """The same with a search of whole rows: fewer operations, where each costs more than what it reads."""
    found: list[tuple[Tensor, Tensor]] = []
    for _ in range(min(k, z_CV.shape[1])):
        value_C1, index_C1 = z_CV.max(-1, keepdim=True)
        found.append((value_C1, index_C1))
        z_CV.scatter_(1, index_C1, float("-inf"))
    for value_C1, index_C1 in reversed(found):
        z_CV.scatter_(1, index_C1, value_C1)
    return _Top(torch.cat([value for value, _ in found], -1), torch.cat([index for _, index in found], -1))


@dataclass(frozen=True)
class _Softmax:
    index_CK: Tensor
    p_CK: Tensor
    entropy_C: Tensor
    log_sum_C: Tensor
    """log of the sum of exp(z - max)."""
    token_p_C: Tensor
    log_p_CV: Tensor
    exp_CV: Tensor
    """exp(z - max)."""


def _softmax_stats(z_CV: Tensor, top: _Top, token_CD: Tensor | None, scratch: _Scratch) -> _Softmax:
    """Normalise in place: z becomes log p. No token is the most probable one."""
    z_CV.sub_(top.z_CK[:, :1])
    exp_CV = torch.exp(z_CV, out=scratch.get("exp", len(z_CV)))
    log_sum_C = exp_CV.sum(-1).log()
    # A barred token has z = -inf and weight 0; the clamp makes their product 0 instead of NaN.
    z_CV.sub_(log_sum_C[:, None]).clamp_(min=-1e4)
    weighted_CV = torch.mul(exp_CV, z_CV, out=scratch.get("work", len(z_CV)))
    entropy_C = -(weighted_CV.sum(-1) / log_sum_C.exp())
    p_CK = (top.z_CK - top.z_CK[:, :1] - log_sum_C[:, None]).exp()
    token_p_C = p_CK[:, 0] if token_CD is None else z_CV.gather(1, token_CD[:, :1]).squeeze(1).exp()
    return _Softmax(top.index_CK, p_CK, entropy_C.clamp(min=0), log_sum_C, token_p_C, z_CV, exp_CV)


def _temper(z_CV: Tensor, request: PassOptions, scratch: _Scratch) -> Tensor | None:
    """The tempered, filtered logits that tokens are drawn from; None where that is z itself or nobody asks."""
    draw = request.draw
    if draw.temperature == 0 and not (request.filtered and draw.filters):
        return None
    tempered_CV = scratch.get("tempered", len(z_CV))
    # A tensor of the device: by a number, a GPU multiplies with its reciprocal, and other tokens would be drawn there.
    temperature = torch.full(
        (), draw.temperature if draw.temperature > 0 else 1.0, dtype=z_CV.dtype, device=z_CV.device
    )
    torch.div(z_CV, temperature, out=tempered_CV)
    return filter_(tempered_CV, draw)


def _draw_tokens(
    z_CV: Tensor, tempered_CV: Tensor | None, top_CK: Tensor, draw: Sampling, row_C: Tensor, scratch: _Scratch
) -> Tensor:
    """One token per uniform; at temperature 0 the largest, as they came."""
    if draw.temperature == 0 or tempered_CV is None:
        return top_CK
    if draw.uniform_vocab is not None:
        # exp(z) / (-ln U)^T in logarithms: same argmax, no overflow.
        noise_CVD = draw.uniform_vocab(row_C).log_().neg_().log_()
        return noise_CVD.mul_(-draw.temperature).add_(z_CV.unsqueeze(-1)).argmax(1)
    if draw.uniform_RD is None:
        raise ConfigError("temperature is above 0 without uniforms; allowed: uniform_RD or uniform_vocab; pass one")
    # The same logits as in the filtered statistics, so that no drawn token has probability 0 there.
    mass_CV = scratch.get("mass", len(z_CV), torch.float64).copy_(tempered_CV)
    total_CV = mass_CV.sub_(mass_CV.amax(-1, keepdim=True)).exp_().cumsum_(-1)
    # First index whose cumulative mass exceeds u; scaled so that rounding can never step past the end.
    target_CD = draw.uniform_RD[row_C] * total_CV[:, -1:]
    return torch.searchsorted(total_CV, target_CD, right=True).clamp(max=z_CV.shape[1] - 1)


def filter_(z_CV: Tensor, draw: Sampling) -> Tensor:
    """Nucleus, then top-k, in Dream's order: the token that crosses `top_p` stays, ties at rank k stay."""
    if draw.top_p < 1.0:
        sorted_CV, order_CV = z_CV.sort(dim=-1, descending=True, stable=True)
        before_CV = sorted_CV.softmax(-1).cumsum(-1).roll(1, -1)
        before_CV[:, 0].zero_()
        sorted_CV.masked_fill_(before_CV > draw.top_p, float("-inf"))
        z_CV.scatter_(1, order_CV, sorted_CV)
    if 0 < draw.top_k < z_CV.shape[1]:
        z_CV.masked_fill_(z_CV < z_CV.topk(draw.top_k).values[:, -1:], float("-inf"))
    return z_CV


def _normaliser_without(z_CV: Tensor, tokens: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The largest logit of the other tokens, and the log of the sum of exp(z - that): apart, as for the clean p."""
    kept_CV = z_CV.clone()
    for token in tokens:
        kept_CV[:, token].fill_(float("-inf"))
    peak_C1 = kept_CV.amax(-1, keepdim=True)
    return peak_C1, kept_CV.sub_(peak_C1).exp_().sum(-1, keepdim=True).log()


def _gather_given(z_CV: Tensor, token_C: Tensor) -> Tensor:
    z_C = z_CV.gather(1, token_C.clamp(min=0)[:, None]).squeeze(1)
    return torch.where(token_C >= 0, z_C, float("-inf"))


def _divergence_(new: _Softmax, request: PassOptions, row_C: Tensor, scratch: _Scratch) -> tuple[Tensor, Tensor]:
    """KL(new || old) and KL(old || new), NaN where the slot had no posterior one step ago. Overwrites log p."""
    unknown_C = torch.full_like(new.log_sum_C, float("nan"))
    if request.previous is None or request.previous_R is None or not len(request.previous.logz_R):
        return unknown_C, unknown_C
    old_C = request.previous_R[row_C]
    known_C = old_C >= 0
    previous, safe_C = request.previous, old_C.clamp(min=0)
    log_q_CV = previous.normalise_(_rows(previous.logits_RV, safe_C, scratch.get("old", len(row_C))), safe_C)
    gap_CV = new.log_p_CV.sub_(log_q_CV)
    weighted_CV = torch.mul(new.exp_CV, gap_CV, out=scratch.get("work", len(row_C)))
    drift_C = (weighted_CV.sum(-1) / new.log_sum_C.exp()).clamp(min=0)
    displacement_C = -log_q_CV.exp_().mul_(gap_CV).sum(-1).clamp(max=0)
    return torch.where(known_C, drift_C, unknown_C), torch.where(known_C, displacement_C, unknown_C)
