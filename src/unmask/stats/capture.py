"""How much of the opportunity the best-ranked few states hold. NumPy in, numbers out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.crossfit import TIE, Array, CrossFit, Ints

COVERAGES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of states, as in the paper's tables."""


def concentration(fit: CrossFit, coverages: Sequence[float] = COVERAGES) -> dict[float, float]:
    """C*(c): the share of all opportunity in the top c of states (section 5, beside `eq:captured_opportunity`).

    One fold ranks states by the opportunity it sees, the other says what they hold, and back; both directions are
    added before dividing. Where opportunity is 0 or less in all, there is no share: NaN.
    """
    used = fit.used_S
    halves = [Ranked(fit.seen_FS[f, used], fit.g_FS[f, used], np.ones((1, int(used.sum())))) for f in (0, 1)]
    return {c: float(x) for c, x in zip(coverages, captured_shares(halves, coverages)[0], strict=True)}


@dataclass(frozen=True)
class Ranked:
    """States with the score that ranks them, the value they hold and what they count in each replicate."""

    score_S: Array
    value_S: Array
    weight_DS: Array


def captured_shares(halves: Sequence[Ranked], coverages: Sequence[float]) -> Array:
    """Value in the top c by score over all value, (D, C); both summed over the halves first.

    NaN where all value is 0 or less.
    """
    top_DC = np.sum([top_sums(half.score_S, half.value_S, coverages, half.weight_DS) for half in halves], 0)
    total_D1 = np.sum([half.weight_DS @ half.value_S[:, None] for half in halves], 0)
    mass_D1 = np.sum([half.weight_DS.sum(1, keepdims=True) for half in halves], 0)
    share_DC = np.divide(top_DC, total_D1, out=np.full(top_DC.shape, np.nan), where=total_D1 > TIE * mass_D1)
    return np.round(share_DC, 12)  # so that all of it is 1, not nearly 1


def top_sums(
    score_S: ArrayLike, value_S: ArrayLike, coverages: Sequence[float], weight_DS: ArrayLike | None = None
) -> Array:
    """Weighted sum of `value` over the states that make up the top c of all weight by `score`, (D, C).

    States tied at the cut share what is left of it: the exact expectation over ties broken uniformly. c times the
    number of states is not rounded; part of a state counts in part. A NaN score ranks last.
    """
    score, value = np.asarray(score_S, dtype=np.float64), np.asarray(value_S, dtype=np.float64)
    weight = np.ones((1, len(score))) if weight_DS is None else np.asarray(weight_DS, dtype=np.float64)
    if score.ndim != 1 or score.shape != value.shape or weight.shape != (len(weight), len(score)):
        raise ValueError(
            f"score_S has shape {score.shape}, value_S {value.shape} and weight_DS {weight.shape}; "
            "pass one score and one value for each state, and weights with a column for each"
        )
    if not all(0 < c <= 1 for c in coverages):
        raise ValueError(f"coverages are {tuple(coverages)}; each must be above 0 and at most 1, such as 0.1")
    if not np.isfinite(value).all():
        raise ValueError("value_S has values that are not finite; leave those states out")
    if len(score) == 0 or len(coverages) == 0:
        return np.zeros((len(weight), len(coverages)))
    order, ends = _groups(score)
    weight = weight[:, order]
    upto_DG, gained_DG = weight.cumsum(1), (weight * value[order]).cumsum(1)
    if len(ends) < len(order):
        upto_DG, gained_DG = upto_DG[:, ends], gained_DG[:, ends]
    return np.stack([_cut(upto_DG, gained_DG, c) for c in coverages], 1)


def rounded(score_S: Array) -> Array:
    """Scores that differ by rounding only become equal; NaN becomes the smallest."""
    return np.asarray(np.round(np.where(np.isnan(score_S), -np.inf, score_S), 9), dtype=np.float64)


def _groups(score_S: Array) -> tuple[Ints, Ints]:
    """Best states first, and where each group of equal scores ends."""
    key = -rounded(score_S)
    order = np.argsort(key, kind="stable")
    return order, np.flatnonzero(np.r_[key[order][1:] != key[order][:-1], True])


def _cut(upto_DG: Array, gained_DG: Array, coverage: float) -> Array:
    """Whole groups up to the cut, and the share of the next one that fits; both tables are cumulative."""
    row, wanted_D = np.arange(len(upto_DG)), coverage * upto_DG[:, -1]
    at_D = np.minimum((upto_DG < wanted_D[:, None] * (1 - TIE)).sum(1), upto_DG.shape[1] - 1)
    before_D, gained_D = (np.where(at_D > 0, x_DG[row, at_D - 1], 0.0) for x_DG in (upto_DG, gained_DG))
    mass_D, sum_D = upto_DG[row, at_D] - before_D, gained_DG[row, at_D] - gained_D
    part_D = np.divide(wanted_D - before_D, mass_D, out=np.zeros_like(mass_D), where=mass_D > 0)
    return gained_D + np.minimum(part_D, 1.0) * sum_D
