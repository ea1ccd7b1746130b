"""From the answers of a comparison to numbers: means, intervals, differences to the reference on the same prompts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.errors import UnknownName
from unmask.lab.compare import Evaluation, LeftOut, TaskRun
from unmask.stats.bootstrap import MEAN_RESAMPLES, Estimate, against, macro_intervals, mean_intervals

MACRO = "macro"
"""In place of a task's name: the mean over tasks, each counting the same."""


@dataclass(frozen=True)
class PolicyLine:
    """A policy's means on one task, or over all of them."""

    task: str
    policy: str
    utility: Estimate
    difference: Estimate
    """To the reference, on the prompts that both have a utility for."""
    forwards: float
    """Per prompt."""
    unscored: int
    """Answers that the evaluator could not judge."""


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
    """Tasks with a utility of the reference."""
    left_out: tuple[LeftOut, ...]

    def line(self, task: str, policy: str) -> PolicyLine:
        lines = {(line.task, line.policy): line for line in (*self.lines, *self.macro)}
        if (task, policy) not in lines:
            raise UnknownName("task and policy", f"{task}, {policy}", (f"{t}, {p}" for t, p in lines))
        return lines[task, policy]

    def of(self, task: str) -> tuple[PolicyLine, ...]:
        return self.macro if task == MACRO else tuple(line for line in self.lines if line.task == task)

    def best(self, task: str) -> PolicyLine | None:
        """The policy with the largest difference, the first of ties; the reference if no other is better.

        None if there is no other.

        Its interval flatters: it was chosen on the same prompts. `picks` of another split avoid that.
        """
        others = [x for x in self.of(task) if x.policy != self.reference and not math.isnan(x.difference.value)]
        best = max(others, key=lambda line: line.difference.value, default=None)
        return best if best is None or best.difference.value > 0 else self.line(task, self.reference)

    def picks(self) -> dict[str, str]:
        """The best policy of each task, and over all: to be shown on other prompts than it was chosen on."""
        best = {task: self.best(task) for task in (*(run.task for run in self.tasks), MACRO)}
        return {task: line.policy for task, line in best.items() if line is not None}


def summarise(evaluation: Evaluation, *, resamples: int = MEAN_RESAMPLES, seed: int | None = None) -> CompareSummary:
    """Means with 95 % intervals from `resamples` bootstrap draws of the prompts; `seed` defaults to the run's."""
    seed = evaluation.config["seed"] if seed is None else seed
    grids = [_PolicyGrid.of(evaluation, run) for run in evaluation.tasks if not run.unavailable]
    scored = [grid for grid in grids if np.isfinite(grid.utility_PA[:, 0]).any()]
    return CompareSummary(
        split=evaluation.split,
        reference=evaluation.reference,
        tasks=evaluation.tasks,
        lines=tuple(line for grid in grids for line in grid.lines(resamples, seed)),
        macro=tuple(_macro(scored, resamples, seed)),
        macro_tasks=tuple(grid.task for grid in scored),
        left_out=evaluation.left_out,
    )


@dataclass(frozen=True)
class _PolicyGrid:
    """One task's utilities, prompts by policies; the reference is the first column."""

    task: str
    policies: tuple[str, ...]
    utility_PA: np.ndarray
    forwards_A: np.ndarray

    @classmethod
    def of(cls, evaluation: Evaluation, run: TaskRun) -> "_PolicyGrid":
        rows = [row for row in evaluation.rows if row.task == run.task]
        out = {left.policy for left in evaluation.left_out if left.task == run.task}
        policies = tuple(policy for policy in evaluation.policies if policy not in out)
        utility = np.array([row.utility for row in rows]).reshape(len(policies), run.prompts).T
        forwards = np.array([row.forwards for row in rows], float).reshape(len(policies), run.prompts)
        # A task whose every policy was left out has no rows.
        mean_A = forwards.mean(1) if rows else np.full(len(policies), np.nan)
        return cls(run.task, policies, utility, mean_A)

    def lines(self, resamples: int, seed: int) -> Iterator[PolicyLine]:
        means = mean_intervals(self.utility_PA, seed=seed, resamples=resamples)
        differences = mean_intervals(against(self.utility_PA, 0), seed=seed, resamples=resamples)
        unscored_A = np.isnan(self.utility_PA).sum(0)
        for policy, *values in zip(self.policies, means, differences, self.forwards_A, unscored_A, strict=True):
            mean, difference, forwards, unscored = values
            yield PolicyLine(self.task, policy, mean, difference, float(forwards), int(unscored))

    def cut(self, policies: Sequence[str]) -> "_PolicyGrid":
        at = [self.policies.index(policy) for policy in policies]
        return _PolicyGrid(self.task, tuple(policies), self.utility_PA[:, at], self.forwards_A[at])


def _macro(grids: Sequence[_PolicyGrid], resamples: int, seed: int) -> Iterator[PolicyLine]:
    if not grids:
        return
    everywhere = [p for p in grids[0].policies if all(p in grid.policies for grid in grids)]
    whole = [grid.cut(everywhere) for grid in grids]
    tables = [grid.utility_PA for grid in whole]
    means = macro_intervals(tables, seed=seed, resamples=resamples)
    differences = macro_intervals([against(x, 0) for x in tables], seed=seed, resamples=resamples)
    forwards_A = np.mean([grid.forwards_A for grid in whole], 0)
    unscored_A = np.sum([np.isnan(x).sum(0) for x in tables], 0)
    for at, policy in enumerate(everywhere):
        yield PolicyLine(MACRO, policy, means[at], differences[at], float(forwards_A[at]), int(unscored_A[at]))
