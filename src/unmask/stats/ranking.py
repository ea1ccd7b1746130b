"""How well one number ranks another, what the best-ranked states hold, and the Pareto front. Needs NumPy alone.

Weights are how often each state counts, one row per resample: a weight of 2 is two equal states.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.resampling import LEVEL, Array, Bools, Estimate, Ints, NotEnough, divide_or_nan

TIE = 1e-9
"""Largest difference of utilities that counts as none: two means of the same thirds can differ in their last bit."""
COVERAGES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Coverages of the paper's tables: shares of all states."""


def zero_rounding(x: Array) -> Array:
    """Replace differences that are no larger than rounding errors by 0; NaN stays NaN."""
    return np.where(np.abs(x) <= TIE, 0.0, x)


def round_scores(score_S: Array) -> Array:
    """Round scores, so that rounding errors do not order them; NaN becomes the smallest. Every ranking uses this."""
    return np.asarray(np.round(np.where(np.isnan(score_S), -np.inf, score_S), 9), dtype=np.float64)


def auroc(
    score_S: ArrayLike, positive_S: ArrayLike, weight_DS: ArrayLike | None = None, group_S: ArrayLike | None = None
) -> Array:
    """Compute the chance that a positive state scores above another one, ties counted half, for each resample.

    NaN where all states are of one class. A NaN score is the smallest. With groups, only states of the same group are
    compared, so that what tells the groups apart cannot help.
    """
    score, positive, weight = _check_ranking_inputs(score_S, positive_S, weight_DS)
    group = np.zeros(len(score), dtype=np.int64) if group_S is None else np.asarray(group_S)
    wins_D, pairs_D = np.zeros((2, len(weight)))
    for one in np.unique(group):
        member_S = group == one
        place_S, places = _dense_ranks(score[member_S])
        up_DS, down_DS = weight[:, member_S] * positive[member_S], weight[:, member_S] * (1 - positive[member_S])
        up_DG, down_DG = _sums_by_rank(up_DS, place_S, places), _sums_by_rank(down_DS, place_S, places)
        wins_D += (up_DG * (down_DG.cumsum(1) - down_DG / 2)).sum(1)
        pairs_D += up_DS.sum(1) * down_DS.sum(1)
    return divide_or_nan(wins_D, pairs_D)


def spearman(score_S: ArrayLike, value_S: ArrayLike, weight_DS: ArrayLike | None = None) -> Array:
    """Compute Spearman's correlation for each resample; NaN where scores or values are constant.

    Numbers that differ by rounding only are ties. A NaN score is the smallest.
    """
    score, value, weight = _check_ranking_inputs(score_S, value_S, weight_DS)
    a_DS, b_DS = (_centred_midranks(x_S, weight) for x_S in (score, value))
    both_D, a_D, b_D = ((weight * x * y).sum(1) for x, y in ((a_DS, b_DS), (a_DS, a_DS), (b_DS, b_DS)))
    # A constant has a variance of rounding only; ranks have at least 1/4 of a state, squared.
    varied_D = np.minimum(a_D, b_D) > 1e-6
    return np.divide(both_D, np.sqrt(a_D * b_D), out=np.full(len(weight), np.nan), where=varied_D)


def sum_top_states(
    score_S: ArrayLike, value_S: ArrayLike, coverages: Sequence[float], weight_DS: ArrayLike | None = None
) -> Array:
    """Sum values over the states with the highest scores, those that make up a share c of all weight, (D, C).

    States tied at the cut share what is left of it: the exact expectation over ties broken uniformly. c times the
    number of states is not rounded; part of a state counts in part. A NaN score ranks last.
    """
    score, value = np.asarray(score_S, dtype=np.float64), np.asarray(value_S, dtype=np.float64)
    weight = np.ones((1, len(score))) if weight_DS is None else np.asarray(weight_DS, dtype=np.float64)
    if not all(0 < c <= 1 for c in coverages):
        raise ValueError(f"coverages are {tuple(coverages)}; each must be above 0 and at most 1, such as 0.1")
    if not np.isfinite(value).all():
        raise ValueError("value_S has values that are not finite; leave those states out")
    if len(score) == 0 or len(coverages) == 0:
        return np.zeros((len(weight), len(coverages)))
    key = -round_scores(score)
    order = np.argsort(key, kind="stable")
    ends = np.flatnonzero(np.r_[key[order][1:] != key[order][:-1], True])
    weight = weight[:, order]
    # Cumulative weight and value at the end of each group of equal scores, best first.
    upto_DG, gained_DG = weight.cumsum(1)[:, ends], (weight * value[order]).cumsum(1)[:, ends]
    row = np.arange(len(weight))
    sums = []
    for c in coverages:
        wanted_D = c * upto_DG[:, -1]
        # The tolerance keeps a group that ends at the cut, but for rounding, on this side of it.
        cut_D = np.minimum((upto_DG < wanted_D[:, None] * (1 - TIE)).sum(1), upto_DG.shape[1] - 1)
        before_D, sum_D = (np.where(cut_D > 0, x_DG[row, cut_D - 1], 0.0) for x_DG in (upto_DG, gained_DG))
        mass_D, gain_D = upto_DG[row, cut_D] - before_D, gained_DG[row, cut_D] - sum_D
        part_D = np.divide(wanted_D - before_D, mass_D, out=np.zeros_like(mass_D), where=mass_D > 0)
        sums.append(sum_D + np.minimum(part_D, 1.0) * gain_D)
    return np.stack(sums, 1)


