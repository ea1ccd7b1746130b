"""The statistics of one step in one pass over the vocabulary.

`one_pass` is the only place that reads logits. It works through chunks of packed rows that stay in cache, so peak
memory is the logits plus a few scratch rows, and each row's numbers are a bitwise function of its own logits. A
fused kernel can replace it behind the same signature.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from unmask.core.prediction import Edit, Posterior

_CHUNK = 1 << 20
"""Scratch elements per chunk on the CPU: 4 MiB in float32."""
_GPU_ROWS = 64
"""Rows per chunk elsewhere."""


@dataclass(frozen=True)
class Draw:
    """How a token is drawn from a row. Temperature 0 takes the first largest."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    uniform_RD: Tensor | None = None
    """One uniform per row and draw: inverse CDF."""
    uniform_RVD: Tensor | None = None
    """One uniform per entry and draw: Gumbel, as LLaDA's loop does it."""

    @property
    def filters(self) -> bool:
        return self.top_p < 1.0 or self.top_k > 0


@dataclass(frozen=True)
class Request:
    """What is wanted of the pass."""

    top_k: int = 2
    edit: Edit = Edit()
    draw: Draw = Draw()
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


def one_pass(logits_RV: Tensor, request: Request) -> Pass:
    """Statistics of every packed row."""
    rows, vocab = logits_RV.shape
    on_cpu = logits_RV.device.type == "cpu"
    size = max(2, _CHUNK // vocab) if on_cpu else _GPU_ROWS
    # Kernels choose how to reduce by shape, and with it their rounding. On the CPU only a single long row is split
    # over threads; on a GPU every shape differs, so all chunks there have one.
    least = 2 if on_cpu else size
    parts = []
    for start in range(0, rows, size):
        row_C = torch.arange(start, min(start + size, rows), device=logits_RV.device)
        spare = max(0, least - len(row_C))
        part = _chunk(logits_RV, torch.cat((row_C, row_C[:1].expand(spare))), request)
        parts.append({f.name: getattr(part, f.name)[: len(row_C)] for f in fields(Pass)})
    if not parts:
        return _chunk(logits_RV, torch.arange(0, device=logits_RV.device), request)
    return Pass(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]})


def _chunk(logits_RV: Tensor, row_C: Tensor, request: Request) -> Pass:
    dtype = torch.promote_types(logits_RV.dtype, torch.float32)
    z_CV = logits_RV[row_C].to(dtype)
    request.edit.apply_(z_CV)
    draw = request.draw
    top = _top(z_CV, request.top_k)
    token_CD = _draw_tokens(z_CV, top.index_CK[:, :1], draw, row_C)
    token_z_CD = z_CV.gather(1, token_CD)
    given_z_C = _gather_given(z_CV, request.given_R, row_C)
    trusted_logz_C = _logz_without(z_CV, request.untrusted) if request.untrusted else None

    filtered = None
    if request.filtered and (draw.filters or draw.temperature > 0):
        tempered_CV = z_CV / draw.temperature if draw.temperature > 0 else z_CV.clone()
        filtered = _softmax_stats(_filter_(tempered_CV, draw), None, request.top_k, token_CD[:, :1])

    peak_C = top.z_CK[:, 0]
    clean = _softmax_stats(z_CV, top, request.top_k, token_CD[:, :1])
    if filtered is None:
        filtered = clean
    kl = _divergence(clean.log_p_CV, request, row_C)
    # Peak first: adding it to the log of the sum would round large logits, and confidence is compared with p_RK.
    confidence_CD = (token_z_CD - peak_C[:, None] - clean.log_sum_C[:, None]).exp()
    if trusted_logz_C is not None:
        confidence_CD = (token_z_CD - trusted_logz_C[:, None]).exp()
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
        given_R=(given_z_C - peak_C - clean.log_sum_C).exp(),
        drift_R=kl[0],
        displacement_R=kl[1],
    )


@dataclass(frozen=True)
class _Top:
    z_CK: Tensor
    index_CK: Tensor


def _top(z_CV: Tensor, k: int) -> _Top:
    """The k largest, ties to the lower token, since top-k promises no order. Restores z.

    Where fewer than k tokens are above -inf, the rest of the list repeats tokens, at -inf.
    """
    token_V = torch.arange(z_CV.shape[1], dtype=torch.int32, device=z_CV.device)
    values: list[Tensor] = []
    indices: list[Tensor] = []
    for place in range(min(k, len(token_V))):
        if place:
            z_CV.scatter_(1, indices[-1], float("-inf"))
        # A plain maximum and a search for it take a fraction of the time of a maximum with its index.
        value_C1 = z_CV.amax(-1, keepdim=True)
        first_C1 = torch.where(z_CV == value_C1, token_V, len(token_V) - 1).amin(-1, keepdim=True)
        values.append(value_C1)
        indices.append(first_C1.long())
    # Last first: a token that was repeated must get its own value back, not -inf.
    for value_C1, index_C1 in zip(reversed(values), reversed(indices), strict=True):
        z_CV.scatter_(1, index_C1, value_C1)
    return _Top(torch.cat(values, -1), torch.cat(indices, -1))


