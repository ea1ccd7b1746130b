"""The first of two kernels of the pass over the vocabulary: reads each row in pieces, once.

A piece leaves its largest tokens, its sums and its part of the draws; `statistics_kernel` puts a row's pieces together.
"""

import triton
import triton.language as tl
from triton.language import tensor

NEVER = tl.constexpr(float("-inf"))
FLOOR = tl.constexpr(-1e4)
"""The least log p, as in the plain path: a barred token's 0 * log 0 is 0."""
WARM = tl.constexpr(2)
TRUSTED = tl.constexpr(5)
CHANGE = tl.constexpr(7)
SUMS = tl.constexpr(14)
"""Where a piece's sums begin: of the logits (2), of the tempered ones (2, and their peak), peak and sum of the trusted
tokens, what the divergences need (7); and how many they are. The K largest logits and tempered logits follow."""


@triton.jit
def edited(z: tensor, column: tensor, settings: tensor, EDITS: tl.constexpr) -> tensor:
    """Additive changes to some tokens: their ids, then the changes."""
    for at in tl.static_range(EDITS):
        token = tl.load(settings + at).to(tl.int32)
        z = tl.where(column == token, z + tl.load(settings + EDITS + at).to(tl.float32), z)
    return z


@triton.jit
def safe(peak: tensor) -> tensor:
    """A number to subtract, also where nothing is possible and the peak is -inf."""
    return tl.where(peak == NEVER, 0.0, peak)


@triton.jit
def _store_top(z: tensor, column: tensor, numbers: tensor, places: tensor, K: tl.constexpr, V: tl.constexpr) -> None:
    """The K largest of a piece, ties to the lower token."""
    for k in tl.static_range(K):
        best = tl.max(z, 0)
        place = tl.min(tl.where(z == best, column, V - 1), 0)
        tl.store(numbers + k, best)
        tl.store(places + k, place)
        z = tl.where(column == place, NEVER, z)


@triton.jit
def _store_sums(z: tensor, peak: tensor, numbers: tensor) -> tensor:
    """Sum of exp(z - peak), and of the same times z - peak; gives the exponentials."""
    gap = z - safe(peak)
    weight = tl.exp(gap)
    tl.store(numbers, tl.sum(weight, 0))
    tl.store(numbers + 1, tl.sum(tl.where(weight > 0, weight * gap, 0.0), 0))
    return weight


@triton.jit
def _store_trusted(z: tensor, column: tensor, settings: tensor, numbers: tensor, UNTRUSTED: tl.constexpr) -> None:
    """Peak and sum of the tokens that are trusted."""
    for at in tl.static_range(UNTRUSTED):
        z = tl.where(column == tl.load(settings + at).to(tl.int32), NEVER, z)
    peak = tl.max(z, 0)
    tl.store(numbers, peak)
    tl.store(numbers + 1, tl.sum(tl.exp(z - safe(peak)), 0))


@triton.jit
def _store_change(z: tensor, weight: tensor, peak: tensor, old_z: tensor, old_logz: tensor, numbers: tensor) -> None:
    """What both divergences need, before the row's normaliser is known.

    Differences of logits below their peaks: where little has changed they are small, and so is their rounding. Tokens
    far below all others are kept apart, since their log p is the floor and does not follow from their logit.
    """
    log_q = tl.maximum(old_z - old_logz, FLOOR)
    q = tl.exp(log_q)
    low = (z == NEVER) | (z < safe(peak) + FLOOR)
    old_z = tl.maximum(old_z, old_logz + FLOOR)
    old_peak = tl.max(old_z, 0)
    gap = (z - safe(peak)) - (old_z - old_peak)
    tl.store(numbers, tl.sum(tl.where(weight > 0, weight * gap, 0.0), 0))
    tl.store(numbers + 1, tl.sum(tl.where(low, q, 0.0), 0))
    tl.store(numbers + 2, tl.sum(tl.where(low, q * log_q, 0.0), 0))
    tl.store(numbers + 3, tl.sum(tl.where(low, 0.0, q), 0))
    tl.store(numbers + 4, tl.sum(tl.where(low, 0.0, q * log_q), 0))
    tl.store(numbers + 5, tl.sum(tl.where(low | (q == 0), 0.0, -q * gap), 0))
    tl.store(numbers + 6, old_peak)


