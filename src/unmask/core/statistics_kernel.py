"""The pass over the vocabulary as Triton kernels: one reads each row in pieces, the others put the pieces together.

The pieces depend on the vocabulary's size alone and are put together in one order, so that a row's numbers are a
bitwise function of its own logits, however many rows there are. Needs Triton: `core.fused` loads it, and says in which
order settings, partial results and answers lie.
"""

import triton
import triton.language as tl
from triton.language import tensor

from unmask.core.pieces_kernel import CHANGE, FLOOR, NEVER, SUMS, TRUSTED, WARM, edited, read_pieces, safe

__all__ = ["compare", "put_together", "read_pieces"]

ENTROPY, LOGZ, PROPOSED, WARM_ENTROPY, GIVEN, DRIFT, DISPLACEMENT = (tl.constexpr(at) for at in range(7))
"""The order of a row's numbers; its probabilities come before them: K, K tempered, one for each draw."""


@triton.jit
def _scales(peak_P: tensor, peak: tensor) -> tensor:
    """What a piece's sums count in the row's: exp(own peak - the row's)."""
    return tl.exp(peak_P.to(tl.float64) - safe(peak).to(tl.float64))


@triton.jit
def _log_sum(peak_P: tensor, sum_P: tensor, peak: tensor) -> tensor:
    """Log of the row's sum of exp(z - peak)."""
    return tl.log(tl.sum(_scales(peak_P, peak) * sum_P.to(tl.float64), 0))


@triton.jit
def _entropy(peak_P: tensor, sum_P: tensor, weighted_P: tensor, peak: tensor, log_sum: tensor) -> tensor:
    scale_P = _scales(peak_P, peak)
    shift_P = tl.where(scale_P > 0, (peak_P - safe(peak)).to(tl.float64), 0.0)
    mean_P = tl.where(scale_P > 0, weighted_P.to(tl.float64) + shift_P * sum_P.to(tl.float64), 0.0)
    mean = tl.sum(scale_P * mean_P, 0) / tl.exp(log_sum)
    entropy = log_sum - mean
    return tl.where(entropy < 0, 0.0, entropy)


@triton.jit
def _probability(z: tensor, peak: tensor, log_sum: tensor) -> tensor:
    return tl.exp(z.to(tl.float64) - peak.to(tl.float64) - log_sum).to(tl.float32)


@triton.jit
def _logit(logits: tensor, token: tensor, settings: tensor, EDITS: tl.constexpr) -> tensor:
    """One token's; -inf for no token."""
    z = tl.load(logits + tl.maximum(token, 0)).to(tl.float32)
    return tl.where(token >= 0, edited(z, token, settings + 1, EDITS), NEVER)


@triton.jit
def _store_best(
    own_P: tensor,
    place_P: tensor,
    there_P: tensor,
    peak: tensor,
    log_sum: tensor,
    tokens: tensor,
    answers: tensor,
    rows: tensor,
    V: tl.constexpr,
    K: tl.constexpr,
    WIDE_K: tl.constexpr,
) -> None:
    """The row's K largest out of its pieces'. Where nothing is possible, token 0 is repeated."""
    k_K = tl.arange(0, WIDE_K)
    there_PK = there_P[:, None] & (k_K < K)[None, :]
    value_PK = tl.load(own_P[:, None] + k_K[None, :], mask=there_PK, other=NEVER)
    place_PK = tl.load(place_P[:, None] + k_K[None, :], mask=there_PK, other=V - 1)
    for k in tl.static_range(K):
        best = tl.max(tl.max(value_PK, 1), 0)
        place = tl.min(tl.min(tl.where(value_PK == best, place_PK, V - 1), 1), 0)
        place = tl.where(best == NEVER, 0, place)
        tl.store(tokens + k * rows, place.to(tl.int64))
        tl.store(answers + k * rows, _probability(best, peak, log_sum))
        value_PK = tl.where(place_PK == place, NEVER, value_PK)


@triton.jit
def _largest(value_P: tensor, place_P: tensor, V: tl.constexpr) -> tensor:
    """The place of the largest value, ties to the lower one."""
    best = tl.max(value_P, 0)
    return tl.min(tl.where(value_P == best, place_P, V - 1), 0)


@triton.jit
def _inverse(
    logits: tensor,
    settings: tensor,
    peak_P: tensor,
    mass_P: tensor,
    uniform: tensor,
    V: tl.constexpr,
    PIECES: tl.constexpr,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    EDITS: tl.constexpr,
) -> tensor:
    """The first token whose cumulative mass exceeds the uniform's share: first the piece, then inside it."""
    piece_P = tl.arange(0, WIDE)
    peak = tl.max(peak_P, 0)
    until_P = tl.cumsum(_scales(peak_P, peak) * mass_P, 0)
    target = uniform * tl.max(until_P, 0)
    piece = tl.min(tl.where((until_P > target) & (piece_P < PIECES), piece_P, PIECES), 0)
    before = tl.max(tl.where(piece_P < piece, until_P, 0.0), 0)
    column = piece * SIZE + tl.arange(0, SIZE)
    z = tl.load(logits + column, mask=column < V, other=NEVER).to(tl.float32)
    warm = tl.div_rn(edited(z, column, settings + 1, EDITS), tl.load(settings).to(tl.float32))
    mass = tl.exp(warm.to(tl.float64) - safe(peak).to(tl.float64))
    # Sums in another order may be a last bit off: only a possible token is taken.
    hit = tl.min(tl.where((before + tl.cumsum(mass, 0) > target) & (mass > 0), column, V), 0)
    last = tl.max(tl.where(mass > 0, column, 0), 0)
    return tl.where(piece == PIECES, V - 1, tl.where(hit < V, hit, last))


