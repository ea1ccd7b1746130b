"""How much choosing by state could gain over one fixed action, where it lies and how sure that is.

`q_SAR[s, a, r]`: utility of action a at state s in rollout r, in [0, 1], NaN where missing; one model, one candidate
set, one or more tasks. Choose the fixed action on validation prompts (`choose_fixed`), then measure on others
(`summary`). The single numbers without intervals take what `crossfit` returns. NumPy in, numbers out.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from unmask.stats import pairs
from unmask.stats.bootstrap import LEVEL, RESAMPLES, Estimate, bootstrap, cluster_sums, codes, ratio
from unmask.stats.concentration import COVERAGES, captured_shares
from unmask.stats.crossfit import TIE, Array, Bools, CrossFit, Folds, Ints, crossfit, mean_of, utilities

STAGES = 4
FEWEST = 10
"""Prompts with a positive opportunity below which an interval is marked unreliable; docs/opportunity.md has why."""


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
    """A mean opportunity and what it is made of; delta = positive + negative = frequency * margin."""

    delta: float
    """Signed mean of the cross-fitted g."""
    positive: float
    negative: float
    """Mean of the parts of g above and below 0; the second is <= 0."""
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
    """States where some action's rollouts differ; 0 means that there was nothing to correct."""
    naive: float
    crossfitted: float

    @property
    def optimism(self) -> float:
        """What picking and grading on the same rollouts would add to the gap."""
        return self.naive - self.crossfitted


@dataclass(frozen=True)
class PairEstimates:
    """A number for each pair of actions, symmetric, with its interval."""

    value_AA: Array
    low_AA: Array
    high_AA: Array

    @property
    def largest(self) -> tuple[int, int] | None:
        """The pair with the largest number above 0."""
        value = np.nan_to_num(np.triu(self.value_AA, 1))
        a, b = (int(i) for i in np.unravel_index(value.argmax(), value.shape))
        return (a, b) if value[a, b] > 0 else None


@dataclass(frozen=True)
class Opportunity:
    """Every opportunity quantity of one group of states."""

    delta: Estimate
    positive: Estimate
    negative: Estimate
    frequency: Estimate
    margin: Estimate
    positive_rate: Estimate
    naive: Estimate
    optimism: Estimate
    bidirectional: Estimate
    pair: tuple[int, int] | None
    """The pair behind `bidirectional`; None where no pair reverses."""
    concentration: dict[float, Estimate]
    pairwise: PairEstimates
    audit: Audit
    states: int
    excluded: int
    """States left out for want of a usable fixed action."""
    prompts: int
    positive_prompts: int
    """Prompts with a state of positive cross-fitted opportunity."""
    crossfitted: bool
    unreliable: str
    """Why the intervals should not be relied on; empty if they may."""


@dataclass(frozen=True)
class Summary:
    """A group of states as a whole, by stage, and by task."""

    overall: Opportunity
    stages: dict[int, Opportunity] = field(default_factory=dict)
    tasks: dict[str, "Summary"] = field(default_factory=dict)


Fixed = int | FixedAction | Mapping[str, int] | Mapping[str, FixedAction]


def choose_fixed(q_SAR: ArrayLike, *, reference: int | None = None) -> FixedAction:
    """a_fix: the best mean utility over validation states, all rollouts (the paper's section 4.1, `eq:adaptation_gap`).

    Actions are compared on the same states: those where each of them has a utility. An action that has none anywhere
    is left out first. Ties go to the reference, then to the first.
    """
    mean_SA = mean_of(utilities(q_SAR))
    known_A = np.isfinite(mean_SA).any(0)
    complete_S = np.isfinite(mean_SA[:, known_A]).all(1)
    if not known_A.any() or not complete_S.any():
        raise ValueError(
            f"q_SAR has no state where all of its {int(known_A.sum())} known actions have a utility; "
            "they must share one or more states: leave out the action that is missing most"
        )
    mean_A = np.where(known_A, mean_SA[complete_S].mean(0), np.nan)
    tied_A = np.nan_to_num(mean_A, nan=-np.inf) >= np.nanmax(mean_A) - TIE
    if reference is not None and not 0 <= reference < len(mean_A):
        raise ValueError(f"reference is {reference}; the table has actions 0..{len(mean_A) - 1}")
    action = reference if reference is not None and tied_A[reference] else int(tied_A.argmax())
    return FixedAction(action, mean_A, int(complete_S.sum()), int((~complete_S).sum()))


