"""How much choosing by state could gain over one fixed action, where it lies, and how sure that is.

`q_SAR[s, a, r]`: utility of action a at state s in rollout r, in [0, 1], NaN where missing; one model, one candidate
set, one or more tasks. Choose the fixed action on validation prompts (`choose_fixed`), then measure on others
(`summary`). NumPy in, numbers out; docs/opportunity.md says what each number means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats import pairs
from unmask.stats.bootstrap import LEVEL, RESAMPLES, Estimate, bootstrap, cluster_sums, codes, ratio, task_seeds
from unmask.stats.capture import COVERAGES, Ranked, captured_shares, rounded
from unmask.stats.crossfit import Array, Bools, CrossFit, Folds, Ints, cross_fit, utilities
from unmask.stats.estimates import MASS, RATIOS, Audit, FixedAction, audit, ratios, state_columns

FEWEST = 10
"""Prompts with a positive opportunity below which intervals are marked unreliable; docs/opportunity.md shows why."""

Fixed = int | FixedAction | Mapping[str, int] | Mapping[str, FixedAction]


@dataclass(frozen=True)
class PairEstimates:
    """A number for each pair of actions, symmetric, with its interval."""

    value_AA: Array
    low_AA: Array
    high_AA: Array
    undefined_AA: Array
    """Replicates in which no state has both actions."""

    @property
    def largest(self) -> tuple[int, int] | None:
        """The pair with the largest number; None where none is above 0."""
        a_U, b_U = np.triu_indices(len(self.value_AA), 1)
        k = pairs.first_largest(np.nan_to_num(self.value_AA[a_U, b_U]))
        return None if k is None or not self.value_AA[a_U[k], b_U[k]] > 0 else (int(a_U[k]), int(b_U[k]))


@dataclass(frozen=True)
class Opportunity:
    """Every quantity of one group of states. `Gap` and `Audit` say what those of the same name are."""

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
    """The pair that attains `bidirectional`; None where no pair reverses."""
    concentration: dict[float, Estimate]
    pairwise: PairEstimates
    audit: Audit
    states: int
    excluded: int
    """States left out because the fixed action has no utility in one of the folds."""
    prompts: int
    positive_prompts: int
    """Prompts with a state whose cross-fitted opportunity is positive."""
    crossfitted: bool
    """False where the caller vouched that rollouts cannot differ."""
    unreliable: str
    """Why the intervals should not be relied on; empty where they may be."""

    @property
    def bracket(self) -> tuple[float, float]:
        """From the lower end of `delta` to the upper end of `naive`: holds Delta_adapt where rollouts are noisy, too.

        Few rollouts miss some of the opportunity, so `delta` is too small on average, and `naive` is too large.
        """
        return self.delta.low, self.naive.high


@dataclass(frozen=True)
class OpportunitySummary:
    """A group of states as a whole, by stage and by task; those are empty where the table does not name them."""

    overall: Opportunity
    stages: dict[int, Opportunity] = field(default_factory=dict)
    tasks: dict[str, "OpportunitySummary"] = field(default_factory=dict)


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
) -> OpportunitySummary:
    """All quantities of one table, with prompt-cluster bootstrap intervals.

    `fixed` comes from validation prompts, one for all or one for each task; a replicate does not choose it again.
    Prompts are resampled within tasks, and the states of a prompt move together. Over several tasks each task counts
    the same, whatever its number of states. A task's numbers do not depend on which others are in the table.
    """
    q = utilities(q_SAR)
    prompt = _labels("prompt_S", prompt_S, len(q))
    task = _labels("task_S", np.full(len(q), "") if task_S is None else task_S, len(q)).astype(str)
    stage = None if stage_S is None else _labels("stage_S", stage_S, len(q))
    if stage is not None and stage.dtype.kind not in "iu":
        raise ValueError(f"stage_S has {stage[0]!r}; stages are whole numbers, such as those of `stages`")
    names = [str(t) for t in np.unique(task)]
    fixed_T = {t: _fixed_of(fixed, t) for t in names}
    action_S = np.array([_action(fixed_T[t]) for t in task.tolist()])
    fit = cross_fit(q, action_S, reference=reference, folds=folds, deterministic=deterministic)
    column_SM = np.concatenate([state_columns(fit), _pair_columns(fit, _orders(fit, task, fixed_T))], 1)
    settings = _Settings(seed, resamples, level, tuple(coverages))

    def measured(chosen: list[str]) -> OpportunitySummary:
        group = _group(fit, column_SM, task, prompt, chosen)
        overall = _measure(group, settings)
        if stage is None:
            return OpportunitySummary(overall)
        here_S = stage[group.row_S]
        return OpportunitySummary(
            overall, {int(k): _measure(_only(group, here_S == k), settings) for k in np.unique(here_S)}
        )

    tasks = {t: measured([t]) for t in names}
    return tasks[""] if task_S is None else replace(measured(names), tasks=tasks)


@dataclass(frozen=True)
class _Settings:
    seed: int
    resamples: int
    level: float
    coverages: tuple[float, ...]


@dataclass(frozen=True)
class _StateGroup:
    """Some states of a table, and the prompts that are resampled for them."""

    fit: CrossFit
    column_SM: Array
    """What is summed over states; of all states of the table, like `fit`."""
    row_S: Ints
    """The states of the group."""
    prompt_S: Ints
    """Their prompts, numbered through the tasks."""
    weight_S: Array
    """What each counts: 1 over the usable states of its task, so that tasks count the same."""
    prompts_T: list[int]
    task_T: list[str]


def _group(fit: CrossFit, column_SM: Array, task_S: NDArray, prompt_S: NDArray, chosen: list[str]) -> _StateGroup:
    """All states of the chosen tasks. Prompts of two tasks differ, whatever their names."""
    row, prompt, weight = [], [], []
    prompts_T: list[int] = []
    for t in chosen:
        row_S = np.flatnonzero(task_S == t)
        code_S, prompts = codes(prompt_S[row_S])
        row.append(row_S)
        prompt.append(code_S + sum(prompts_T))
        weight.append(np.full(len(row_S), 1 / max(1, int(fit.used_S[row_S].sum()))))
        prompts_T.append(prompts)
    whole = [np.concatenate(parts) for parts in (row, prompt, weight)]
    return _StateGroup(fit, column_SM, whole[0], whole[1], whole[2], prompts_T, chosen)


def _only(group: _StateGroup, keep_S: Bools) -> _StateGroup:
    """Some of its states; the prompts to draw from stay the same."""
    return replace(group, row_S=group.row_S[keep_S], prompt_S=group.prompt_S[keep_S], weight_S=group.weight_S[keep_S])


def _measure(group: _StateGroup, settings: _Settings) -> Opportunity:
    """Numbers, intervals and counts of one group."""
    sum_PM = cluster_sums(group.column_SM[group.row_S] * group.weight_S[:, None], group.prompt_S, sum(group.prompts_T))
    estimates = bootstrap(
        _statistic(group, sum_PM, settings.coverages),
        group.prompts_T,
        seeds=task_seeds(settings.seed, group.task_T),
        resamples=settings.resamples,
        level=settings.level,
        width=len(group.row_S),
    )
    base, mass, rest = estimates[: len(RATIOS)], estimates[len(RATIOS)], estimates[len(RATIOS) + 1 :]
    fit, row = group.fit, group.row_S
    prompts = len(np.unique(group.prompt_S[fit.used_S[row]]))
    positive = len(np.unique(group.prompt_S[fit.g_S[row] > 0]))
    few = f"{positive} of {prompts} prompts have a positive opportunity; intervals need {FEWEST} or more"
    return Opportunity(
        **dict(zip(RATIOS, base, strict=True)),
        bidirectional=mass,
        pair=_best_pair(sum_PM, fit.q_FSA.shape[2]),
        concentration=dict(zip(settings.coverages, rest, strict=False)),
        pairwise=_pair_estimates(rest[len(settings.coverages) :], fit.q_FSA.shape[2]),
        audit=audit(fit, row),
        states=int(fit.used_S[row].sum()),
        excluded=int((~fit.used_S[row]).sum()),
        prompts=prompts,
        positive_prompts=positive,
        crossfitted=fit.crossfitted,
        unreliable=few if positive < FEWEST else "",
    )


def _statistic(group: _StateGroup, sum_PM: Array, coverages: Sequence[float]) -> Callable[[Array], Array]:
    """All numbers of a group as a function of prompt counts: the ratios, B, C*, then each pair's reversal."""
    halves = [_cells(group, f) for f in (0, 1)]
    # A replicate does not choose the pair again: the largest of resampled masses lies above the largest mass.
    k = pairs.first_largest(_pair_masses(sum_PM.sum(0, keepdims=True))[0][0])
    best = [] if k is None else [k]

    def numbers(count_DP: Array) -> Array:
        sum_DM = count_DP @ sum_PM
        mass_DU, reversal_DU = _pair_masses(sum_DM)
        # An action paired with itself wins nothing, hence the 0.
        mass_D1 = mass_DU[:, best].max(1, initial=0.0, keepdims=True)
        mass_D1 = np.where(sum_DM[:, [MASS]] > 0, mass_D1, np.nan)
        ranked = [Ranked(score, value, count_DP[:, prompt] * mass) for score, value, prompt, mass in halves]
        share_DC = captured_shares(ranked, coverages)
        return np.concatenate([ratios(sum_DM), mass_D1, share_DC, reversal_DU], 1)

    return numbers


