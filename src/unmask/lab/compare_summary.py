"""From the answers of a comparison to numbers: means, intervals, differences to the reference on the same prompts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unmask.base.errors import UnknownName
from unmask.lab.compare import Evaluation, TaskRun
from unmask.lab.compare_failed import LeftOut
from unmask.stats import PROMPT_RESAMPLES, Array, Bools, Estimate, mean_over_tasks, pareto_front

MACRO = "macro"
"""In place of a task's name: the mean over tasks, each counting the same."""
NEAR_ZERO = 0.02
"""A task on which no policy's mean utility reaches this is shown and not averaged: there is nothing to tell apart."""

_COUNTED = ("extra_forwards", "planner_forwards", "remasks", "processed_tokens")
"""Of every answer; their means have no interval."""


@dataclass(frozen=True)
class PolicyLine:
    """A policy's means on one task, or over all of them."""

    task: str
    policy: str
    utility: Estimate
    difference: Estimate
    """To the reference, on the prompts that both have a utility for."""
    forwards: Estimate
    """Per prompt."""
    forwards_ratio: Estimate
    """How many times the reference's."""
    tokens_per_forward: Estimate
    """Answer positions, filler included: what the schedule reveals."""
    tokens_per_forward_ratio: Estimate
    answer_tokens_per_forward: Estimate
    """Tokens before the end of text: what a reader gets."""
    extra_forwards: float
    """Of the forwards per prompt: beyond one a step."""
    planner_forwards: float
    remasks: float
    processed_tokens: float
    """Per prompt, like those above."""
    unscored: int
    """Answers that the evaluator could not judge."""
    label: str = ""
    """How far the method can be trusted: verified, reconstruction, this library, or own."""
    made_for: str = ""
    """How its authors run the method, where a run's defaults are others."""
    front: bool = False
    """No other policy has at least this utility for no more forwards and is better in one of them."""
    sure: bool = False
    """On the front beyond noise: better than each policy with no more forwards, the paired interval leaves out zero."""


@dataclass(frozen=True)
class CompareSummary:
    """One line per task and policy, and the mean over tasks."""

    split: str
    reference: str
    tasks: tuple[TaskRun, ...]
    lines: tuple[PolicyLine, ...]
    macro: tuple[PolicyLine, ...]
    """Of the policies that decoded all of `macro_tasks`."""
    macro_tasks: tuple[str, ...]
    """Tasks with a utility of the reference that are neither near zero nor left out of the mean by the user."""
    near_zero: tuple[str, ...]
    """Shown, not averaged: no policy's mean utility reaches `NEAR_ZERO`."""
    without: tuple[str, ...]
    """Shown, not averaged: the user said so."""
    left_out: tuple[LeftOut, ...]

    def line(self, task: str, policy: str) -> PolicyLine:
        lines = {(line.task, line.policy): line for line in (*self.lines, *self.macro)}
        if (task, policy) not in lines:
            raise UnknownName("task and policy", f"{task}, {policy}", (f"{t}, {p}" for t, p in lines))
        return lines[task, policy]

    def of(self, task: str) -> tuple[PolicyLine, ...]:
        return self.macro if task == MACRO else tuple(line for line in self.lines if line.task == task)

    @property
    def shown(self) -> tuple[str, ...]:
        """The tasks with answers, and the mean over tasks where there is one."""
        tasks = dict.fromkeys(line.task for line in self.lines)
        return (*tasks, *([MACRO] if self.macro else []))

    def best(self, task: str) -> PolicyLine | None:
        """The policy with the largest difference, of ties that with fewest forwards; the reference if none is better.

        None if there is no other.

        Its interval flatters: it was chosen on the same prompts. `picks` of another split avoid that.
        """
        others = [x for x in self.of(task) if x.policy != self.reference and not math.isnan(x.difference.value)]
        best = max(others, key=lambda line: (line.difference.value, -line.forwards.value), default=None)
        return best if best is None or best.difference.value > 0 else self.line(task, self.reference)

    def cheapest(self, task: str) -> PolicyLine | None:
        """Of the policies that are not worse than the reference beyond noise, the one with fewest forwards.

        None where nothing that is as good saves a forward.
        """
        known = [line for line in self.of(task) if not math.isnan(line.difference.value)]
        there = next((line for line in known if line.policy == self.reference), None)
        if there is None:
            return None
        good = [line for line in known if line.difference.high >= 0 and line.forwards.value < there.forwards.value]
        return min(good, key=lambda line: (line.forwards.value, -line.utility.value), default=None)

    def picks(self) -> dict[str, str]:
        """The best policy of each task, and over all: to be shown on other prompts than it was chosen on."""
        best = {task: self.best(task) for task in (*(run.task for run in self.tasks), MACRO)}
        return {task: line.policy for task, line in best.items() if line is not None}


