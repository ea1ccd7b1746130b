"""How much of the opportunity the best-ranked few states hold. NumPy in, numbers out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.crossfit import TIE, Array, CrossFit

COVERAGES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of states, as in the paper's tables."""


def concentration(fit: CrossFit, coverages: Sequence[float] = COVERAGES) -> dict[float, float]:
    """C*(c): the share of all opportunity in the top c of states (section 5, beside `eq:captured_opportunity`).

    One fold ranks states by the opportunity it sees, the other says what they hold, and back; both directions are
    added before dividing. Where opportunity is 0 or less in all, there is no share: NaN.
    """
    weight_RS = np.ones((1, int(fit.used_S.sum())))
    found = captured_shares(fit.seen_FS[:, fit.used_S], fit.g_FS[:, fit.used_S], coverages, weight_RS)[0]
    return {c: float(x) for c, x in zip(coverages, found, strict=True)}


def captured_shares(score_FS: Array, value_FS: Array, coverages: Sequence[float], weight_RS: Array) -> Array:
    """Value in the top c by score over all value, (replicates, coverages), where the total is above 0."""
    total_R1 = weight_RS @ value_FS.sum(0)[:, None]
    both = [top_sums(score_S, value_S, coverages, weight_RS) for score_S, value_S in zip(score_FS, value_FS, strict=True)]
    top_RC = np.sum(both, 0)
    some_R1 = total_R1 > TIE * weight_RS.sum(1, keepdims=True)
    return np.divide(top_RC, total_R1, out=np.full(top_RC.shape, np.nan), where=some_R1)


def top_sums(
    score_S: ArrayLike, value_S: ArrayLike, coverages: Sequence[float], weight_RS: ArrayLike | None = None
) -> Array:
    """Weighted sum of `value` over the states that make up the top c of all weight by `score`, (replicates, C).

    States tied at the cut share what is left of it: the exact expectation over ties broken uniformly. c times the
    number of states is not rounded; part of a state counts in part. A NaN score ranks last.
    """
    score, value = np.asarray(score_S, dtype=np.float64), np.asarray(value_S, dtype=np.float64)
    weight = np.ones((1, len(score))) if weight_RS is None else np.asarray(weight_RS, dtype=np.float64)
    if score.ndim != 1 or score.shape != value.shape or weight.shape != (len(weight), len(score)):
        raise ValueError(
            f"score_S has shape {score.shape}, value_S {value.shape} and weight_RS {weight.shape}; "
            "pass one score and one value for each state, and weights with a column for each"
        )
    if not all(0 < c <= 1 for c in coverages):
        raise ValueError(f"coverages are {tuple(coverages)}; each must be above 0 and at most 1, such as 0.1")
    if not np.isfinite(value).all():
        raise ValueError("value_S has values that are not finite; leave those states out")
    if len(score) == 0:
        return np.zeros((len(weight), len(coverages)))
    order, starts = _groups(score)
    weight = weight[:, order]
    mass_RG = np.add.reduceat(weight, starts, axis=1)
    sum_RG = np.add.reduceat(weight * value[order], starts, axis=1)
    return _cut(mass_RG, sum_RG, np.asarray(coverages))


def _groups(score_S: Array) -> tuple[Array, Array]:
    """Best states first, and where each group of equal scores starts."""
    key = -np.round(np.where(np.isnan(score_S), -np.inf, score_S), 9)
    order = np.argsort(key, kind="stable")
    return order, np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]])


def _cut(mass_RG: Array, sum_RG: Array, coverage_C: Array) -> Array:
    """Whole groups up to the cut, and the share of the next one that fits."""
    upto_RG, gained_RG = mass_RG.cumsum(1), sum_RG.cumsum(1)
    out_RC = np.empty((len(mass_RG), len(coverage_C)))
    row = np.arange(len(mass_RG))
    for k, c in enumerate(coverage_C):
        wanted_R = c * upto_RG[:, -1]
        at_R = np.minimum((upto_RG < wanted_R[:, None] * (1 - TIE)).sum(1), upto_RG.shape[1] - 1)
        mass_R, sum_R = mass_RG[row, at_R], sum_RG[row, at_R]
        left_R = wanted_R - (upto_RG[row, at_R] - mass_R)
        part_R = np.divide(left_R, mass_R, out=np.zeros_like(left_R), where=mass_R > 0)
        out_RC[:, k] = gained_RG[row, at_R] - sum_R + part_R * sum_R
    return out_RC
