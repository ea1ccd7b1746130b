"""One pass over the vocabulary: largest tokens, entropy, draws and divergences of every packed row.

The pass here is in plain torch and works through chunks of rows, so peak memory is the logits plus a few rows. It is
the oracle of the Triton kernels in `vocab_statistics_triton`, which run on a GPU where Triton is installed: tokens are
equal, numbers differ by the order of sums. `UNMASK_STATISTICS=plain` switches the kernels off; `fused` asks for them on
any device (on a CPU that takes Triton's interpreter).

Nothing else in the package reads logits. The numbers of a row are a bitwise function of its own logits: the rows beside
it, the size of the batch and the number of threads move no bit.
"""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, require, warn_once
from unmask.core.prediction import StatsRequest, TokenDraw, VocabStats

_CHUNK = 1 << 20
"""Elements of a chunk on the CPU: 4 MiB in float32."""
_GPU_CHUNK, _GPU_ROWS = 1 << 25, 1 << 11
"""Most elements and most rows of a chunk on other devices. Every chunk there has the same number of rows, so the limits
keep launches few for many rows of a large vocabulary, and padding small for few rows of a small one."""

VARIABLE = "UNMASK_STATISTICS"

_failures: dict[object, str] = {}
"""Why a variant of the kernels cannot run here, empty for one that has run. A failed one is not tried again, because
its compilation takes seconds."""


# Which code runs


@dataclass(frozen=True)
class StatisticsChoice:
    """The path that computes the statistics (`plain` or `fused`) and the reason for it."""

    path: str
    why: str


def choose_statistics(device: torch.device) -> StatisticsChoice:
    """Return which path takes requests without filters on this device. On a GPU one small pass tries the kernels."""
    stats = _try_kernels(torch.zeros(1, 8, device=device), StatsRequest())
    if isinstance(stats, str):
        return StatisticsChoice("plain", stats)
    return StatisticsChoice("fused", "fused kernels run here")


def fast_vocab_stats(logits_RV: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of every packed row with the kernels where they can run, else with the plain pass."""
    stats = _try_kernels(logits_RV, request)
    return vocab_stats(logits_RV, request) if isinstance(stats, str) else stats


def _try_kernels(logits_RV: Tensor, request: StatsRequest) -> VocabStats | str:
    """Run the kernels, or return why the plain pass takes this request."""
    choice, device = os.environ.get(VARIABLE, "auto"), logits_RV.device
    if choice == "plain":
        return f"{VARIABLE}=plain"
    if choice == "auto" and device.type != "cuda":
        return f"{device} is not a CUDA device: no kernels there"
    require(choice in ("auto", "fused"), VARIABLE, choice, "auto or plain or fused", "leave it unset for auto")
    # Only here: a process without a GPU must not need Triton, which takes long to import and may be broken.
    from unmask.core import vocab_statistics_triton as kernels

    if not len(logits_RV) or not kernels.kernels_support(logits_RV, request):
        return "the kernels do not take this request"
    if kernels.TRITON_ERROR:
        return _warn_plain(f"Triton cannot be loaded ({kernels.TRITON_ERROR})")
    variant = kernels.KernelVariant.of(logits_RV, request)
    if _failures.get(variant):
        return _failures[variant]
    try:
        stats = kernels.run_kernels(variant, logits_RV, request)
    except Exception as error:
        # The first run of a variant compiles it: what an old GPU or driver cannot do shows there. Later errors, and
        # too little memory, are no reason to go on with the plain pass.
        if variant in _failures or isinstance(error, torch.OutOfMemoryError):
            raise
        why = f"the fused kernels cannot run on {device} ({type(error).__name__}: {str(error)[:200]})"
        _failures[variant] = _warn_plain(why)
        return why
    _failures[variant] = ""
    return stats


def _warn_plain(why: str) -> str:
    warn_once(f"statistics: the plain path runs, since {why}; same tokens, slower; {VARIABLE}=plain says it is wanted")
    return why


# The plain pass


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
    top_z_CK, top_CK = _top_logits(z_CV, request.top_k)
    peak_C1 = top_z_CK[:, :1]

    tempered_CV = z_CV
    if not greedy or request.has_filtered:
        # A tensor on the device: a GPU multiplies by the reciprocal of a plain number, which would draw other tokens.
        temperature = torch.full((), draw.temperature or 1.0, dtype=dtype, device=z_CV.device)
        tempered_CV = filter_logits_(z_CV / temperature, draw)
    token_CD = top_CK[:, :1] if greedy else _draw_tokens(z_CV, tempered_CV, draw, row_C)

    log_p_CV, exp_CV, log_sum_C, entropy_C = _normalise_logits(z_CV, peak_C1)

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
        filtered_z_CK, filtered_top_CK = _top_logits(tempered_CV, request.top_k)
        filtered_log_p_CV, _, filtered_log_sum_C, filtered_entropy_C = _normalise_logits(
            tempered_CV, filtered_z_CK[:, :1]
        )
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


def _top_logits(z_CV: Tensor, k: int) -> tuple[Tensor, Tensor]:
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


def _normalise_logits(z_CV: Tensor, peak_C1: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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