@dataclass(frozen=True)
class _Softmax:
    index_CK: Tensor
    p_CK: Tensor
    entropy_C: Tensor
    log_sum_C: Tensor
    """log of the sum of exp(z - max)."""
    token_p_C: Tensor
    log_p_CV: Tensor


def _softmax_stats(z_CV: Tensor, top: _Top | None, k: int, token_C1: Tensor) -> _Softmax:
    """Normalise in place: z becomes log p."""
    if top is None:
        top = _top(z_CV, k)
    z_CV.sub_(top.z_CK[:, :1])
    exp_CV = z_CV.exp()
    log_sum_C = exp_CV.sum(-1).log()
    # A barred token has z = -inf and weight 0; the clamp makes their product 0 instead of NaN.
    z_CV.sub_(log_sum_C[:, None]).clamp_(min=-1e4)
    entropy_C = -(exp_CV.mul_(z_CV).sum(-1) / log_sum_C.exp())
    token_p_C = z_CV.gather(1, token_C1).squeeze(1).exp()
    p_CK = (top.z_CK - top.z_CK[:, :1] - log_sum_C[:, None]).exp()
    return _Softmax(top.index_CK, p_CK, entropy_C.clamp(min=0), log_sum_C, token_p_C, z_CV)


def _draw_tokens(z_CV: Tensor, argmax_C1: Tensor, draw: Draw, row_C: Tensor) -> Tensor:
    """The first largest at temperature 0, else one token per uniform."""
    if draw.temperature == 0:
        return argmax_C1
    if draw.uniform_RVD is not None:
        # exp(z) / (-ln U)^T in logarithms: same argmax, no overflow.
        noise_CVD = draw.uniform_RVD[row_C].log().neg_().log_()
        return (z_CV.double()[..., None] - draw.temperature * noise_CVD).argmax(1)
    if draw.uniform_RD is None:
        raise ValueError("temperature > 0 needs uniforms")
    # Filtered before the change to double: the same tokens survive here as in the filtered statistics.
    total_CV = _filter_(z_CV / draw.temperature, draw).double().softmax(-1).cumsum_(-1)
    # First index whose cumulative mass exceeds u; scaled so that rounding can never step past the end.
    target_CD = draw.uniform_RD[row_C] * total_CV[:, -1:]
    return torch.searchsorted(total_CV, target_CD, right=True).clamp(max=z_CV.shape[1] - 1)


def _filter_(z_CV: Tensor, draw: Draw) -> Tensor:
    """Nucleus, then top-k, in Dream's order: the token that crosses `top_p` stays, ties at rank k stay."""
    if draw.top_p < 1.0:
        sorted_CV, order_CV = z_CV.sort(dim=-1, descending=True, stable=True)
        before_CV = sorted_CV.softmax(-1).cumsum(-1).roll(1, -1)
        before_CV[:, 0] = 0
        sorted_CV.masked_fill_(before_CV > draw.top_p, float("-inf"))
        z_CV.scatter_(1, order_CV, sorted_CV)
    if 0 < draw.top_k < z_CV.shape[1]:
        z_CV.masked_fill_(z_CV < z_CV.topk(draw.top_k).values[:, -1:], float("-inf"))
    return z_CV


def _logz_without(z_CV: Tensor, tokens: tuple[int, ...]) -> Tensor:
    kept_CV = z_CV.clone()
    kept_CV[:, list(tokens)] = float("-inf")
    peak_C1 = kept_CV.amax(-1, keepdim=True)
    return kept_CV.sub_(peak_C1).exp_().sum(-1).log() + peak_C1.squeeze(1)


def _gather_given(z_CV: Tensor, given_R: Tensor | None, row_C: Tensor) -> Tensor:
    if given_R is None:
        return z_CV.new_full((len(row_C),), float("-inf"))
    token_C = given_R[row_C]
    z_C = z_CV.gather(1, token_C.clamp(min=0)[:, None]).squeeze(1)
    return torch.where(token_C >= 0, z_C, float("-inf"))


def _divergence(log_p_CV: Tensor, request: Request, row_C: Tensor) -> tuple[Tensor, Tensor]:
    """KL(new || old) and KL(old || new), NaN where the slot had no posterior one step ago."""
    unknown_C = log_p_CV.new_full((len(row_C),), float("nan"))
    if request.previous is None or request.previous_R is None or not len(request.previous.logz_R):
        return unknown_C, unknown_C
    old_C = request.previous_R[row_C]
    log_q_CV = request.previous.log_prob(old_C.clamp(min=0))
    gap_CV = log_p_CV - log_q_CV
    drift_C = (log_p_CV.exp() * gap_CV).sum(-1).clamp(min=0)
    displacement_C = -(log_q_CV.exp_() * gap_CV).sum(-1).clamp(max=0)
    known_C = old_C >= 0
    return torch.where(known_C, drift_C, unknown_C), torch.where(known_C, displacement_C, unknown_C)
