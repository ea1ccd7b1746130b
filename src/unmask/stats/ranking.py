"""How well one number ranks another, ties counted half. NumPy in, numbers out.

Weights are how often each state counts, one row for each replicate: a weight of 2 is two equal states.
"""

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.capture import rounded
from unmask.stats.crossfit import Array, Ints
from unmask.stats.errors import NotEnough


def auroc(
    score_S: ArrayLike, positive_S: ArrayLike, weight_DS: ArrayLike | None = None, group_S: ArrayLike | None = None
) -> Array:
    """Chance that a positive state scores above another one, ties counted half, for each replicate.

    NaN where all states are of one class. A NaN score is the smallest. With groups, only states of the same group are
    compared, so that what tells the groups apart cannot help.
    """
    score, positive, weight = _checked(score_S, positive_S, weight_DS)
    if not np.isin(positive, (0.0, 1.0)).all():
        raise ValueError("positive_S has values other than true and false")
    group = np.zeros(len(score), dtype=np.int64) if group_S is None else np.asarray(group_S)
    if group.shape != score.shape:
        raise ValueError(f"group_S has shape {group.shape}; it must have one entry for each of {len(score)} states")
    wins_D, pairs_D = np.zeros((2, len(weight)))
    for one in np.unique(group):
        member_S = group == one
        place_S, places = dense(score[member_S])
        up_DS, down_DS = weight[:, member_S] * positive[member_S], weight[:, member_S] * (1 - positive[member_S])
        up_DG, down_DG = _group_sums(up_DS, place_S, places), _group_sums(down_DS, place_S, places)
        wins_D += (up_DG * (down_DG.cumsum(1) - down_DG / 2)).sum(1)
        pairs_D += up_DS.sum(1) * down_DS.sum(1)
    return np.divide(wins_D, pairs_D, out=np.full(len(weight), np.nan), where=pairs_D > 0)


def spearman(score_S: ArrayLike, value_S: ArrayLike, weight_DS: ArrayLike | None = None) -> Array:
    """Correlation of midranks, for each replicate; NaN where one of the two is constant.

    A NaN score is the smallest. Values that differ by rounding only are equal; scores are taken as they are.
    """
    score, value, weight = _checked(score_S, value_S, weight_DS)
    a_DS, b_DS = (_centred_midranks(x_S, weight) for x_S in (score, rounded(value)))
    both_D, a_D, b_D = ((weight * x * y).sum(1) for x, y in ((a_DS, b_DS), (a_DS, a_DS), (b_DS, b_DS)))
    # A constant has a variance of rounding only; ranks have at least 1/4 of a state, squared.
    some_D = np.minimum(a_D, b_D) > 1e-6
    return np.divide(both_D, np.sqrt(a_D * b_D), out=np.full(len(weight), np.nan), where=some_D)


def dense(score_S: Array) -> tuple[Ints, int]:
    """Place of each state among the distinct scores, smallest first, and how many there are."""
    distinct, place_S = np.unique(np.where(np.isnan(score_S), -np.inf, score_S), return_inverse=True)
    return place_S.ravel().astype(np.int64), len(distinct)


def by_signal(score_S: ArrayLike, signal_S: ArrayLike) -> Array:
    """The same order with ties broken by the signal, the larger first; a NaN score stays last."""
    score, signal = np.asarray(score_S, dtype=np.float64), np.asarray(signal_S, dtype=np.float64)
    pair_S2 = np.stack([rounded(score), np.where(np.isnan(score), 0.0, signal)], 1)
    _, place_S = np.unique(pair_S2, axis=0, return_inverse=True)
    return np.where(np.isnan(score), np.nan, place_S.ravel().astype(np.float64))


def _centred_midranks(x_S: Array, weight_DS: Array) -> Array:
    place_S, groups = dense(x_S)
    mass_DG = _group_sums(weight_DS, place_S, groups)
    middle_DG = mass_DG.cumsum(1) - mass_DG / 2
    # Midranks have the same mean whatever the ties: half of all weight.
    return np.asarray((middle_DG - mass_DG.sum(1, keepdims=True) / 2)[:, place_S])


def _group_sums(x_DS: Array, place_S: Ints, groups: int) -> Array:
    order = np.argsort(place_S, kind="stable")
    return np.asarray(np.add.reduceat(x_DS[:, order], np.searchsorted(place_S[order], np.arange(groups)), axis=1))


def _checked(score_S: ArrayLike, value_S: ArrayLike, weight_DS: ArrayLike | None) -> tuple[Array, Array, Array]:
    score, value = np.asarray(score_S, dtype=np.float64), np.asarray(value_S, dtype=np.float64)
    weight = np.ones((1, len(score))) if weight_DS is None else np.asarray(weight_DS, dtype=np.float64)
    fits = score.ndim == 1 and score.shape == value.shape and weight.shape == (len(weight), len(score))
    if not (fits and len(score)):
        wrong = NotEnough if fits else ValueError
        raise wrong(
            f"scores have shape {score.shape}, values {value.shape} and weights {weight.shape}; "
            "pass one score and one value for each state, one or more, and weights with a column for each"
        )
    if not np.isfinite(value).all():
        raise ValueError("values are not all finite; leave those states out")
    return score, value, weight