def _cells(group: _StateGroup, fold: int) -> tuple[Array, Array, Ints, Array]:
    """What fold f ranks, as score, value, prompt and mass. States of one prompt with one score are one cell.

    They are drawn together and tied, so joining them changes no number and leaves little where opportunity is rare.
    """
    used_S = group.fit.used_S[group.row_S]
    row_S, prompt_S, weight_S = group.row_S[used_S], group.prompt_S[used_S], group.weight_S[used_S]
    score_S = rounded(group.fit.seen_FS[fold, row_S])
    cells, cell_S = np.unique(np.stack([score_S, prompt_S], 1), axis=0, return_inverse=True)
    columns = np.stack([weight_S, weight_S * group.fit.g_FS[fold, row_S]], 1)
    mass, total = cluster_sums(columns, cell_S.ravel(), len(cells)).T
    return cells[:, 0], ratio(total, mass), cells[:, 1].astype(np.int64), mass


def _pair_columns(fit: CrossFit, better_SAA: Bools) -> Array:
    """For each pair a < b: what a wins from b, b from a, the loser from the better one, and whether both are known."""
    won_SAA, both_SAA = pairs.wins(fit)
    a, b = np.triu_indices(won_SAA.shape[1], 1)
    up_SU, down_SU = won_SAA[:, a, b], won_SAA[:, b, a]
    return np.concatenate([up_SU, down_SU, np.where(better_SAA[:, a, b], down_SU, up_SU), both_SAA[:, a, b]], 1)


