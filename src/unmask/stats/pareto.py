"""Which of several policies buy something: quality against cost. NumPy in, numbers out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.bootstrap import LEVEL, MEAN_RESAMPLES, against, macro_intervals

Flags = NDArray[np.bool_]


def pareto_front(quality_A: ArrayLike, cost_A: ArrayLike) -> Flags:
    """Which policies are beaten by none: no other has at least their quality at no more cost and is better in one.

    Two that are equal in both are both there; a policy without a number is not.
    """
    quality, cost = _numbers("quality_A", quality_A), _numbers("cost_A", cost_A)
    if len(quality) != len(cost):
        raise ValueError(f"quality_A has {len(quality)} policies and cost_A {len(cost)}; pass one number each")
    # Row by column: the column's policy beats the row's. Comparisons with NaN are false.
    no_worse_AA = (quality >= quality[:, None]) & (cost <= cost[:, None])
    better_AA = (quality > quality[:, None]) | (cost < cost[:, None])
    known_A = np.isfinite(quality) & np.isfinite(cost)
    return np.asarray(known_A & ~(no_worse_AA & better_AA).any(1))


def sure_front(
    tables: Sequence[ArrayLike],
    cost_A: ArrayLike,
    among_A: ArrayLike,
    *,
    seed: int,
    resamples: int = MEAN_RESAMPLES,
    level: float = LEVEL,
) -> Flags:
    """Which policies are better than every one that costs no more, beyond noise: the paired interval leaves out zero.

    Asked about are those of `among_A`, say the front. `tables` hold each task's qualities, prompts by policies; costs
    are compared as they are. The cheapest policy has nothing to beat, so it is sure if it is alone at its cost.
    """
    cost = _numbers("cost_A", cost_A)
    sure_A = np.isfinite(cost) & np.asarray(among_A, dtype=bool)
    for own in np.flatnonzero(sure_A):
        cheaper_A = cost <= cost[own]
        cheaper_A[own] = False
        if cheaper_A.any():
            columns = [own, *np.flatnonzero(cheaper_A)]
            paired = [against(np.asarray(x_PA, float)[:, columns], 0) for x_PA in tables]
            estimates = macro_intervals(paired, seed=seed, resamples=resamples, level=level)[1:]
            sure_A[own] = all(other.high < 0 for other in estimates)
    return sure_A


def _numbers(name: str, value_A: ArrayLike) -> NDArray[np.float64]:
    value = np.asarray(value_A, dtype=np.float64)
    if value.ndim != 1:
        raise ValueError(f"{name} has shape {value.shape}; it must be one number per policy, NaN for none")
    return value
