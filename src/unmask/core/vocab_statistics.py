"""One pass over the vocabulary in plain torch: largest tokens, entropy, draws and divergences of every packed row.

This is the oracle of the Triton kernels in `vocab_statistics_triton`; `vocab_statistics_choice` picks between the two.
Nothing else in the package reads logits. The pass works through chunks of rows, so peak memory is the logits plus a few
rows. The numbers of a row are a bitwise function of its own logits: the rows beside it, the size of the batch and the
number of threads move no bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.base.errors import ConfigError
from unmask.core.prediction import Edit, Posterior

_CHUNK = 1 << 20
"""Elements of a chunk on the CPU: 4 MiB in float32."""
_GPU_CHUNK, _GPU_ROWS = 1 << 25, 1 << 11
"""Most elements and most rows of a chunk on other devices. Every chunk there has the same number of rows, so the limits
keep launches few for many rows of a large vocabulary, and padding small for few rows of a small one."""


@dataclass(frozen=True)
class TokenDraw:
    """How tokens are drawn from each row. Temperature 0 takes the most probable token, ties to the lower one."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    uniform_RD: Tensor | None = None
    """Inverse CDF: one uniform for each row and draw."""
    uniform_vocab: Callable[[Tensor], Tensor] | None = None
    """Gumbel noise, as in LLaDA's loop: maps indices of packed rows to one uniform per row, token and draw, (C, V, D).
    The returned tensor is overwritten."""
    bits_RD: Tensor | None = None
    """Counters (`Noise.bits`) from which `uniform_vocab` derives its uniforms; None for any other source of noise. The
    kernels derive the same uniforms from them, without a table of the vocabulary's size."""

    @property
    def has_filters(self) -> bool:
        return self.top_p < 1.0 or self.top_k > 0


@dataclass(frozen=True)
class StatsRequest:
    """What to compute for each packed row."""

    top_k: int = 2
    """Number of most probable tokens to return."""
    edit: Edit = Edit()
    draw: TokenDraw = TokenDraw()
    filtered: bool = False
    """Compute the filtered statistics too; otherwise they are the clean ones."""
    untrusted: tuple[int, ...] = ()
    """Tokens whose confidence is 0 when they are drawn. The confidence of the others is normalised without them."""
    given_R: Tensor | None = None
    """One token per row whose probability to return; -1 for none."""
    previous: Posterior | None = None
    """Distributions of the last step, for the divergences."""
    previous_R: Tensor | None = None
    """Packed row of `previous` for each row, -1 where there is none."""

    @property
    def has_filtered(self) -> bool:
        """Whether the filtered statistics differ from the clean ones, so that they are computed."""
        return self.filtered and (self.draw.temperature > 0 or self.draw.has_filters)


class VocabStats(NamedTuple):
    """Statistics of packed rows. *Clean* is softmax(z), *filtered* the tempered and filtered distribution."""

    top_RK: Tensor
    """Most probable tokens, ties to the lower one."""
    p_RK: Tensor
    entropy_R: Tensor
    logz_R: Tensor
    """Log of the sum of exp(z): not finite where a row holds NaN, +inf, or no possible token."""
    token_RD: Tensor
    """Drawn tokens."""
    confidence_RD: Tensor
    """Clean probability of the drawn tokens."""
    proposed_R: Tensor
    """Filtered probability of the first drawn token."""
    filtered_top_RK: Tensor
    filtered_p_RK: Tensor
    filtered_entropy_R: Tensor
    given_R: Tensor
    """Clean probability of the given token, 0 for none."""
    drift_R: Tensor
    """KL(new || old), NaN where the row has no previous distribution."""
    displacement_R: Tensor
    """KL(old || new), NaN likewise."""


