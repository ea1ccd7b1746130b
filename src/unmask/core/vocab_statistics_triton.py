"""The pass over the vocabulary as Triton kernels, tested against its oracle `vocab_statistics`.

`reduce_pieces` reads each row of logits once, in *pieces* of a few thousand tokens with one program each, and leaves
for every piece its largest tokens, its sums and its part of the draws. `combine_pieces` and `compare_distributions` put
the pieces of a row together. The pieces depend on the size of the vocabulary alone and are combined in one order, so
that the numbers of a row are a bitwise function of its own logits, however many rows there are.

Tokens equal those of the plain pass. Numbers differ by the order of sums and by another exponential. This file can be
imported where Triton is missing; its kernels then cannot run, and `TRITON_ERROR` says why.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unmask.core.prediction import Edit, StatsRequest, VocabStats

try:
    import triton
    import triton.language as tl
    from triton.language import tensor

    TRITON_ERROR = ""
except ImportError as error:
    TRITON_ERROR = str(error)

    class _TritonMissing:
        """Stands in for Triton's modules, so that the kernels below can be defined."""

        def __getattr__(self, name: str) -> "_TritonMissing":
            if name.startswith("__"):
                raise AttributeError(name)
            return self

        def __call__(self, *args: Any, **kwargs: Any) -> "_TritonMissing":
            return self

    triton = tl = tensor = _TritonMissing()