def captured_shares(halves: Sequence[tuple[Array, Array, Array]], coverages: Sequence[float]) -> Array:
    """Compute the share of the total value held by the top share c of states by score, (D, C); NaN without value.

    Each half is (score_S, value_S, weight_DS). Both sums are added over the halves before they are divided. A total
    of 0 or less leaves nothing to share.
    """
    top_DC = np.sum([sum_top_states(score, value, coverages, weight) for score, value, weight in halves], 0)
    total_D1 = np.sum([weight @ value[:, None] for _, value, weight in halves], 0)
    mass_D1 = np.sum([weight.sum(1, keepdims=True) for _, _, weight in halves], 0)
    share_DC = np.divide(top_DC, total_D1, out=np.full(top_DC.shape, np.nan), where=total_D1 > TIE * mass_D1)
    # Rounded so that all of it is 1, not nearly 1.
    return np.round(share_DC, 12)


def pareto_front(quality_A: ArrayLike, cost_A: ArrayLike) -> Bools:
    """Mark the Pareto front: policies that no other one equals in quality and cost and beats in one of them.

    Two that are equal in both are both on the front; a policy without a number is not.
    """
    quality, cost = np.asarray(quality_A, dtype=np.float64), np.asarray(cost_A, dtype=np.float64)
    # Row by column: the column's policy beats the row's. Comparisons with NaN are false.
    no_worse_AA = (quality >= quality[:, None]) & (cost <= cost[:, None])
    better_AA = (quality > quality[:, None]) | (cost < cost[:, None])
    return np.asarray(np.isfinite(quality) & np.isfinite(cost) & ~(no_worse_AA & better_AA).any(1))


def wilson_interval(right: int, n: int, level: float = LEVEL) -> Estimate:
    """Compute the share `right` of `n` with Wilson's interval; NaN where nothing was counted.

    The interval keeps its level near 0 and 1 too, where a bootstrap of n wrong answers would have no width.
    """
    if not 0 <= right <= n:
        raise ValueError(f"right is {right} of n = {n}; it must be from 0 to n")
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, n=0)
    share, z = right / n, NormalDist().inv_cdf((1 + level) / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At the ends the interval touches 0 or 1 but for rounding.
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)), n=n)


def _check_ranking_inputs(
    score_S: ArrayLike, value_S: ArrayLike, weight_DS: ArrayLike | None
) -> tuple[Array, Array, Array]:
    score, value = np.asarray(score_S, dtype=np.float64), np.asarray(value_S, dtype=np.float64)
    weight = np.ones((1, len(score))) if weight_DS is None else np.asarray(weight_DS, dtype=np.float64)
    if not len(score):
        raise NotEnough("there is no state to rank; pass one or more")
    if not np.isfinite(value).all():
        raise ValueError("values are not all finite; leave those states out")
    return score, value, weight


def _dense_ranks(score_S: Array) -> tuple[Ints, int]:
    """Number the distinct scores, smallest first; return the number of each state, and how many there are."""
    # Means of bins are sums that were rounded: equal bins must share a place, or the last bit would order them.
    distinct, place_S = np.unique(round_scores(score_S), return_inverse=True)
    return place_S.ravel().astype(np.int64), len(distinct)


def _centred_midranks(x_S: Array, weight_DS: Array) -> Array:
    """Compute weighted midranks of the states less their mean, for each resample."""
    place_S, places = _dense_ranks(x_S)
    mass_DG = _sums_by_rank(weight_DS, place_S, places)
    middle_DG = mass_DG.cumsum(1) - mass_DG / 2
    # Midranks have the same mean whatever the ties: half of all weight.
    return np.asarray((middle_DG - mass_DG.sum(1, keepdims=True) / 2)[:, place_S])


def _sums_by_rank(x_DS: Array, place_S: Ints, places: int) -> Array:
    """Sum columns that share a rank, for each resample."""
    order = np.argsort(place_S, kind="stable")
    return np.asarray(np.add.reduceat(x_DS[:, order], np.searchsorted(place_S[order], np.arange(places)), axis=1))