@triton.jit
def _store_warm(
    own_P: tensor,
    place_P: tensor,
    there_P: tensor,
    z: tensor,
    settings: tensor,
    tokens: tensor,
    answers: tensor,
    out: tensor,
    rows: tensor,
    V: tl.constexpr,
    K: tl.constexpr,
    WIDE_K: tl.constexpr,
) -> None:
    """The same of the tempered logits, and the probability there of the proposed token, whose logit is z."""
    peak_P = tl.load(own_P + WARM + 2, mask=there_P, other=NEVER)
    sum_P = tl.load(own_P + WARM, mask=there_P, other=0.0)
    peak = tl.max(peak_P, 0)
    log_sum = _log_sum(peak_P, sum_P, peak)
    weighted_P = tl.load(own_P + WARM + 1, mask=there_P, other=0.0)
    _store_best(own_P + SUMS + K, place_P + K, there_P, peak, log_sum, tokens, answers, rows, V, K, WIDE_K)
    tl.store(out + WARM_ENTROPY * rows, _entropy(peak_P, sum_P, weighted_P, peak, log_sum).to(tl.float32))
    warm = tl.div_rn(z, tl.load(settings).to(tl.float32))
    tl.store(out + PROPOSED * rows, _probability(warm, peak, log_sum))


@triton.jit
def _confidence(
    token: tensor,
    z: tensor,
    own_P: tensor,
    there_P: tensor,
    peak: tensor,
    log_sum: tensor,
    settings: tensor,
    UNTRUSTED: tl.constexpr,
) -> tensor:
    """The clean probability of a proposed token; 0 of an untrusted one, without which the others are normalised."""
    if UNTRUSTED > 0:
        peak_P = tl.load(own_P + TRUSTED, mask=there_P, other=NEVER)
        peak = tl.max(peak_P, 0)
        log_sum = _log_sum(peak_P, tl.load(own_P + TRUSTED + 1, mask=there_P, other=0.0), peak)
    confidence = _probability(z, peak, log_sum)
    for at in tl.static_range(UNTRUSTED):
        confidence = tl.where(token == tl.load(settings + at).to(tl.int32), 0.0, confidence)
    return confidence


@triton.jit
def _store_nothing(out: tensor, rows: tensor) -> None:
    """What `compare` overwrites where it is asked."""
    tl.store(out + GIVEN * rows, 0.0)
    tl.store(out + DRIFT * rows, float("nan"))
    tl.store(out + DISPLACEMENT * rows, float("nan"))


@triton.jit(do_not_specialize=["rows"])
def put_together(
    logits: tensor,
    settings: tensor,
    uniform: tensor,
    numbers: tensor,
    places: tensor,
    wide: tensor,
    tokens: tensor,
    answers: tensor,
    rows: tensor,
    V: tl.constexpr,
    PIECES: tl.constexpr,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    K: tl.constexpr,
    WIDE_K: tl.constexpr,
    EDITS: tl.constexpr,
    UNTRUSTED: tl.constexpr,
    FILTERED: tl.constexpr,
    DRAWS: tl.constexpr,
    GUMBEL: tl.constexpr,
) -> None:
    """Largest tokens, draws, normaliser and entropy of one row out of its pieces; in float64, since they are few."""
    row = tl.program_id(0).to(tl.int64)
    there_P = tl.arange(0, WIDE) < PIECES
    at_P = row * PIECES + tl.arange(0, WIDE)
    own_P = numbers + at_P * (SUMS + 2 * K)
    place_P = places + at_P * (2 * K + DRAWS)
    DRAWN: tl.constexpr = DRAWS if DRAWS > 0 else 1
    logits, tokens, answers = logits + row * V, tokens + row, answers + row
    out = answers + (2 * K + DRAWN) * rows
    peak_P = tl.load(own_P + SUMS, mask=there_P, other=NEVER)
    sum_P = tl.load(own_P, mask=there_P, other=0.0)
    peak = tl.max(peak_P, 0)
    log_sum = _log_sum(peak_P, sum_P, peak)
    entropy = _entropy(peak_P, sum_P, tl.load(own_P + 1, mask=there_P, other=0.0), peak, log_sum)
    tl.store(out + ENTROPY * rows, entropy.to(tl.float32))
    tl.store(out + LOGZ * rows, (log_sum + peak.to(tl.float64)).to(tl.float32))
    _store_nothing(out, rows)
    _store_best(own_P + SUMS, place_P, there_P, peak, log_sum, tokens, answers, rows, V, K, WIDE_K)
    for draw in tl.static_range(DRAWN):
        if DRAWS == 0:
            token = tl.where(peak == NEVER, 0, _largest(peak_P, tl.load(place_P, mask=there_P, other=V - 1), V))
        elif GUMBEL:
            score_P = tl.load(wide + at_P * DRAWS + draw, mask=there_P, other=NEVER)
            token = _largest(score_P, tl.load(place_P + 2 * K + draw, mask=there_P, other=V - 1), V)
        else:
            warm_P = tl.load(own_P + WARM + 2, mask=there_P, other=NEVER)
            mass_P = tl.load(wide + at_P, mask=there_P, other=0.0)
            share = tl.load(uniform + row * DRAWS + draw)
            token = _inverse(logits, settings, warm_P, mass_P, share, V, PIECES, SIZE, WIDE, EDITS)
        z = _logit(logits, token, settings, EDITS)
        sure = _confidence(token, z, own_P, there_P, peak, log_sum, settings + 1 + 2 * EDITS, UNTRUSTED)
        tl.store(tokens + (2 * K + draw) * rows, token.to(tl.int64))
        tl.store(answers + (2 * K + draw) * rows, sure)
        if draw == 0 and FILTERED:
            warm_tokens, warm_answers = tokens + K * rows, answers + K * rows
            _store_warm(own_P, place_P, there_P, z, settings, warm_tokens, warm_answers, out, rows, V, K, WIDE_K)
        elif draw == 0:
            tl.store(out + PROPOSED * rows, _probability(z, peak, log_sum))


