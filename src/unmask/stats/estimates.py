"""Single numbers about opportunity, without intervals; `opportunity.summary` has all of them with intervals.

NumPy in, numbers out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats.bootstrap import ratio
from unmask.stats.crossfit import TIE, Array, CrossFit, Ints, mean_of, utilities
from unmask.stats.errors import NotEnough

STAGES = 4


@dataclass(frozen=True)
class FixedAction:
    """The action with the best mean utility on validation states."""

    action: int
    mean_A: Array
    """Mean utility of every action; NaN for one without any utility."""
    states: int
    """States behind the means: those where every action that can be chosen has a utility."""
    excluded: int


@dataclass(frozen=True)
class Gap:
    """A mean opportunity and what it is made of: delta = positive + negative = frequency * margin."""

    delta: float
    """Signed mean of the cross-fitted g."""
    positive: float
    """Mean of the part of g above 0."""
    negative: float
    """Mean of the part of g below 0; itself <= 0."""
    frequency: float
    """How often the picking fold sees a reversal."""
    margin: float
    """Mean gain there, as the other fold grades it; NaN without a reversal."""
    positive_rate: float
    """Share of states with g > 0."""


@dataclass(frozen=True)
class Audit:
    """What cross-fitting changed."""

    states: int
    same: int
    """States where the naive and the cross-fitted opportunity are the same number."""
    noisy: int
    """States where some action's rollouts differ; with none there was nothing to correct."""
    naive: float
    crossfitted: float

    @property
    def optimism(self) -> float:
        """What picking and grading on the same rollouts would add to the gap."""
        return self.naive - self.crossfitted


MASS, G, ABOVE, BELOW, SEEN, POSITIVE, NAIVE, OPTIMISM = range(8)
RATIOS = {
    "delta": (G, MASS),
    "positive": (ABOVE, MASS),
    "negative": (BELOW, MASS),
    "frequency": (SEEN, MASS),
    "margin": (G, SEEN),
    "positive_rate": (POSITIVE, MASS),
    "naive": (NAIVE, MASS),
    "optimism": (OPTIMISM, MASS),
}
"""Which column of `state_columns`, summed over states, is divided by which."""


def choose_fixed(q_SAR: ArrayLike, *, reference: int | None = None) -> FixedAction:
    """a_fix: the best mean utility over validation states and all rollouts. `eq:adaptation_gap`

    Actions are compared on the same states: those where each of them has a utility. An action that has none anywhere
    is left out first. Ties go to the reference, then to the first.
    """
    mean_SA = mean_of(utilities(q_SAR))
    known_A = np.asarray(np.isfinite(mean_SA).any(0))
    complete_S = np.isfinite(mean_SA[:, known_A]).all(1)
    if reference is not None and not 0 <= reference < len(known_A):
        raise ValueError(f"reference is {reference}; the table has actions 0..{len(known_A) - 1}")
    if not known_A.any() or not complete_S.any():
        raise NotEnough(
            f"q_SAR has no state where all of its {int(known_A.sum())} actions with a utility have one; "
            "they must share one or more: leave out the action that is missing most"
        )
    mean_A = np.where(known_A, mean_SA[complete_S].mean(0), np.nan)
    tied_A = np.nan_to_num(mean_A, nan=-1.0) >= np.nanmax(mean_A) - TIE
    action = reference if reference is not None and tied_A[reference] else int(tied_A.argmax())
    return FixedAction(action, mean_A, int(complete_S.sum()), int((~complete_S).sum()))


def choose_fixed_by_task(
    q_SAR: ArrayLike, task_S: ArrayLike, *, reference: int | None = None
) -> dict[str, FixedAction]:
    """The fixed action of each task."""
    q, task = utilities(q_SAR), np.asarray(task_S)
    if task.shape != (len(q),):
        raise ValueError(f"task_S has shape {task.shape}; it must name the task of each of {len(q)} states")
    return {str(t): choose_fixed(q[task == t], reference=reference) for t in np.unique(task)}


def stages(masked_S: ArrayLike, count: int = STAGES) -> Ints:
    """Stage of each state by the masked fraction of its answer: of four, 0 has more than 3/4 masked, 3 at most 1/4."""
    masked = np.asarray(masked_S, dtype=np.float64)
    if masked.ndim != 1 or not ((masked >= 0) & (masked <= 1)).all():
        raise ValueError(
            f"masked_S has shape {masked.shape} and values {masked.ravel()[:3]}...; it must be one fraction in [0, 1] "
            "for each state: masked positions of the answer by all of them"
        )
    return np.minimum(np.floor(count * (1 - masked)), count - 1).astype(np.int64)


def gap(fit: CrossFit) -> Gap:
    """Delta_adapt and its decompositions. `eq:adaptation_gap`, `eq:frequency_margin_decomposition`

    Frequency times margin holds for cross-fitted numbers too: where the picking fold sees no reversal it keeps the
    fixed action, which gains exactly 0, so delta = frequency * margin however noisy the rollouts are.
    """
    ratio_of = dict(zip(RATIOS, ratios(state_columns(fit).sum(0, keepdims=True))[0].tolist(), strict=True))
    return Gap(**{name: ratio_of[name] for name in Gap.__dataclass_fields__})


def audit(fit: CrossFit, row_S: Ints | None = None) -> Audit:
    """The naive estimate beside the cross-fitted one, on the same states; of some rows only, where given."""
    used_S = np.isin(np.arange(len(fit.g_S)), row_S) & fit.used_S if row_S is not None else fit.used_S
    g_S, naive_S = fit.g_S[used_S], fit.naive_S[used_S]
    same, noisy = np.abs(naive_S - g_S) <= TIE, fit.noisy_S[used_S]
    naive, crossfitted = (float(x_S.mean()) if len(x_S) else float("nan") for x_S in (naive_S, g_S))
    return Audit(len(g_S), int(same.sum()), int(noisy.sum()), naive, crossfitted)


def state_columns(fit: CrossFit) -> Array:
    """What is summed over states for `RATIOS`, (S, 8); an excluded state adds nothing to any sum."""
    g_S, naive_S = fit.g_S, fit.naive_S
    columns = (
        np.ones(len(g_S)),
        g_S,
        np.maximum(g_S, 0.0),
        np.minimum(g_S, 0.0),
        (fit.seen_FS > 0).mean(0),
        (g_S > 0).astype(np.float64),
        naive_S,
        naive_S - g_S,
    )
    return np.where(fit.used_S[:, None], np.stack(columns, 1), 0.0)


def ratios(sum_DM: Array) -> Array:
    """`RATIOS` of summed columns, one row for each replicate."""
    top, bottom = zip(*RATIOS.values(), strict=True)
    return ratio(sum_DM[:, top], sum_DM[:, bottom])