PIECE = 4096
"""Tokens of a piece; fewer only where the vocabulary is smaller. It sets the order of sums, so that another value
changes the last bits of all results on GPUs."""
WARPS = 4
"""Warps of a program that reads a piece. Part of the order of sums too."""
MAX_TOP_K = 16
"""Most probable tokens that the kernels look for; requests for more take the plain pass."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

# Float32 numbers that `reduce_pieces` leaves for each piece, where m is the largest logit of the piece:
#   0, 1    sum of exp(z - m), sum of exp(z - m) (z - m)
#   2 to 4  the same two sums of the tempered logits, and their m
#   5, 6    m and sum of exp(z - m) of the trusted tokens
#   7 to 13 what the divergences need, see `_store_divergence_sums`
#   14 ...  K largest logits, then the K largest tempered logits
# Every piece has its own m, since exp(z) alone would overflow and the maximum of the row is not known yet.
# Beside them lie int32 tokens (K largest, K largest tempered, the best of each Gumbel draw) and float64 numbers (the
# best score of each Gumbel draw, or the mass of the tempered logits for draws by inverse CDF).
_PIECE_NUMBERS = 14
TEMPERED, TRUSTED, DIVERGENCE, LARGEST = tl.constexpr(2), tl.constexpr(5), tl.constexpr(7), tl.constexpr(14)

# Float32 numbers that the kernels return for each row, behind the probabilities of the K largest tokens, of the K
# largest tempered tokens, and of each drawn token.
_ROW_NUMBERS = 7
ENTROPY, LOGZ, PROPOSED, TEMPERED_ENTROPY, GIVEN, DRIFT, DISPLACEMENT = (tl.constexpr(number) for number in range(7))

NEVER = tl.constexpr(float("-inf"))
FLOOR = tl.constexpr(-1e4)
"""Least log p, as in the plain pass: it makes the 0 * log 0 of a barred token 0."""


# --- on the host --------------------------------------------------------------------------------------------------


def kernels_support(logits_RV: Tensor, request: StatsRequest) -> bool:
    """Whether the kernels can compute the statistics of a request.

    They cannot apply filters (which need a sorted row), find more than `MAX_TOP_K` tokens, read float64, or draw with
    Gumbel noise that is not derived from counters.
    """
    draw, previous = request.draw, request.previous
    tempered = draw.temperature > 0
    inputs = (logits_RV,) if previous is None else (logits_RV, previous.logits_RV)
    return (
        not (draw.has_filters and (tempered or request.filtered))
        and not (tempered and draw.uniform_RD is None and draw.bits_RD is None)
        and request.top_k <= MAX_TOP_K
        and all(z_RV.dtype in _DTYPES for z_RV in inputs)
    )


@dataclass(frozen=True)
class KernelVariant:
    """Everything that the kernels are compiled for. Each new combination is compiled once, which takes seconds."""

    device: torch.device
    dtype: torch.dtype
    vocab: int
    top_k: int
    edits: int
    untrusted: int
    has_previous: bool
    previous_edits: int
    filtered: bool
    draws: int
    """0 for the most probable token."""
    gumbel: bool
    has_given: bool

    @classmethod
    def of(cls, logits_RV: Tensor, request: StatsRequest) -> "KernelVariant":
        draw, previous = request.draw, request.previous
        tempered = draw.temperature > 0
        uniform_RD = draw.bits_RD if draw.uniform_RD is None else draw.uniform_RD
        has_previous = previous is not None and request.previous_R is not None and len(previous.logz_R) > 0
        return cls(
            device=logits_RV.device,
            dtype=logits_RV.dtype,
            vocab=logits_RV.shape[1],
            top_k=min(request.top_k, logits_RV.shape[1]),
            edits=len(request.edit.ids),
            untrusted=len(request.untrusted),
            has_previous=has_previous,
            previous_edits=len(previous.edit.ids) if has_previous and previous is not None else 0,
            filtered=request.filtered and tempered,
            draws=uniform_RD.shape[1] if tempered and uniform_RD is not None else 0,
            gumbel=tempered and draw.uniform_RD is None,
            has_given=request.given_R is not None,
        )


def run_kernels(variant: KernelVariant, logits_RV: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of every packed row with the kernels; `variant` must fit the logits and the request."""
    rows, vocab, k, draws = len(logits_RV), variant.vocab, variant.top_k, variant.draws
    tokens_per_row = max(draws, 1)
    size = min(PIECE, _next_power_of_two(vocab))
    pieces = -(-vocab // size)
    draw, previous = request.draw, request.previous
    logits_RV = _contiguous_and_aligned(logits_RV)
    settings = _settings_tensor(variant, request)
    # Pointers that a variant does not read still need a tensor.
    noise = draw.bits_RD if variant.gumbel else draw.uniform_RD
    noise = settings if noise is None else noise.contiguous()
    given_R = settings if request.given_R is None else request.given_R.contiguous()
    old = (settings, settings, settings)
    if variant.has_previous and previous is not None and request.previous_R is not None:
        old = (
            _contiguous_and_aligned(previous.logits_RV),
            previous.logz_R.contiguous(),
            request.previous_R.contiguous(),
        )
    new = partial(torch.empty, device=variant.device)
    piece_numbers = new(rows, pieces, _PIECE_NUMBERS + 2 * k, dtype=torch.float32)
    piece_tokens = new(rows, pieces, 2 * k + draws, dtype=torch.int32)
    piece_float64 = new(rows, pieces, tokens_per_row, dtype=torch.float64)
    tokens = new(2 * k + tokens_per_row, rows, dtype=torch.int64)
    numbers = new(2 * k + tokens_per_row + _ROW_NUMBERS, rows, dtype=torch.float32)
    row_numbers = numbers[2 * k + tokens_per_row :]

    shape = {"V": vocab, "PIECES": pieces, "K": k, "EDITS": variant.edits}
    kind = {
        "UNTRUSTED": variant.untrusted,
        "FILTERED": variant.filtered,
        "DRAWS": draws,
        "GUMBEL": variant.gumbel,
    }
    lanes = {"LANES": max(2, _next_power_of_two(pieces))}
    # Triton launches on the current device, which may be another GPU than that of the logits.
    with torch.cuda.device_of(logits_RV):
        reduce_pieces[(rows * pieces,)](
            *(logits_RV, settings, noise, *old, piece_numbers, piece_tokens, piece_float64),
            **(shape | kind | {"SIZE": size, "OLD": variant.has_previous, "OLD_EDITS": variant.previous_edits}),
            num_warps=WARPS,
        )
        combine_pieces[(rows,)](
            *(logits_RV, settings, noise, piece_numbers, piece_tokens, piece_float64, tokens, numbers, rows),
            **(shape | kind | lanes | {"SIZE": size, "K_LANES": max(2, _next_power_of_two(k))}),
            # A draw by inverse CDF searches a whole piece; everything else reads a few numbers per piece.
            num_warps=8 if draws and not variant.gumbel else 1,
        )
        if variant.has_given or variant.has_previous:
            compare_distributions[(rows,)](
                *(logits_RV, settings, given_R, *old[1:], piece_numbers, row_numbers, rows),
                **(shape | lanes | {"GIVEN_TOKEN": variant.has_given, "OLD": variant.has_previous}),
                num_warps=1,
            )

    entropy_R, logz_R, proposed_R, tempered_entropy_R, given_p_R, drift_R, displacement_R = row_numbers.unbind(0)
    filtered_top_RK, filtered_p_RK = top_RK, p_RK = tokens[:k].T, numbers[:k].T
    if variant.filtered:
        filtered_top_RK, filtered_p_RK = tokens[k : 2 * k].T, numbers[k : 2 * k].T
    return VocabStats(
        top_RK=top_RK,
        p_RK=p_RK,
        entropy_R=entropy_R,
        logz_R=logz_R,
        token_RD=tokens[2 * k :].T,
        confidence_RD=numbers[2 * k : 2 * k + tokens_per_row].T,
        proposed_R=proposed_R,
        filtered_top_RK=filtered_top_RK,
        filtered_p_RK=filtered_p_RK,
        filtered_entropy_R=tempered_entropy_R if variant.filtered else entropy_R,
        given_R=given_p_R,
        drift_R=drift_R,
        displacement_R=displacement_R,
    )


def _settings_tensor(variant: KernelVariant, request: StatsRequest) -> Tensor:
    """Return a tensor with temperature, edits, untrusted tokens, and edits of the previous logits.

    They are not kernel arguments, because Triton passes floats as float32 and Gumbel draws need the temperature in
    float64. Every call makes a new tensor by two launches that have the numbers as arguments: a CUDA graph could not
    contain a copy from the host, and a cache would grow with every temperature, or free a tensor that a graph still
    reads. A tensor that is made here is in the memory of the graph that records the call, and is freed with it.
    """
    old = request.previous.edit if request.previous is not None and variant.has_previous else Edit()
    values = (
        request.draw.temperature,
        *(*request.edit.ids, *request.edit.deltas),
        *request.untrusted,
        *(*old.ids, *old.deltas),
    )
    settings = torch.zeros(len(values), dtype=torch.float64, device=variant.device)
    torch._foreach_add_(settings.unbind(), [float(value) for value in values])
    return settings


def _contiguous_and_aligned(z_RV: Tensor) -> Tensor:
    """Return the rows as one contiguous tensor whose address is a multiple of 16.

    For other addresses Triton compiles another program, which reads a piece in another way and rounds differently.
    """
    z_RV = z_RV.contiguous()
    return z_RV if z_RV.data_ptr() % 16 == 0 else z_RV.clone()


def _next_power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


# --- kernel 1: read each row in pieces ----------------------------------------------------------------------------


@triton.jit
def _apply_edits(z: tensor, column: tensor, settings: tensor, EDITS: tl.constexpr) -> tensor:
    """Add the changes of some tokens' logits; `settings` holds their ids, then the changes."""
    for edit in tl.static_range(EDITS):
        token = tl.load(settings + edit).to(tl.int32)
        z = tl.where(column == token, z + tl.load(settings + EDITS + edit).to(tl.float32), z)
    return z


@triton.jit
def _finite_peak(peak: tensor) -> tensor:
    """Return the largest logit, or 0 if it is -inf, because -inf - (-inf) would be NaN."""
    return tl.where(peak == NEVER, 0.0, peak)


@triton.jit
def _store_piece_top(
    z: tensor, column: tensor, numbers: tensor, tokens: tensor, K: tl.constexpr, V: tl.constexpr
) -> None:
    """Store the K largest logits of a piece and their tokens, ties to the lower token."""
    for k in tl.static_range(K):
        best = tl.max(z, 0)
        # If `best` is NaN, no entry equals it. V - 1 then keeps the token, and later addresses, in range.
        token = tl.min(tl.where(z == best, column, V - 1), 0)
        tl.store(numbers + k, best)
        tl.store(tokens + k, token)
        z = tl.where(column == token, NEVER, z)


@triton.jit
def _store_softmax_sums(z: tensor, peak: tensor, numbers: tensor) -> tensor:
    """Store the sums of exp(z - peak) and of exp(z - peak) (z - peak); return the exponentials."""
    gap = z - _finite_peak(peak)
    weight = tl.exp(gap)
    tl.store(numbers, tl.sum(weight, 0))
    tl.store(numbers + 1, tl.sum(tl.where(weight > 0, weight * gap, 0.0), 0))
    return weight


@triton.jit
def _store_divergence_sums(
    z: tensor, weight: tensor, peak: tensor, old_z: tensor, old_logz: tensor, numbers: tensor
) -> None:
    """Store the sums that both divergences need, before the normaliser of the row is known.

    Logits enter as differences from their peaks, which are small if little has changed, and so is their rounding error.
    Tokens far below all others are summed separately, because their log p is the floor and not a function of the logit.
    """
    log_q = tl.maximum(old_z - old_logz, FLOOR)
    q = tl.exp(log_q)
    low = (z == NEVER) | (z < _finite_peak(peak) + FLOOR)
    old_z = tl.maximum(old_z, old_logz + FLOOR)
    old_peak = tl.max(old_z, 0)
    gap = (z - _finite_peak(peak)) - (old_z - old_peak)
    tl.store(numbers, tl.sum(tl.where(weight > 0, weight * gap, 0.0), 0))
    tl.store(numbers + 1, tl.sum(tl.where(low, q, 0.0), 0))
    tl.store(numbers + 2, tl.sum(tl.where(low, q * log_q, 0.0), 0))
    tl.store(numbers + 3, tl.sum(tl.where(low, 0.0, q), 0))
    tl.store(numbers + 4, tl.sum(tl.where(low, 0.0, q * log_q), 0))
    tl.store(numbers + 5, tl.sum(tl.where(low | (q == 0), 0.0, -q * gap), 0))
    tl.store(numbers + 6, old_peak)


@triton.jit
def _log_exponential_noise(bits: tensor, column: tensor) -> tensor:
    """Return log(-log U) for the uniform of each vocabulary entry, from the same bits as `Noise.uniform_vocab`."""
    # One step of SplitMix64, as in `core.noise`; anything else would draw other tokens than the plain pass.
    x = (bits ^ column.to(tl.int64)).to(tl.uint64, bitcast=True) + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    # The 0.5 keeps uniforms away from 0 and 1, so that both logarithms are finite.
    uniform = ((x >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16
    return tl.log(-tl.log(uniform))


@triton.jit
def _store_gumbel_best(
    z: tensor, column: tensor, temperature: tensor, bits: tensor, scores: tensor, tokens: tensor, V: tl.constexpr
) -> None:
    """Store the best token of a piece under the noise of one draw, and its score.

    In float64, as in LLaDA's loop: float32 noise has too few digits for the small probabilities of a large vocabulary.
    """
    score = tl.where(column < V, z.to(tl.float64) - temperature * _log_exponential_noise(bits, column), NEVER)
    best = tl.max(score, 0)
    tl.store(scores, best)
    tl.store(tokens, tl.min(tl.where(score == best, column, V - 1), 0))


@triton.jit
def reduce_pieces(
    logits: tensor,
    settings: tensor,
    bits: tensor,
    old_logits: tensor,
    old_logz: tensor,
    old_row: tensor,
    numbers: tensor,
    tokens: tensor,
    float64: tensor,
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
    """Store the largest tokens of one piece of a row of logits, its sums, and its contribution to each draw."""
    # In int64: 17,000 rows of LLaDA's vocabulary have more logits than int32 can count.
    piece = tl.program_id(0).to(tl.int64)
    row = piece // PIECES
    column = (piece % PIECES).to(tl.int32) * SIZE + tl.arange(0, SIZE)
    z = tl.load(logits + row * V + column, mask=column < V, other=NEVER).to(tl.float32)
    z = _apply_edits(z, column, settings + 1, EDITS)
    numbers += piece * (LARGEST + 2 * K)
    tokens += piece * (2 * K + DRAWS)
    peak = tl.max(z, 0)
    _store_piece_top(z, column, numbers + LARGEST, tokens, K, V)
    weight = _store_softmax_sums(z, peak, numbers)
    if UNTRUSTED > 0:
        trusted = z
        for at in tl.static_range(UNTRUSTED):
            token = tl.load(settings + 1 + 2 * EDITS + at).to(tl.int32)
            trusted = tl.where(column == token, NEVER, trusted)
        trusted_peak = tl.max(trusted, 0)
        tl.store(numbers + TRUSTED, trusted_peak)
        tl.store(numbers + TRUSTED + 1, tl.sum(tl.exp(trusted - _finite_peak(trusted_peak)), 0))
    if OLD:
        # A row without a previous distribution reads -inf instead; `compare_distributions` returns NaN for it.
        old = tl.load(old_row + row)
        source = tl.maximum(old, 0)
        old_z = tl.load(old_logits + source * V + column, mask=(column < V) & (old >= 0), other=NEVER).to(tl.float32)
        old_z = _apply_edits(old_z, column, settings + 1 + 2 * EDITS + UNTRUSTED, OLD_EDITS)
        _store_divergence_sums(z, weight, peak, old_z, tl.load(old_logz + source), numbers + DIVERGENCE)
    if GUMBEL:
        for draw in tl.static_range(DRAWS):
            at = piece * DRAWS + draw
            draw_bits = tl.load(bits + row * DRAWS + draw)
            _store_gumbel_best(z, column, tl.load(settings), draw_bits, float64 + at, tokens + 2 * K + draw, V)
    INVERSE: tl.constexpr = DRAWS > 0 and not GUMBEL
    if FILTERED or INVERSE:
        # Rounded division, as torch divides: the usual one of a GPU is off by a bit, and ties would fall differently.
        tempered = tl.div_rn(z, tl.load(settings).to(tl.float32))
        tempered_peak = tl.max(tempered, 0)
        tl.store(numbers + TEMPERED + 2, tempered_peak)
        if FILTERED:
            _store_piece_top(tempered, column, numbers + LARGEST + K, tokens + K, K, V)
            _store_softmax_sums(tempered, tempered_peak, numbers + TEMPERED)
        if INVERSE:
            mass = tl.exp(tempered.to(tl.float64) - _finite_peak(tempered_peak).to(tl.float64))
            tl.store(float64 + piece, tl.sum(mass, 0))


# --- kernel 2: combine the pieces of a row ------------------------------------------------------------------------


@triton.jit
def _rescale_factors(peak_P: tensor, peak: tensor) -> tensor:
    """Return the factors exp(piece maximum - row maximum) that bring the sums of pieces to the scale of the row.

    Sums over pieces are in float64: there are few, and float32 would add a rounding error for each piece.
    """
    return tl.exp(peak_P.to(tl.float64) - _finite_peak(peak).to(tl.float64))


@triton.jit
def _log_sum(peak_P: tensor, sum_P: tensor, peak: tensor) -> tensor:
    """Return the log of the row's sum of exp(z - peak)."""
    return tl.log(tl.sum(_rescale_factors(peak_P, peak) * sum_P.to(tl.float64), 0))


@triton.jit
def _entropy(peak_P: tensor, sum_P: tensor, weighted_P: tensor, peak: tensor, log_sum: tensor) -> tensor:
    """Return the entropy of a row, at least 0."""
    scale_P = _rescale_factors(peak_P, peak)
    # A piece without a possible token has scale 0 and peak -inf; without `where` their product would be NaN.
    shift_P = tl.where(scale_P > 0, (peak_P - _finite_peak(peak)).to(tl.float64), 0.0)
    mean_P = tl.where(scale_P > 0, weighted_P.to(tl.float64) + shift_P * sum_P.to(tl.float64), 0.0)
    mean = tl.sum(scale_P * mean_P, 0) / tl.exp(log_sum)
    entropy = log_sum - mean
    return tl.where(entropy < 0, 0.0, entropy)


@triton.jit
def _probability(z: tensor, peak: tensor, log_sum: tensor) -> tensor:
    return tl.exp(z.to(tl.float64) - peak.to(tl.float64) - log_sum).to(tl.float32)


@triton.jit
def _load_logit(logits: tensor, token: tensor, settings: tensor, EDITS: tl.constexpr) -> tensor:
    """Load the edited logit of one token; -inf for no token."""
    z = tl.load(logits + tl.maximum(token, 0)).to(tl.float32)
    return tl.where(token >= 0, _apply_edits(z, token, settings + 1, EDITS), NEVER)


@triton.jit
def _store_row_top(
    numbers_P: tensor,
    tokens_P: tensor,
    mask_P: tensor,
    peak: tensor,
    log_sum: tensor,
    tokens: tensor,
    probabilities: tensor,
    rows: tensor,
    V: tl.constexpr,
    K: tl.constexpr,
    K_LANES: tl.constexpr,
) -> None:
    """Store the K largest tokens of a row, found among those of its pieces. Token 0 where nothing is possible."""
    k_K = tl.arange(0, K_LANES)
    mask_PK = mask_P[:, None] & (k_K < K)[None, :]
    value_PK = tl.load(numbers_P[:, None] + k_K[None, :], mask=mask_PK, other=NEVER)
    token_PK = tl.load(tokens_P[:, None] + k_K[None, :], mask=mask_PK, other=V - 1)
    for k in tl.static_range(K):
        best = tl.max(tl.max(value_PK, 1), 0)
        token = tl.min(tl.min(tl.where(value_PK == best, token_PK, V - 1), 1), 0)
        token = tl.where(best == NEVER, 0, token)
        tl.store(tokens + k * rows, token.to(tl.int64))
        tl.store(probabilities + k * rows, _probability(best, peak, log_sum))
        # Each token lies in one piece, so this removes one entry.
        value_PK = tl.where(token_PK == token, NEVER, value_PK)


@triton.jit
def _argmax_token(value_P: tensor, token_P: tensor, V: tl.constexpr) -> tensor:
    """Return the token of the largest value; of equal values the lower token."""
    best = tl.max(value_P, 0)
    return tl.min(tl.where(value_P == best, token_P, V - 1), 0)


@triton.jit
def _draw_by_inverse_cdf(
    logits: tensor,
    settings: tensor,
    peak_P: tensor,
    mass_P: tensor,
    uniform: tensor,
    V: tl.constexpr,
    PIECES: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
    EDITS: tl.constexpr,
) -> tensor:
    """Return the first token whose cumulative mass exceeds the uniform's share: find its piece, then search in it."""
    piece_P = tl.arange(0, LANES)
    peak = tl.max(peak_P, 0)
    # Running sums do not fall, and lanes behind the last piece add 0: their maximum is the mass of the row.
    until_P = tl.cumsum(_rescale_factors(peak_P, peak) * mass_P, 0)
    target = uniform * tl.max(until_P, 0)
    piece = tl.min(tl.where((until_P > target) & (piece_P < PIECES), piece_P, PIECES), 0)
    before = tl.max(tl.where(piece_P < piece, until_P, 0.0), 0)
    column = piece * SIZE + tl.arange(0, SIZE)
    z = tl.load(logits + column, mask=column < V, other=NEVER).to(tl.float32)
    tempered = tl.div_rn(_apply_edits(z, column, settings + 1, EDITS), tl.load(settings).to(tl.float32))
    mass = tl.exp(tempered.to(tl.float64) - _finite_peak(peak).to(tl.float64))
    # The sum inside the piece may be a last bit off the one of `reduce_pieces`. Then no token of the piece is hit, and
    # the last possible one is taken; a token of mass 0 must never be.
    hit = tl.min(tl.where((before + tl.cumsum(mass, 0) > target) & (mass > 0), column, V), 0)
    last = tl.max(tl.where(mass > 0, column, 0), 0)
    return tl.where(piece == PIECES, V - 1, tl.where(hit < V, hit, last))


# Not specialised by the number of rows: each new batch size would be compiled anew, in the middle of a decode.
@triton.jit(do_not_specialize=["rows"])
def combine_pieces(
    logits: tensor,
    settings: tensor,
    uniform: tensor,
    piece_numbers: tensor,
    piece_tokens: tensor,
    piece_float64: tensor,
    tokens: tensor,
    numbers: tensor,
    rows: tensor,
    V: tl.constexpr,
    PIECES: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
    K: tl.constexpr,
    K_LANES: tl.constexpr,
    EDITS: tl.constexpr,
    UNTRUSTED: tl.constexpr,
    FILTERED: tl.constexpr,
    DRAWS: tl.constexpr,
    GUMBEL: tl.constexpr,
) -> None:
    """Combine the results of a row's pieces, and store its largest tokens, draws, normaliser and entropy."""
    row = tl.program_id(0).to(tl.int64)
    mask_P = tl.arange(0, LANES) < PIECES
    at_P = row * PIECES + tl.arange(0, LANES)
    numbers_P = piece_numbers + at_P * (LARGEST + 2 * K)
    tokens_P = piece_tokens + at_P * (2 * K + DRAWS)
    DRAWN: tl.constexpr = DRAWS if DRAWS > 0 else 1
    logits, tokens, numbers = logits + row * V, tokens + row, numbers + row
    row_numbers = numbers + (2 * K + DRAWN) * rows
    peak_P = tl.load(numbers_P + LARGEST, mask=mask_P, other=NEVER)
    sum_P = tl.load(numbers_P, mask=mask_P, other=0.0)
    peak = tl.max(peak_P, 0)
    log_sum = _log_sum(peak_P, sum_P, peak)
    entropy = _entropy(peak_P, sum_P, tl.load(numbers_P + 1, mask=mask_P, other=0.0), peak, log_sum)
    tl.store(row_numbers + ENTROPY * rows, entropy.to(tl.float32))
    tl.store(row_numbers + LOGZ * rows, (log_sum + peak.to(tl.float64)).to(tl.float32))
    # `compare_distributions` overwrites these where it runs.
    tl.store(row_numbers + GIVEN * rows, 0.0)
    tl.store(row_numbers + DRIFT * rows, float("nan"))
    tl.store(row_numbers + DISPLACEMENT * rows, float("nan"))
    _store_row_top(numbers_P + LARGEST, tokens_P, mask_P, peak, log_sum, tokens, numbers, rows, V, K, K_LANES)
    for draw in tl.static_range(DRAWN):
        if DRAWS == 0:
            token_P = tl.load(tokens_P, mask=mask_P, other=V - 1)
            token = tl.where(peak == NEVER, 0, _argmax_token(peak_P, token_P, V))
        elif GUMBEL:
            score_P = tl.load(piece_float64 + at_P * DRAWS + draw, mask=mask_P, other=NEVER)
            token_P = tl.load(tokens_P + 2 * K + draw, mask=mask_P, other=V - 1)
            token = _argmax_token(score_P, token_P, V)
        else:
            tempered_peak_P = tl.load(numbers_P + TEMPERED + 2, mask=mask_P, other=NEVER)
            mass_P = tl.load(piece_float64 + at_P, mask=mask_P, other=0.0)
            share = tl.load(uniform + row * DRAWS + draw)
            token = _draw_by_inverse_cdf(
                logits, settings, tempered_peak_P, mass_P, share, V, PIECES, SIZE, LANES, EDITS
            )
        z = _load_logit(logits, token, settings, EDITS)
        # Confidence: 0 for an untrusted token, and that of the others is normalised without those.
        if UNTRUSTED > 0:
            trusted_P = tl.load(numbers_P + TRUSTED, mask=mask_P, other=NEVER)
            trusted = tl.max(trusted_P, 0)
            trusted_sum_P = tl.load(numbers_P + TRUSTED + 1, mask=mask_P, other=0.0)
            confidence = _probability(z, trusted, _log_sum(trusted_P, trusted_sum_P, trusted))
            for at in tl.static_range(UNTRUSTED):
                untrusted = tl.load(settings + 1 + 2 * EDITS + at).to(tl.int32)
                confidence = tl.where(token == untrusted, 0.0, confidence)
        else:
            confidence = _probability(z, peak, log_sum)
        tl.store(tokens + (2 * K + draw) * rows, token.to(tl.int64))
        tl.store(numbers + (2 * K + draw) * rows, confidence)
        if draw == 0 and FILTERED:
            warm_peak_P = tl.load(numbers_P + TEMPERED + 2, mask=mask_P, other=NEVER)
            warm_sum_P = tl.load(numbers_P + TEMPERED, mask=mask_P, other=0.0)
            warm_peak = tl.max(warm_peak_P, 0)
            warm_log_sum = _log_sum(warm_peak_P, warm_sum_P, warm_peak)
            weighted_P = tl.load(numbers_P + TEMPERED + 1, mask=mask_P, other=0.0)
            warm_top, warm_p = tokens + K * rows, numbers + K * rows
            large_P, token_P = numbers_P + LARGEST + K, tokens_P + K
            _store_row_top(large_P, token_P, mask_P, warm_peak, warm_log_sum, warm_top, warm_p, rows, V, K, K_LANES)
            warm_entropy = _entropy(warm_peak_P, warm_sum_P, weighted_P, warm_peak, warm_log_sum)
            tl.store(row_numbers + TEMPERED_ENTROPY * rows, warm_entropy.to(tl.float32))
            warm_z = tl.div_rn(z, tl.load(settings).to(tl.float32))
            tl.store(row_numbers + PROPOSED * rows, _probability(warm_z, warm_peak, warm_log_sum))
        elif draw == 0:
            tl.store(row_numbers + PROPOSED * rows, _probability(z, peak, log_sum))


# --- kernel 3: compare a row with a given token and with its previous distribution --------------------------------


@triton.jit
def _divergences(
    numbers_P: tensor, mask_P: tensor, peak_P: tensor, sum_P: tensor, peak: tensor, log_sum: tensor, old_logz: tensor
) -> tensor:
    """Return KL(new || old) and KL(old || new), at least 0; `numbers_P` points to the sums for the divergences."""
    logz = log_sum + peak.to(tl.float64)
    gain = logz - old_logz.to(tl.float64)
    shift_P = _finite_peak(peak_P).to(tl.float64) - tl.load(numbers_P + 6, mask=mask_P, other=0.0).to(tl.float64)
    gap_P = tl.load(numbers_P, mask=mask_P, other=0.0).to(tl.float64) + shift_P * sum_P.to(tl.float64)
    scale_P = _rescale_factors(peak_P, peak)
    drift = tl.sum(tl.where(scale_P > 0, scale_P * gap_P, 0.0), 0) / tl.exp(log_sum) - gain
    low_q_P = tl.load(numbers_P + 1, mask=mask_P, other=0.0).to(tl.float64)
    low_log_P = tl.load(numbers_P + 2, mask=mask_P, other=0.0).to(tl.float64)
    q_P = tl.load(numbers_P + 3, mask=mask_P, other=0.0).to(tl.float64)
    log_P = tl.load(numbers_P + 4, mask=mask_P, other=0.0).to(tl.float64)
    back_P = tl.load(numbers_P + 5, mask=mask_P, other=0.0).to(tl.float64)
    # Where a whole piece lies below the floor, its log p is the floor, whatever its logits are.
    usual_P = tl.where(peak_P.to(tl.float64) < logz + FLOOR, log_P - FLOOR * q_P, back_P + (gain - shift_P) * q_P)
    displacement = tl.sum(usual_P + low_log_P - FLOOR * low_q_P, 0)
    return tl.where(drift < 0, 0.0, drift), tl.where(displacement < 0, 0.0, displacement)


@triton.jit(do_not_specialize=["rows"])
def compare_distributions(
    logits: tensor,
    settings: tensor,
    given: tensor,
    old_logz: tensor,
    old_row: tensor,
    piece_numbers: tensor,
    row_numbers: tensor,
    rows: tensor,
    V: tl.constexpr,
    PIECES: tl.constexpr,
    LANES: tl.constexpr,
    K: tl.constexpr,
    EDITS: tl.constexpr,
    GIVEN_TOKEN: tl.constexpr,
    OLD: tl.constexpr,
) -> None:
    """Store the probability of the given token and both divergences of one row."""
    row = tl.program_id(0).to(tl.int64)
    mask_P = tl.arange(0, LANES) < PIECES
    numbers_P = piece_numbers + (row * PIECES + tl.arange(0, LANES)) * (LARGEST + 2 * K)
    peak_P = tl.load(numbers_P + LARGEST, mask=mask_P, other=NEVER)
    peak = tl.max(peak_P, 0)
    sum_P = tl.load(numbers_P, mask=mask_P, other=0.0)
    log_sum = _log_sum(peak_P, sum_P, peak)
    row_numbers += row
    if GIVEN_TOKEN:
        z = _load_logit(logits + row * V, tl.load(given + row), settings, EDITS)
        tl.store(row_numbers + GIVEN * rows, _probability(z, peak, log_sum))
    if OLD:
        old = tl.load(old_row + row)
        logz = tl.load(old_logz + tl.maximum(old, 0))
        drift, displacement = _divergences(numbers_P + DIVERGENCE, mask_P, peak_P, sum_P, peak, log_sum, logz)
        tl.store(row_numbers + DRIFT * rows, tl.where(old >= 0, drift, float("nan")).to(tl.float32))
        tl.store(row_numbers + DISPLACEMENT * rows, tl.where(old >= 0, displacement, float("nan")).to(tl.float32))