@triton.jit
def _divergences(
    own_P: tensor, there_P: tensor, peak_P: tensor, sum_P: tensor, peak: tensor, log_sum: tensor, old_logz: tensor
) -> tensor:
    """KL(new || old) and KL(old || new) from the pieces' sums."""
    logz = log_sum + peak.to(tl.float64)
    gain = logz - old_logz.to(tl.float64)
    shift_P = safe(peak_P).to(tl.float64) - tl.load(own_P + 6, mask=there_P, other=0.0).to(tl.float64)
    gap_P = tl.load(own_P, mask=there_P, other=0.0).to(tl.float64) + shift_P * sum_P.to(tl.float64)
    scale_P = _scales(peak_P, peak)
    drift = tl.sum(tl.where(scale_P > 0, scale_P * gap_P, 0.0), 0) / tl.exp(log_sum) - gain
    low_q_P = tl.load(own_P + 1, mask=there_P, other=0.0).to(tl.float64)
    low_log_P = tl.load(own_P + 2, mask=there_P, other=0.0).to(tl.float64)
    q_P = tl.load(own_P + 3, mask=there_P, other=0.0).to(tl.float64)
    log_P = tl.load(own_P + 4, mask=there_P, other=0.0).to(tl.float64)
    back_P = tl.load(own_P + 5, mask=there_P, other=0.0).to(tl.float64)
    # In a piece that lies at the floor as a whole, no logit counts.
    usual_P = tl.where(peak_P.to(tl.float64) < logz + FLOOR, log_P - FLOOR * q_P, back_P + (gain - shift_P) * q_P)
    displacement = tl.sum(usual_P + low_log_P - FLOOR * low_q_P, 0)
    return tl.where(drift < 0, 0.0, drift), tl.where(displacement < 0, 0.0, displacement)


@triton.jit(do_not_specialize=["rows"])
def compare(
    logits: tensor,
    settings: tensor,
    given: tensor,
    old_logz: tensor,
    old_row: tensor,
    numbers: tensor,
    out: tensor,
    rows: tensor,
    V: tl.constexpr,
    PIECES: tl.constexpr,
    WIDE: tl.constexpr,
    K: tl.constexpr,
    EDITS: tl.constexpr,
    ASKED: tl.constexpr,
    OLD: tl.constexpr,
) -> None:
    """The given token's probability and both divergences of one row."""
    row = tl.program_id(0).to(tl.int64)
    there_P = tl.arange(0, WIDE) < PIECES
    own_P = numbers + (row * PIECES + tl.arange(0, WIDE)) * (SUMS + 2 * K)
    peak_P = tl.load(own_P + SUMS, mask=there_P, other=NEVER)
    peak = tl.max(peak_P, 0)
    sum_P = tl.load(own_P, mask=there_P, other=0.0)
    log_sum = _log_sum(peak_P, sum_P, peak)
    out += row
    if ASKED:
        z = _logit(logits + row * V, tl.load(given + row), settings, EDITS)
        tl.store(out + GIVEN * rows, _probability(z, peak, log_sum))
    if OLD:
        old = tl.load(old_row + row)
        logz = tl.load(old_logz + tl.maximum(old, 0))
        drift, displacement = _divergences(own_P + CHANGE, there_P, peak_P, sum_P, peak, log_sum, logz)
        tl.store(out + DRIFT * rows, tl.where(old >= 0, drift, float("nan")).to(tl.float32))
        tl.store(out + DISPLACEMENT * rows, tl.where(old >= 0, displacement, float("nan")).to(tl.float32))