@triton.jit
def _mixed(x: tensor) -> tensor:
    """SplitMix64's finaliser, as `core.rng` has it."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _gumbel(bits: tensor, column: tensor) -> tensor:
    """log(-log U) of each vocabulary entry's uniform: the same bits as `Noise.uniform_vocab`."""
    x = (bits ^ column.to(tl.int64)).to(tl.uint64, bitcast=True) + 0x9E3779B97F4A7C15
    uniform = ((_mixed(x) >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16
    return tl.log(-tl.log(uniform))


@triton.jit
def _store_gumbel(
    z: tensor,
    column: tensor,
    scale: tensor,
    bits: tensor,
    wide: tensor,
    places: tensor,
    V: tl.constexpr,
) -> None:
    """The piece's best token under one draw's noise."""
    score = tl.where(column < V, z.to(tl.float64) - scale * _gumbel(bits, column), NEVER)
    best = tl.max(score, 0)
    tl.store(wide, best)
    tl.store(places, tl.min(tl.where(score == best, column, V - 1), 0))


@triton.jit
def read_pieces(
    logits: tensor,
    settings: tensor,
    bits: tensor,
    old_logits: tensor,
    old_logz: tensor,
    old_row: tensor,
    numbers: tensor,
    places: tensor,
    wide: tensor,
    V: tl.constexpr,
    PIECES: tl.constexpr,
    SIZE: tl.constexpr,
    K: tl.constexpr,
    EDITS: tl.constexpr,
    UNTRUSTED: tl.constexpr,
    OLD: tl.constexpr,
    OLD_EDITS: tl.constexpr,
    FILTERED: tl.constexpr,
    DRAWS: tl.constexpr,
    GUMBEL: tl.constexpr,
) -> None:
    """One piece of one row: its largest tokens, its sums, its part of the draws."""
    at = tl.program_id(0).to(tl.int64)
    row = at // PIECES
    column = (at % PIECES).to(tl.int32) * SIZE + tl.arange(0, SIZE)
    z = tl.load(logits + row * V + column, mask=column < V, other=NEVER).to(tl.float32)
    z = edited(z, column, settings + 1, EDITS)
    numbers += at * (SUMS + 2 * K)
    places += at * (2 * K + DRAWS)
    peak = tl.max(z, 0)
    _store_top(z, column, numbers + SUMS, places, K, V)
    weight = _store_sums(z, peak, numbers)
    if UNTRUSTED > 0:
        _store_trusted(z, column, settings + 1 + 2 * EDITS, numbers + TRUSTED, UNTRUSTED)
    if OLD:
        old = tl.load(old_row + row)
        source = tl.maximum(old, 0)
        old_z = tl.load(old_logits + source * V + column, mask=(column < V) & (old >= 0), other=NEVER).to(tl.float32)
        old_z = edited(old_z, column, settings + 1 + 2 * EDITS + UNTRUSTED, OLD_EDITS)
        _store_change(z, weight, peak, old_z, tl.load(old_logz + source), numbers + CHANGE)
    if GUMBEL:
        for draw in tl.static_range(DRAWS):
            own = at * DRAWS + draw
            noise_bits = tl.load(bits + row * DRAWS + draw)
            _store_gumbel(z, column, tl.load(settings), noise_bits, wide + own, places + 2 * K + draw, V)
    INVERSE: tl.constexpr = DRAWS > 0 and not GUMBEL
    if FILTERED or INVERSE:
        warm = tl.div_rn(z, tl.load(settings).to(tl.float32))
        warm_peak = tl.max(warm, 0)
        tl.store(numbers + WARM + 2, warm_peak)
        if FILTERED:
            _store_top(warm, column, numbers + SUMS + K, places + K, K, V)
            _store_sums(warm, warm_peak, numbers + WARM)
        if INVERSE:
            tl.store(wide + at, tl.sum(tl.exp(warm.to(tl.float64) - safe(warm_peak).to(tl.float64)), 0))