def _pair_masses(sum_DM: Array) -> tuple[Array, Array]:
    """Bidirectional mass, -inf where no state has both actions, and reversal value of each pair."""
    up_DU, down_DU, reversal_DU, both_DU = np.split(sum_DM[:, len(RATIOS) :], 4, axis=1)
    mass_DU = np.minimum(ratio(up_DU, both_DU), ratio(down_DU, both_DU))
    return np.where(np.isnan(mass_DU), -np.inf, mass_DU), ratio(reversal_DU, both_DU)


def _best_pair(sum_PM: Array, actions: int) -> tuple[int, int] | None:
    """The pair with the largest bidirectional mass, the first of ties; None where no pair reverses."""
    mass_U = _pair_masses(sum_PM.sum(0, keepdims=True))[0][0]
    k = pairs.first_largest(mass_U)
    if k is None or mass_U[k] <= 0:
        return None
    a_U, b_U = np.triu_indices(actions, 1)
    return int(a_U[k]), int(b_U[k])


def _pair_estimates(estimates: Sequence[Estimate], actions: int) -> PairEstimates:
    """From a list over pairs a < b to symmetric tables."""
    a, b = np.triu_indices(actions, 1)
    tables = np.zeros((4, actions, actions))
    for table_AA, name in zip(tables, ("value", "low", "high", "undefined"), strict=True):
        table_AA[a, b] = table_AA[b, a] = [getattr(estimate, name) for estimate in estimates]
    return PairEstimates(*tables)


def _orders(fit: CrossFit, task_S: NDArray, fixed_T: Mapping[str, int | FixedAction]) -> Bools:
    """Which action of each pair is the better fixed one, for each state: that of its task's validation means.

    Where only the action is known, this table's means order the others; the fixed action is better than any.
    """
    actions = fit.q_FSA.shape[2]
    better_SAA = np.empty((len(task_S), actions, actions), bool)
    for t, fixed in fixed_T.items():
        row_S = task_S == t
        mean_A = fixed.mean_A if isinstance(fixed, FixedAction) else pairs.table_means(fit, row_S)
        if len(mean_A) != actions:
            raise ValueError(f"the fixed action of task '{t}' was chosen among {len(mean_A)}; the table has {actions}")
        lifted_A = np.where(np.arange(actions) == _action(fixed), 2.0, mean_A)
        better_SAA[row_S] = pairs.better(lifted_A)
    return better_SAA


def _fixed_of(fixed: Fixed, task: str) -> int | FixedAction:
    if not isinstance(fixed, Mapping):
        return fixed
    if task not in fixed:
        raise ValueError(f"fixed has no action for task '{task}', only for {sorted(fixed)}; choose one on validation")
    return fixed[task]


def _action(fixed: int | FixedAction) -> int:
    return fixed.action if isinstance(fixed, FixedAction) else fixed


def _labels(name: str, value_S: ArrayLike, states: int) -> NDArray:
    value = np.asarray(value_S)
    if value.shape != (states,):
        raise ValueError(f"{name} has shape {value.shape}; it must have one entry for each of {states} states")
    return value
