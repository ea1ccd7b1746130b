"""A gate that cannot hurt: thresholds chosen on one half of the prompts and tested on the other.

Everything that is fitted, and the order in which thresholds are tested, comes of the first half. On the second each
threshold's null hypothesis is "decoding with it is worse than the fixed action by the margin or more", and testing
stops at the first that is not rejected: so the chance that any harmful one passes is the level of a single
test. To leave the gate shut is always admissible. NumPy in, numbers out; docs/detection.md says why it is done so.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.betting import as_difference, from_differences, lower_bound, p_value
from unmask.stats.crossfit import TIE, Array, Bools, Ints

MARGIN = 0.05
"""Of mean utility, which lies in [0, 1]: what is accepted unless somebody says otherwise."""


@dataclass(frozen=True)
class SequenceTest:
    """What came of testing thresholds in a row."""

    chosen: int | None
    """Which of the thresholds; None is never."""
    tested: tuple[int, ...]
    """In the order in which they were: all but the last passed, and the last unless none was left."""
    passed: tuple[int, ...]
    difference: float
    """Of the chosen one: mean of gated less fixed on the tested prompts; 0 for never."""
    bound: float
    """Of the chosen one: its mean over all prompts is above this, at the level of the test; 0 for never."""
    reason: str
    """Why never; empty otherwise."""


def fitted_half(prompts: int, seed: int) -> Bools:
    """Which prompts are fitted on; the others are tested on. Drawn at random; of an odd number the tested are more."""
    return np.random.default_rng([seed, 2]).permutation(prompts) < prompts // 2


def worst_differences(gated_PH: ArrayLike, fixed_P: ArrayLike) -> Array:
    """Gated less fixed. An answer that could not be judged counts as it would hurt most: nobody knows better."""
    gated, fixed = np.asarray(gated_PH, dtype=np.float64), np.asarray(fixed_P, dtype=np.float64)
    return np.where(np.isnan(gated), 0.0, gated) - np.where(np.isnan(fixed), 1.0, fixed)[:, None]


def sequence_order(fitted_PH: ArrayLike, margin: float) -> Ints:
    """Thresholds that gain on the fitted prompts, the one with the strongest evidence there first.

    One that gains nothing there is not worth a risk, however small. `fitted_PH` are differences to the fixed action.
    """
    fitted = np.asarray(fitted_PH, dtype=np.float64)
    if not len(fitted):
        return np.zeros(0, dtype=np.int64)
    evidence = [p_value(from_differences(column), _null(margin)) for column in fitted.T]
    gains = np.flatnonzero(fitted.mean(0) > TIE)
    return np.array(sorted(gains, key=lambda h: (evidence[h], h)), dtype=np.int64)


def in_sequence(fitted_PH: ArrayLike, tested_PH: ArrayLike, *, risk: float, margin: float) -> SequenceTest:
    """Test thresholds in the order of the fitted prompts; of those that pass, the one that gained most there.

    Columns are thresholds, rows prompts, numbers differences to the fixed action, end to end.
    """
    if not 0 < risk < 1 or not 0 < margin < 1:
        raise ValueError(f"risk is {risk} and margin {margin}; both must be above 0 and below 1")
    fitted, tested = np.asarray(fitted_PH, dtype=np.float64), np.asarray(tested_PH, dtype=np.float64)
    order = sequence_order(fitted, margin)
    if not len(order) or not len(tested):
        why = "no threshold gains anything, end to end, on the prompts that are fitted on"
        return SequenceTest(None, (), (), 0.0, 0.0, why if len(tested) else "there is no prompt to test on")
    passed: list[int] = []
    for h in order.tolist():
        if p_value(from_differences(tested[:, h]), _null(margin)) > risk:
            break
        passed.append(h)
    seen = tuple(order[: len(passed) + 1].tolist())
    if not passed:
        why = f"that it is not worse by more than {margin:g}, end to end, is not shown by {len(tested)} prompts"
        return SequenceTest(None, seen, (), 0.0, 0.0, why)
    best = max(passed, key=lambda h: (fitted[:, h].mean(), -h))
    # Above the margin for certain, whatever the last digit of the bisection says.
    bound = max(-margin, as_difference(lower_bound(from_differences(tested[:, best]), risk)))
    return SequenceTest(best, seen, tuple(passed), float(tested[:, best].mean()), bound, "")


def _null(margin: float) -> float:
    return float(from_differences(-margin))