def vocab_stats(logits_RV: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of every packed row in plain torch, chunk by chunk."""
    rows, vocab = logits_RV.shape
    on_cpu = logits_RV.device.type == "cpu"
    size = max(2, _CHUNK // vocab) if on_cpu else max(2, min(_GPU_CHUNK // vocab, _GPU_ROWS))
    # Torch chooses how to add by the shape, and with it how sums are rounded. On the CPU only a single long row is
    # special (it is split over threads), so two rows are enough. On a GPU every shape may differ, so all chunks there
    # have the same one. Otherwise a row decoded alone would differ from the same row in a batch.
    least = 2 if on_cpu else size
    parts = []
    for start in range(0, max(rows, 1), size):
        row_C = torch.arange(start, min(start + size, rows), device=logits_RV.device)
        count = len(row_C)
        if 0 < count < least:
            row_C = torch.cat((row_C, row_C[:1].expand(least - count)))
        parts.append(VocabStats(*(part_C[:count] for part_C in _chunk_stats(logits_RV, row_C, request))))
    return parts[0] if len(parts) == 1 else VocabStats(*map(torch.cat, zip(*parts, strict=True)))


def _chunk_stats(logits_RV: Tensor, row_C: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of the rows `row_C`."""
    draw, previous, greedy = request.draw, request.previous, request.draw.temperature == 0
    dtype = torch.promote_types(logits_RV.dtype, torch.float32)
    z_CV = request.edit.apply_(logits_RV[row_C].to(dtype))
    top_z_CK, top_CK = _top(z_CV, request.top_k)
    peak_C1 = top_z_CK[:, :1]

    tempered_CV = z_CV
    if not greedy or request.has_filtered:
        # A tensor on the device: a GPU multiplies by the reciprocal of a plain number, which would draw other tokens.
        temperature = torch.full((), draw.temperature or 1.0, dtype=dtype, device=z_CV.device)
        tempered_CV = filter_logits_(z_CV / temperature, draw)
    token_CD = top_CK[:, :1] if greedy else _draw_tokens(z_CV, tempered_CV, draw, row_C)

    log_p_CV, exp_CV, log_sum_C, entropy_C = _normalise(z_CV, peak_C1)

    # The peak is always subtracted first: added to the log of the sum, it would round large logits (2e-6 at 40), and
    # methods compare confidences with the probabilities of the most probable tokens.
    def probability(z_CX: Tensor) -> Tensor:
        return (z_CX - peak_C1 - log_sum_C[:, None]).exp()

    p_CK = probability(top_z_CK)
    confidence_CD = p_CK[:, :1] if greedy else probability(z_CV.gather(1, token_CD))
    if request.untrusted:
        trusted_CV = z_CV.clone()
        for token in request.untrusted:
            # One by one, as numbers: a list would be copied to the device, which no CUDA graph can hold.
            trusted_CV[:, token].fill_(float("-inf"))
        trusted_peak_C1 = trusted_CV.amax(-1, keepdim=True)
        trusted_log_sum_C1 = (trusted_CV - trusted_peak_C1).exp().sum(-1, keepdim=True).log()
        confidence_CD = (z_CV.gather(1, token_CD) - trusted_peak_C1 - trusted_log_sum_C1).exp()
        for token in request.untrusted:
            confidence_CD = torch.where(token_CD == token, 0.0, confidence_CD)

    filtered_top_CK, filtered_p_CK, filtered_entropy_C = top_CK, p_CK, entropy_C
    proposed_C = p_CK[:, 0] if greedy else log_p_CV.gather(1, token_CD[:, :1]).squeeze(1).exp()
    if request.has_filtered:
        filtered_z_CK, filtered_top_CK = _top(tempered_CV, request.top_k)
        filtered_log_p_CV, _, filtered_log_sum_C, filtered_entropy_C = _normalise(tempered_CV, filtered_z_CK[:, :1])
        filtered_p_CK = (filtered_z_CK - filtered_z_CK[:, :1] - filtered_log_sum_C[:, None]).exp()
        proposed_C = filtered_log_p_CV.gather(1, token_CD[:, :1]).squeeze(1).exp()

    given_p_C = torch.zeros_like(log_sum_C)
    if request.given_R is not None:
        given_C = request.given_R[row_C]
        given_z_C1 = z_CV.gather(1, given_C.clamp(min=0)[:, None])
        given_p_C = probability(torch.where(given_C[:, None] >= 0, given_z_C1, float("-inf"))).squeeze(1)

    drift_C = displacement_C = torch.full_like(log_sum_C, float("nan"))
    if previous is not None and request.previous_R is not None and len(previous.logz_R):
        old_C = request.previous_R[row_C]
        log_q_CV = previous.log_prob(old_C.clamp(min=0))
        gap_CV = log_p_CV - log_q_CV
        # Divergences are never negative; rounding could make them so where hardly anything has changed.
        forward_C = ((exp_CV * gap_CV).sum(-1) / log_sum_C.exp()).clamp(min=0)
        backward_C = -(log_q_CV.exp() * gap_CV).sum(-1).clamp(max=0)
        drift_C = torch.where(old_C >= 0, forward_C, drift_C)
        displacement_C = torch.where(old_C >= 0, backward_C, displacement_C)

    return VocabStats(
        top_RK=top_CK,
        p_RK=p_CK,
        entropy_R=entropy_C,
        logz_R=log_sum_C + peak_C1.squeeze(1),
        token_RD=token_CD,
        confidence_RD=confidence_CD,
        proposed_R=proposed_C,
        filtered_top_RK=filtered_top_CK,
        filtered_p_RK=filtered_p_CK,
        filtered_entropy_R=filtered_entropy_C,
        given_R=given_p_C,
        drift_R=drift_C,
        displacement_R=displacement_C,
    )


def _top(z_CV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest logits and their tokens, ties to the lower token, which `topk` does not promise.

    Where fewer than k tokens are above -inf, the list repeats tokens, at -inf.
    """
    rest_CV = z_CV.clone()
    values, tokens = [], []
    for _ in range(min(k, z_CV.shape[1])):
        value_C1, token_C1 = rest_CV.max(-1, keepdim=True)
        values.append(value_C1)
        tokens.append(token_C1)
        rest_CV.scatter_(1, token_C1, float("-inf"))
    return torch.cat(values, -1), torch.cat(tokens, -1)


def _normalise(z_CV: Tensor, peak_C1: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return log p, exp(z - peak), the log of its sum, and the entropy."""
    gap_CV = z_CV - peak_C1
    exp_CV = gap_CV.exp()
    log_sum_C = exp_CV.sum(-1).log()
    # A barred token has z = -inf and weight 0; the clamp makes their product 0 instead of NaN.
    log_p_CV = (gap_CV - log_sum_C[:, None]).clamp(min=-1e4)
    entropy_C = -((exp_CV * log_p_CV).sum(-1) / log_sum_C.exp())
    return log_p_CV, exp_CV, log_sum_C, entropy_C.clamp(min=0)


def _draw_tokens(z_CV: Tensor, tempered_CV: Tensor, draw: TokenDraw, row_C: Tensor) -> Tensor:
    """Draw one token for each uniform, above temperature 0."""
    if draw.uniform_vocab is not None:
        # LLaDA takes the largest exp(z) / (-ln U)^T. In logarithms it is the same token, and nothing overflows.
        noise_CVD = draw.uniform_vocab(row_C).log_().neg_().log_()
        return noise_CVD.mul_(-draw.temperature).add_(z_CV.unsqueeze(-1)).argmax(1)
    if draw.uniform_RD is None:
        raise ConfigError("temperature is above 0 without uniforms; allowed: uniform_RD or uniform_vocab; pass one")
    # From the logits of the filtered statistics, so that no drawn token has probability 0 there. In float64: summed in
    # float32, the tail of a large vocabulary is lost, and tokens in it are never drawn.
    mass_CV = tempered_CV.to(torch.float64, copy=True)
    total_CV = mass_CV.sub_(mass_CV.amax(-1, keepdim=True)).exp_().cumsum_(-1)
    # First index whose cumulative mass exceeds u; scaled so that rounding can never step past the end.
    target_CD = draw.uniform_RD[row_C] * total_CV[:, -1:]
    return torch.searchsorted(total_CV, target_CD, right=True).clamp(max=z_CV.shape[1] - 1)


def filter_logits_(z_CV: Tensor, draw: TokenDraw) -> Tensor:
    """Set to -inf what nucleus and top-k cut off, in Dream's order: nucleus first.

    The token that crosses `top_p` stays, and so do all that tie with rank k.
    """
    if draw.top_p < 1.0:
        sorted_CV, order_CV = z_CV.sort(dim=-1, descending=True, stable=True)
        before_CV = sorted_CV.softmax(-1).cumsum(-1).roll(1, -1)
        before_CV[:, 0].zero_()
        sorted_CV.masked_fill_(before_CV > draw.top_p, float("-inf"))
        z_CV.scatter_(1, order_CV, sorted_CV)
    if 0 < draw.top_k < z_CV.shape[1]:
        z_CV.masked_fill_(z_CV < z_CV.topk(draw.top_k).values[:, -1:], float("-inf"))
    return z_CV
