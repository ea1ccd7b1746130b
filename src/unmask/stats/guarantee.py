"""A gate whose loss is bounded: thresholds chosen on one half of the prompts, tested on the other. Needs NumPy alone.

Everything that is fitted, and the order in which thresholds are tested, comes of the first half. On the second each
threshold's null hypothesis is "decoding with it is worse than the fixed action by the margin or more", and testing
stops at the first that is not rejected: so the chance that any harmful one passes is the level of a single test. To
leave the gate shut is always admissible. docs/protocol.md says more.

A test is a bet against a mean (Waudby-Smith and Ramdas, 2024). To doubt "the mean is at most m" one bets on each number
being above m, at odds that are fair if it were so. A capital that grows twentyfold has at most one chance in twenty
under any distribution on [0, 1] with that mean, at whatever moment one looks (Ville's inequality). Numbers that vary
little make it grow fast, so a hundred prompts suffice where Hoeffding's bound would allow for 0.24.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.ranking import TIE
from unmask.stats.resampling import Array, Bools, Ints, NotEnough

MARGIN = 0.05
"""Default margin: the loss of mean utility (from 0 to 1) that a gate may have."""
BETS = 20
"""Number of bettors. Bettor k stakes k/20 of its money each time; all begin with the same sum."""
_STEPS = 60
"""Halvings of [0, 1] in the search for a bound, enough to reach the spacing of floating point."""


@dataclass(frozen=True)
class SequentialTest:
    """Outcome of testing thresholds one after the other."""

    chosen: int | None
    """Index of the chosen threshold; None where the gate stays shut."""
    tested: tuple[int, ...] = ()
    """Indices in the order of the tests: all but the last passed, and the last one too where none was left."""
    passed: tuple[int, ...] = ()
    difference: float = 0.0
    """Mean of gated less fixed on the tested prompts, with the chosen threshold; 0 for never."""
    bound: float = 0.0
    """Lower bound of the mean over all prompts, at the level of the test; 0 for never."""
    reason: str = ""
    """Reason why the gate stays shut; empty where it opens."""


def draw_fitted_half(prompts: int, seed: int) -> Bools:
    """Draw at random the half of the prompts to fit on, as a mask (rounded down); the others are for testing."""
    # Folds of prompts are drawn from [seed, 1], so that halves and folds are independent.
    return np.random.default_rng([seed, 2]).permutation(prompts) < prompts // 2


def worst_case_differences(gated_PH: ArrayLike, fixed_P: ArrayLike) -> Array:
    """Subtract utilities of the fixed action from gated ones; an unjudged answer counts as 0 if gated, else as 1."""
    gated, fixed = np.asarray(gated_PH, dtype=np.float64), np.asarray(fixed_P, dtype=np.float64)
    return np.where(np.isnan(gated), 0.0, gated) - np.where(np.isnan(fixed), 1.0, fixed)[:, None]


def order_thresholds(fitted_PH: ArrayLike, margin: float) -> Ints:
    """List the thresholds that gain on the fitted prompts, the one with the strongest evidence first.

    One that gains nothing there is not worth a risk, however small. `fitted_PH` are differences to the fixed action.
    """
    fitted = np.asarray(fitted_PH, dtype=np.float64)
    evidence = (
        [p_value(_to_unit_interval(column), float(_to_unit_interval(-margin))) for column in fitted.T]
        if len(fitted)
        else []
    )
    gains = [h for h in range(len(evidence)) if fitted[:, h].mean() > TIE]
    return np.array(sorted(gains, key=lambda h: (evidence[h], h)), dtype=np.int64)


def sequential_test(fitted_PH: ArrayLike, tested_PH: ArrayLike, *, risk: float, margin: float) -> SequentialTest:
    """Test thresholds in the order that the fitted prompts give, until one fails, and choose among those that pass.

    Columns are thresholds, rows prompts, numbers differences to the fixed action, end to end.
    """
    if not 0 < risk < 1 or not 0 < margin < 1:
        raise ValueError(f"risk is {risk} and margin {margin}; both must be above 0 and below 1")
    fitted, tested = np.asarray(fitted_PH, dtype=np.float64), np.asarray(tested_PH, dtype=np.float64)
    order = order_thresholds(fitted, margin)
    if not len(tested):
        return SequentialTest(None, reason="there is no prompt to test on")
    if not len(order):
        why = "no threshold gains anything, end to end, on the prompts that are fitted on"
        return SequentialTest(None, reason=why)
    passed: list[int] = []
    for h in order.tolist():
        # The first failure ends it: going on would spend the risk more than once.
        if p_value(_to_unit_interval(tested[:, h]), float(_to_unit_interval(-margin))) > risk:
            break
        passed.append(h)
    seen = tuple(order[: len(passed) + 1].tolist())
    if not passed:
        why = f"that it is not worse by more than {margin:g}, end to end, is not shown by {len(tested)} prompts"
        return SequentialTest(None, seen, reason=why)
    best = max(passed, key=lambda h: (fitted[:, h].mean(), -h))
    # Above the margin for certain, whatever the last digit of the bisection says.
    bound = max(-margin, 2 * lower_bound(_to_unit_interval(tested[:, best]), risk) - 1)
    return SequentialTest(best, seen, tuple(passed), float(tested[:, best].mean()), bound)


def smallest_margin(n: int, risk: float) -> float:
    """Compute the smallest margin that a test on `n` prompts can guarantee for a gate without effect on utility.

    A smaller margin passes only for a gate that gains something.
    """
    return math.inf if n < 1 else 1 - 2 * lower_bound(np.full(n, 0.5), risk)


def betting_capital(x_P: ArrayLike, null: float) -> Array:
    """Compute the capital after each number of bettors who start with 1 and bet against "the mean is at most `null`".

    With a share c of the capital at stake it is multiplied by 1 - c + c x / null, which has a mean of at most 1 if the
    mean of x is at most null. It falls with `null` and rises with every x, so bounds do, too.
    """
    x = np.asarray(x_P, dtype=np.float64)
    if not len(x):
        raise NotEnough("there are no numbers; a bound needs one or more")
    # Written so that NaN is refused.
    if not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"numbers are from {x.min()} to {x.max()}; they must be from 0 to 1")
    if not 0 < null <= 1:
        raise ValueError(f"null is {null}; it must be above 0, at most 1")
    shares = np.arange(1, BETS + 1) / BETS
    with np.errstate(divide="ignore"):  # All is at stake and lost.
        growth_by_bet = np.log1p(shares[:, None] * (x / null - 1)).cumsum(1)
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(growth_by_bet).mean(0))


def p_value(x_P: ArrayLike, null: float) -> float:
    """Compute the p-value of the hypothesis "the mean is at most `null`": 1 over the largest betting capital."""
    return float(min(1.0, 1 / betting_capital(x_P, null).max()))


def lower_bound(x_P: ArrayLike, risk: float) -> float:
    """Compute a lower confidence bound of the mean: all smaller means are rejected at level `risk`."""
    if not 0 < risk < 1:
        raise ValueError(f"risk is {risk}; it must be above 0 and below 1")
    # P-values grow with the null, so the means that are not rejected are an interval, and bisection finds its end.
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle > 0 and p_value(x_P, middle) <= risk:
            low = middle
        else:
            high = middle
    return low


def _to_unit_interval(difference_P: ArrayLike) -> Array:
    """Map differences of utilities from [-1, 1] to [0, 1]."""
    return (np.asarray(difference_P, dtype=np.float64) + 1) / 2