def summarise(
    evaluation: Evaluation,
    *,
    resamples: int = PROMPT_RESAMPLES,
    seed: int | None = None,
    macro_without: Sequence[str] = (),
) -> CompareSummary:
    """Means with 95 % intervals from `resamples` bootstrap draws of the prompts; `seed` defaults to the run's.

    Tasks of `macro_without` are shown and left out of the mean over tasks, and so are those near zero.
    """
    seed = evaluation.config["seed"] if seed is None else seed
    for task in macro_without:
        if task not in (names := [run.task for run in evaluation.tasks]):
            raise UnknownName("task of the comparison", task, names)
    grids = [_PolicyGrid.of(evaluation, run) for run in evaluation.tasks if not run.unavailable]
    grids = [grid for grid in grids if grid.policies]
    standings = evaluation.config.get("methods", {})

    def named(line: PolicyLine) -> PolicyLine:
        told = standings.get(line.policy, {})
        return replace(line, label=told.get("label", ""), made_for=told.get("made_for", ""))

    near_zero = [grid.task for grid in grids if grid.near_zero]
    scored = [grid for grid in grids if grid.has_reference and grid.task not in (*near_zero, *macro_without)]
    return CompareSummary(
        split=evaluation.split,
        reference=evaluation.reference,
        tasks=evaluation.tasks,
        lines=tuple(named(line) for grid in grids for line in _lines(grid.task, [grid], resamples, seed)),
        macro=tuple(named(line) for line in _macro(scored, resamples, seed)),
        macro_tasks=tuple(grid.task for grid in scored),
        near_zero=tuple(near_zero),
        without=tuple(macro_without),
        left_out=evaluation.left_out,
    )


@dataclass(frozen=True)
class _PolicyGrid:
    """One task's numbers, prompts by policies; the reference is the first column."""

    task: str
    policies: tuple[str, ...]
    utility_PA: np.ndarray
    forwards_PA: np.ndarray
    tokens_PA: np.ndarray
    written_PA: np.ndarray
    """Tokens without filler; NaN where they were not counted."""
    means_AM: np.ndarray
    """What is `_COUNTED`, of every policy, per prompt."""

    @classmethod
    def of(cls, evaluation: Evaluation, run: TaskRun) -> "_PolicyGrid":
        rows = [row for row in evaluation.rows if row.task == run.task]
        policies = tuple(dict.fromkeys(row.policy for row in rows))

        def table(name: str) -> np.ndarray:
            return np.array([getattr(row, name) for row in rows], float).reshape(len(policies), -1).T

        counted = [table(name) for name in _COUNTED]
        means = [x_PA.mean(0) for x_PA in counted] if rows else [np.zeros(0)] * len(counted)
        utility, forwards, tokens, written = map(table, ("utility", "forwards", "tokens", "answer_tokens"))
        return cls(run.task, policies, utility, forwards, tokens, written, np.stack(means, 1))

    @property
    def has_reference(self) -> bool:
        """Whether some answer of the reference has a utility."""
        return bool(np.isfinite(self.utility_PA[:, 0]).any())

    @property
    def near_zero(self) -> bool:
        """Whether there are utilities, and no policy's mean is large enough to average."""
        known_PA = np.isfinite(self.utility_PA)
        sum_A, n_A = np.where(known_PA, self.utility_PA, 0.0).sum(0), known_PA.sum(0)
        return bool(n_A.any() and (sum_A < NEAR_ZERO * np.maximum(n_A, 1)).all())

    def cut(self, policies: Sequence[str]) -> "_PolicyGrid":
        at = [self.policies.index(policy) for policy in policies]
        return _PolicyGrid(
            self.task,
            tuple(policies),
            self.utility_PA[:, at],
            self.forwards_PA[:, at],
            self.tokens_PA[:, at],
            self.written_PA[:, at],
            self.means_AM[at],
        )


