"""Bets against a mean: confidence sequences for the mean of bounded numbers (Waudby-Smith and Ramdas, 2024).

To doubt "the mean is at most m" one bets on each number being above m, at odds that are fair if it were so. A capital
that grows twentyfold has at most one chance in twenty under any distribution on [0, 1] with that mean, at whatever
moment one looks (Ville's inequality). Numbers that vary little make it grow fast, so a hundred prompts suffice
where Hoeffding's bound, which knows nothing but the range, allows for 0.24. NumPy in, numbers out.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.crossfit import Array
from unmask.stats.errors import NotEnough

BETS = 20
"""Shares of the capital that are put at stake, 1/20 to all of it; each has an equal part of the money."""
_STEPS = 60
"""Halvings of [0, 1]: below the spacing of floating point."""


def capital(x_P: ArrayLike, null: float) -> Array:
    """What 1 grows to after each number, betting against "the mean is at most `null`".

    With a share c of the capital at stake it is multiplied by 1 - c + c x / null, which has a mean of at most 1 if the
    mean of x is at most null. It falls with `null` and rises with every x, so bounds do, too.
    """
    x = _bounded(x_P)
    if not 0 < null <= 1:
        raise ValueError(f"null is {null}; it must be above 0, at most 1")
    shares = np.arange(1, BETS + 1) / BETS
    with np.errstate(divide="ignore"):  # All is at stake and lost.
        growth_by_bet = np.log1p(shares[:, None] * (x / null - 1)).cumsum(1)
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(growth_by_bet).mean(0))


def p_value(x_P: ArrayLike, null: float) -> float:
    """Of "the mean is at most `null`": one by the largest capital so far, which holds whenever one stops to look."""
    return float(min(1.0, 1 / capital(x_P, null).max()))


def lower_bound(x_P: ArrayLike, risk: float) -> float:
    """The mean is above this but for a probability of `risk`: all smaller means are rejected at that level."""
    if not 0 < risk < 1:
        raise ValueError(f"risk is {risk}; it must be above 0 and below 1")
    x = _bounded(x_P)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle > 0 and p_value(x, middle) <= risk:
            low = middle
        else:
            high = middle
    return low


def from_differences(difference_P: ArrayLike) -> Array:
    """Differences of utilities, from -1 to 1, as numbers from 0 to 1."""
    return (np.asarray(difference_P, dtype=np.float64) + 1) / 2


def as_difference(mean: float) -> float:
    """Back again."""
    return 2 * mean - 1


def least_margin(n: int, risk: float) -> float:
    """The smallest margin that `n` prompts can show for a gate that changes nothing; a smaller one needs a gain."""
    if n < 1:
        return math.inf
    return -as_difference(lower_bound(np.full(n, 0.5), risk))


def _bounded(x_P: ArrayLike) -> Array:
    x = np.asarray(x_P, dtype=np.float64)
    if x.ndim != 1 or not len(x):
        raise NotEnough(f"there are {x.size} numbers in {x.ndim} dimensions; a bound needs one or more, in a row")
    # Written so that NaN is refused.
    if not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"numbers are from {x.min()} to {x.max()}; they must be from 0 to 1")
    return x
