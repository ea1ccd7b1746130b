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
    fixed_T = {t: _fixed_of(fixed, t) for t in names}
    actions_S = np.array([_action(fixed_T[t]) for t in task.tolist()])
    fit = crossfit(q, actions_S, reference=reference, folds=folds, deterministic=deterministic)
    column_SK = _columns(fit, _orders(fit, task, fixed_T))
    settings = _Settings(seed, resamples, level, tuple(coverages))

    def measured(chosen: Sequence[str]) -> Summary:
        group = _group(fit, column_SK, task, prompt, chosen)
        kept = () if stage is None else np.unique(stage[group.row_S]).tolist()
        by_stage = {int(k): _measure(_part(group, stage == k), settings) for k in kept}
        return Summary(_measure(group, settings), by_stage)

    tasks = {t: measured([t]) for t in names}
    if task_S is None:
        return tasks[""]
    whole = measured(names)
    return Summary(whole.overall, whole.stages, tasks)


_MASS, _G, _ABOVE, _BELOW, _SEEN, _POSITIVE, _NAIVE, _OPTIMISM = range(8)
_RATIOS = {
    "delta": (_G, _MASS),
    "positive": (_ABOVE, _MASS),
    "negative": (_BELOW, _MASS),
    "frequency": (_SEEN, _MASS),
    "margin": (_G, _SEEN),
    "positive_rate": (_POSITIVE, _MASS),
    "naive": (_NAIVE, _MASS),
    "optimism": (_OPTIMISM, _MASS),
}
"""Which sums over states are divided by which."""


@dataclass(frozen=True)
class _Settings:
    seed: int
    resamples: int
    level: float
    coverages: tuple[float, ...]


@dataclass(frozen=True)
class _Group:
    """Some states of a table, and the prompts that are resampled."""

    fit: CrossFit
    column_SK: Array
    """What is summed over states, for all states of the table."""
    row_S: Ints
    """The states of the group in the table."""
    prompt_S: Ints
    """Their prompts, numbered through the strata."""
    weight_S: Array
    """What they count: over several tasks, each task the same."""
    prompts_T: list[int]
    task_T: list[str]


def _base_columns(fit: CrossFit) -> Array:
    """The sums behind `_RATIOS`; an excluded state adds nothing to any."""
    g_S, seen_FS = fit.g_S, fit.seen_FS
    columns = [
        np.ones(len(g_S)),
        g_S,
        np.maximum(g_S, 0),
        np.minimum(g_S, 0),
        (seen_FS > 0).mean(0),
        g_S > 0,
        fit.naive_S,
        fit.naive_S - g_S,
    ]
    return np.where(fit.used_S[:, None], np.stack(columns, 1), 0.0)


def _columns(fit: CrossFit, better_SAA: Bools) -> Array:
    """The base columns; then for each pair a < b: a over b, b over a, the loser over the better, and both known."""
    won_SAA, both_SAA = pairs.wins(fit)
    a, b = np.triu_indices(won_SAA.shape[1], 1)
    up_SK, down_SK = won_SAA[:, a, b], won_SAA[:, b, a]
    reversal_SK = np.where(better_SAA[:, a, b], down_SK, up_SK)
    return np.concatenate([_base_columns(fit), up_SK, down_SK, reversal_SK, both_SAA[:, a, b]], 1)


def _base_ratios(sum_RK: Array) -> Array:
    top, bottom = zip(*_RATIOS.values(), strict=True)
    return ratio(sum_RK[:, top], sum_RK[:, bottom])


def _statistic(group: _Group, coverages: Sequence[float], weight_RP: Array) -> Array:
    """All numbers of a group for given prompt counts: base ratios, B, C*, then the pairwise reversals."""
    columns = group.column_SK[group.row_S] * group.weight_S[:, None]
    sum_RK = weight_RP @ cluster_sums(columns, group.prompt_S, sum(group.prompts_T))
    base, pair = sum_RK[:, : len(_RATIOS)], sum_RK[:, len(_RATIOS) :]
    up_RK, down_RK, reversal_RK, both_RK = np.split(pair, 4, axis=1)
    used_S = group.fit.used_S[group.row_S]
    row_S, weight_RS = group.row_S[used_S], weight_RP[:, group.prompt_S[used_S]] * group.weight_S[used_S]
    share_RC = captured_shares(group.fit.seen_FS[:, row_S], group.fit.g_FS[:, row_S], coverages, weight_RS)
    mass_RK = np.minimum(ratio(up_RK, both_RK), ratio(down_RK, both_RK))
    best_R1 = np.maximum(np.nan_to_num(mass_RK, nan=-np.inf).max(1, initial=0.0, keepdims=True), 0.0)
    best_R1 = np.where(base[:, [_MASS]] > 0, best_R1, np.nan)
    return np.concatenate([_base_ratios(base), best_R1, share_RC, ratio(reversal_RK, both_RK)], 1)


def _measure(group: _Group, settings: _Settings) -> Opportunity:
    """Numbers, intervals and counts of one group."""
    found = bootstrap(
        lambda weight_RP: _statistic(group, settings.coverages, weight_RP),
        group.prompts_T,
        seeds=[(settings.seed, zlib.crc32(t.encode())) for t in group.task_T],
        resamples=settings.resamples,
        level=settings.level,
        width=len(group.row_S),
    )
    base, (mass, *rest) = found[: len(_RATIOS)], found[len(_RATIOS) :]
    shares, reversal = rest[: len(settings.coverages)], rest[len(settings.coverages) :]
    fit, row = group.fit, group.row_S
    prompts = len(np.unique(group.prompt_S[fit.used_S[row]]))
    positive = len(np.unique(group.prompt_S[fit.g_S[row] > 0]))
    return Opportunity(
        **dict(zip(_RATIOS, base, strict=True)),
        bidirectional=mass,
        pair=_best_pair(group),
        concentration=dict(zip(settings.coverages, shares, strict=True)),
        pairwise=_pair_estimates(reversal, fit.q_FSA.shape[2]),
        audit=audit(fit, row),
        states=int(fit.used_S[row].sum()),
        excluded=int((~fit.used_S[row]).sum()),
        prompts=prompts,
        positive_prompts=positive,
        crossfitted=fit.crossfitted,
        unreliable="" if positive >= FEWEST else f"{positive} of {prompts} prompts have a positive opportunity; "
        f"intervals need {FEWEST}",
    )