def _macro(grids: Sequence[_PolicyGrid], resamples: int, seed: int) -> Iterator[PolicyLine]:
    if grids:
        everywhere = [p for p in grids[0].policies if all(p in grid.policies for grid in grids)]
        yield from _lines(MACRO, [grid.cut(everywhere) for grid in grids], resamples, seed)


def _lines(task: str, grids: Sequence[_PolicyGrid], resamples: int, seed: int) -> list[PolicyLine]:
    """A line for each policy: means over these tasks, all of which have the same policies."""
    utility_T = [grid.utility_PA for grid in grids]
    forwards_T, tokens_T = [grid.forwards_PA for grid in grids], [grid.tokens_PA for grid in grids]
    draws: dict[str, Any] = {"seed": seed, "resamples": resamples}
    utilities = mean_over_tasks(utility_T, **draws)
    differences = mean_over_tasks([x_PA - x_PA[:, [0]] for x_PA in utility_T], **draws)
    forwards = mean_over_tasks(forwards_T, **draws)
    forwards_ratios = mean_over_tasks(forwards_T, relative_to=0, **draws)
    speeds = mean_over_tasks(tokens_T, forwards_T, **draws)
    speed_ratios = mean_over_tasks(tokens_T, forwards_T, relative_to=0, **draws)
    written = mean_over_tasks([grid.written_PA for grid in grids], forwards_T, **draws)
    means_AM = np.mean([grid.means_AM for grid in grids], 0)
    unscored_A = np.sum([np.isnan(x_PA).sum(0) for x_PA in utility_T], 0)
    lines = [
        PolicyLine(
            task=task,
            policy=policy,
            utility=utilities[at],
            difference=differences[at],
            forwards=forwards[at],
            forwards_ratio=forwards_ratios[at],
            tokens_per_forward=speeds[at],
            tokens_per_forward_ratio=speed_ratios[at],
            answer_tokens_per_forward=written[at],
            **dict(zip(_COUNTED, means_AM[at].tolist(), strict=True)),
            unscored=int(unscored_A[at]),
        )
        for at, policy in enumerate(grids[0].policies)
    ]
    cost_A = [line.forwards.value for line in lines]
    front_A = pareto_front([line.utility.value for line in lines], cost_A)
    sure_A = sure_front(utility_T, cost_A, front_A, seed=seed, resamples=resamples)
    return [
        replace(line, front=bool(front), sure=bool(sure))
        for line, front, sure in zip(lines, front_A, sure_A, strict=True)
    ]


def sure_front(utility_T: Sequence[Array], cost_A: ArrayLike, front_A: Bools, *, seed: int, resamples: int) -> Bools:
    """Policies of the front that are better than every one that costs no more, beyond noise.

    Beyond noise: the paired interval of the difference leaves out zero. Costs are compared as they are. The cheapest
    policy has nothing to beat, so it is sure if it is alone at its cost.
    """
    cost = np.asarray(cost_A, dtype=np.float64)
    sure_A = np.isfinite(cost) & front_A
    for own in np.flatnonzero(sure_A):
        others = [other for other in np.flatnonzero(cost <= cost[own]) if other != own]
        if others:
            differences = [x_PA[:, others] - x_PA[:, [own]] for x_PA in utility_T]
            estimates = mean_over_tasks(differences, seed=seed, resamples=resamples)
            sure_A[own] = all(other.high < 0 for other in estimates)
    return np.asarray(sure_A)
