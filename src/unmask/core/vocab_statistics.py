"""The pass over the vocabulary: most probable tokens, entropy, draws and divergences of every packed row.

The pass here is written in plain torch and works in chunks of rows, so that it needs memory for a few rows beside the
logits. On a GPU with Triton the kernels of `vocab_statistics_triton` run instead: tokens are equal, and other numbers
differ by the order of sums. `UNMASK_STATISTICS=plain` switches the kernels off; `fused` asks for them on any device (on
a CPU with Triton's interpreter).

The numbers of a row depend on its own logits alone, to the last bit: not on the rows beside it, on the size of the
batch, or on the number of threads.
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
"""Most elements and most rows of a chunk on other devices. All chunks there have equally many rows, so these limits
trade few launches for many rows of a large vocabulary against little padding for few rows of a small one."""

VARIABLE = "UNMASK_STATISTICS"

_failures: dict[object, str] = {}
"""Variant of the kernels -> why it cannot run here, or "" if it has run. A failed variant is not tried again, because
compiling it takes seconds."""


# Which code runs


@dataclass(frozen=True)
class StatisticsChoice:
    """The path that computes the statistics (`plain` or `fused`) and the reason for it."""

    path: str
    why: str


def choose_statistics_path(device: torch.device) -> StatisticsChoice:
    """Return whether plain torch or the kernels compute statistics on this device; on a GPU, try the kernels once."""
    stats = _try_kernels(torch.zeros(1, 8, device=device), StatsRequest())
    if isinstance(stats, str):
        return StatisticsChoice("plain", stats)
    return StatisticsChoice("fused", "fused kernels run here")


def compute_vocab_stats(logits_RV: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of every packed row with the kernels if they can run, else with the plain pass."""
    stats = _try_kernels(logits_RV, request)
    return compute_vocab_stats_in_torch(logits_RV, request) if isinstance(stats, str) else stats


def _try_kernels(logits_RV: Tensor, request: StatsRequest) -> VocabStats | str:
    """Run the kernels, or return the reason why the plain pass must compute this request."""
    choice, device = os.environ.get(VARIABLE, "auto"), logits_RV.device
    if choice == "plain":
        return f"{VARIABLE}=plain"
    if choice == "auto" and device.type != "cuda":
        return f"{device} is not a CUDA device: no kernels there"
    require(choice in ("auto", "fused"), VARIABLE, choice, "auto or plain or fused", "leave it unset for auto")
    # Imported only here, because Triton takes long to import and may be broken on a machine without a GPU.
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
        # The first run of a variant compiles it and fails if the GPU or driver is too old. Any later error is a real
        # one, and so is a lack of memory: the plain pass must not hide them.
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


def compute_vocab_stats_in_torch(logits_RV: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of every packed row in plain torch, chunk by chunk."""
    rows, vocab = logits_RV.shape
    on_cpu = logits_RV.device.type == "cpu"
    size = max(2, _CHUNK // vocab) if on_cpu else max(2, min(_GPU_CHUNK // vocab, _GPU_ROWS))
    # Torch chooses the order of sums by the shape of a tensor. On the CPU only a single long row is special, because it
    # is split over threads: two rows are enough. On a GPU every shape may differ: all chunks have the same shape.
    # Otherwise a row decoded alone would get other bits than the same row in a batch.
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
    z_CV = request.edit.edit_logits_(logits_RV[row_C].to(dtype))
    top_z_CK, top_CK = _top_logits(z_CV, request.top_k)
    peak_C1 = top_z_CK[:, :1]

    tempered_CV = z_CV
    if not greedy or request.has_filtered:
        # A tensor, because a GPU would multiply by the reciprocal of a Python number, and draw other tokens.
        temperature = torch.full((), draw.temperature or 1.0, dtype=dtype, device=z_CV.device)
        tempered_CV = filter_logits_(z_CV / temperature, draw)
    token_CD = top_CK[:, :1] if greedy else _draw_tokens(z_CV, tempered_CV, draw, row_C)

    log_p_CV, exp_CV, log_sum_C, entropy_C = _normalise_logits(z_CV, peak_C1)

    # The peak is subtracted first. Added to the log of the sum, it would round large logits (2e-6 at 40), and
    # confidences would not equal the probabilities of the most probable tokens, which methods compare them with.
    def probability(z_CX: Tensor) -> Tensor:
        return (z_CX - peak_C1 - log_sum_C[:, None]).exp()

    p_CK = probability(top_z_CK)
    confidence_CD = p_CK[:, :1] if greedy else probability(z_CV.gather(1, token_CD))
    if request.untrusted:
        trusted_CV = z_CV.clone()
        for token in request.untrusted:
            # One column at a time: a list of tokens would be copied to the device, which breaks CUDA graphs.
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
        # A divergence is never negative, but rounding could make it so if the distribution has hardly changed.
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
    """Return the k largest logits and their tokens; of equal logits the lower token first, unlike `topk`.

    If fewer than k tokens are above -inf, tokens are repeated with a logit of -inf.
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
    # A barred token has z = -inf and weight 0. The clamp makes the product 0 instead of NaN.
    log_p_CV = (gap_CV - log_sum_C[:, None]).clamp(min=-1e4)
    entropy_C = -((exp_CV * log_p_CV).sum(-1) / log_sum_C.exp())
    return log_p_CV, exp_CV, log_sum_C, entropy_C.clamp(min=0)


def _draw_tokens(z_CV: Tensor, tempered_CV: Tensor, draw: TokenDraw, row_C: Tensor) -> Tensor:
    """Draw the tokens of each row, above temperature 0."""
    if draw.uniform_vocab is not None:
        # LLaDA takes the largest exp(z) / (-ln U)^T. In logarithms the result is the same and nothing overflows.
        noise_CVD = draw.uniform_vocab(row_C).log_().neg_().log_()
        return noise_CVD.mul_(-draw.temperature).add_(z_CV.unsqueeze(-1)).argmax(1)
    if draw.uniform_RD is None:
        raise ConfigError("temperature is above 0 without uniforms; allowed: uniform_RD or uniform_vocab; pass one")
    # Drawn from the same logits as the filtered statistics, so that no drawn token has probability 0 there. Summed in
    # float64, because in float32 the tail of a large vocabulary is lost and its tokens would never be drawn.
    mass_CV = tempered_CV.to(torch.float64, copy=True)
    total_CV = mass_CV.sub_(mass_CV.amax(-1, keepdim=True)).exp_().cumsum_(-1)
    # The first index whose cumulative mass exceeds u. The target is scaled by the total, which is rounded too.
    target_CD = draw.uniform_RD[row_C] * total_CV[:, -1:]
    return torch.searchsorted(total_CV, target_CD, right=True).clamp(max=z_CV.shape[1] - 1)


def filter_logits_(z_CV: Tensor, draw: TokenDraw) -> Tensor:
    """Set to -inf the logits that the nucleus and top-k filters cut off, in Dream's order: nucleus first.

    The token that crosses `top_p` stays, and so do all tokens that tie with rank k.
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