def choose_fixed_by_task(
    q_SAR: ArrayLike, task_S: ArrayLike, *, reference: int | None = None
) -> dict[str, FixedAction]:
    """The fixed action of each task."""
    q = utilities(q_SAR)
    names = _labels("task_S", task_S, len(q))
    return {str(t): choose_fixed(q[names == t], reference=reference) for t in np.unique(names)}


def stages(masked_S: ArrayLike, count: int = STAGES) -> Ints:
    """Stage of each state by its masked fraction: 0 is the start, above 3/4 of the answer masked; 3 the end."""
    masked = np.asarray(masked_S, dtype=np.float64)
    if masked.ndim != 1 or not ((masked >= 0) & (masked <= 1)).all():
        raise ValueError("masked_S must be one fraction in [0, 1] for each state: masked answer positions by all")
    return np.minimum(np.floor(count * (1 - masked)), count - 1).astype(np.int64)


def gap(fit: CrossFit) -> Gap:
    """Delta_adapt and its decompositions. `eq:adaptation_gap`, `eq:frequency_margin_decomposition`

    The decomposition holds for the cross-fitted numbers too: a state where the picking fold sees no reversal keeps the
    fixed action and gains exactly 0, so delta = frequency * margin, however noisy the rollouts.
    """
    values = _ratios(state_sums(fit).sum(0, keepdims=True))[0]
    return Gap(*(float(values[_NAMES.index(name)]) for name in Gap.__dataclass_fields__))


def audit(fit: CrossFit) -> Audit:
    """The naive estimate beside the cross-fitted one, over the states that have both."""
    used = fit.used_S
    g_S, naive_S = fit.g_S[used], fit.naive_S[used]
    states = len(g_S)
    return Audit(
        states=states,
        same=int((np.abs(naive_S - g_S) <= TIE).sum()),
        noisy=int(fit.noisy_S[used].sum()),
        naive=float(naive_S.mean()) if states else float("nan"),
        crossfitted=float(g_S.mean()) if states else float("nan"),
    )


def summary(
    q_SAR: ArrayLike,
    prompt_S: ArrayLike,
    *,
    fixed: Fixed,
    seed: int,
    task_S: ArrayLike | None = None,
    stage_S: ArrayLike | None = None,
    reference: int | None = None,
    folds: Folds | None = None,
    deterministic: bool = False,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    coverages: Sequence[float] = COVERAGES,
) -> Summary:
    """All of it for one table, with prompt-cluster bootstrap intervals.

    `fixed` comes from validation prompts, one action or one for each task, and is not chosen again in a replicate.
    Prompts are resampled within tasks, and the states of a prompt move together. Over several tasks each task counts
    the same, whatever its number of states. A task's numbers do not depend on which others are in the table.
    """
    q = utilities(q_SAR)
    task = np.full(len(q), "") if task_S is None else _labels("task_S", task_S, len(q)).astype(str)
    stage = None if stage_S is None else _labels("stage_S", stage_S, len(q))
    prompt = _labels("prompt_S", prompt_S, len(q))
    names = [str(t) for t in np.unique(task)]
    chosen = {t: _fixed_of(fixed, t) for t in names}
    fixed_S = np.array([chosen[t][0] for t in task.tolist()])
    fit = crossfit(q, fixed_S, reference=reference, folds=folds, deterministic=deterministic)
    table = _Table(fit, state_sums(fit), task, prompt, stage)
    settings = _Settings(seed, resamples, level, tuple(coverages))
    parts = {t: _summary(table, {t: chosen[t][1]}, settings) for t in names}
    if task_S is None:
        return parts[names[0]]
    whole = _summary(table, {t: mean_A for t, (_, mean_A) in chosen.items()}, settings)
    return Summary(whole.overall, whole.stages, parts)
