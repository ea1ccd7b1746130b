"""From the seconds of a comparison's batches to numbers: per prompt, per token, and against the reference.

What was measured is a batch, so batches are what is resampled: the prompts of one share their seconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np

from unmask.lab.compare import Evaluation
from unmask.lab.compare_summary import MACRO, CompareSummary
from unmask.lab.compare_timing import BatchTime
from unmask.stats import PROMPT_RESAMPLES, Estimate, mean_over_tasks, pareto_front


@dataclass(frozen=True)
class SpeedLine:
    """How long a policy took on one task, or on the mean over tasks."""

    task: str
    policy: str
    seconds: Estimate
    """Of decoding, per prompt; no interval with fewer than two batches."""
    ratio: Estimate
    """How many times the reference's, over the batches that one machine measured of both."""
    tokens_per_second: Estimate
    """Answer positions, filler included."""
    answer_tokens_per_second: Estimate
    """Tokens before the end of text."""
    batches: int
    """Behind these numbers."""
    cold: bool
    """Only first batches were measured: what happens on first use is in the seconds."""
    front: bool = False
    """No other policy has at least this utility in no more time and is better in one of them."""


@dataclass(frozen=True)
class SpeedSummary:
    """Wall time: to be compared within one run, and never the same in two."""

    lines: tuple[SpeedLine, ...]
    macro: tuple[SpeedLine, ...]
    measured: int
    """Batches measured in this run."""
    earlier: int
    """Batches whose seconds an earlier run measured."""
    elsewhere: int
    """Of those: on another machine, device or number of threads."""
    unknown: int
    """Batches whose seconds are lost."""
    machines: tuple[str, ...]

    def of(self, task: str) -> tuple[SpeedLine, ...]:
        return self.macro if task == MACRO else tuple(line for line in self.lines if line.task == task)


def summarise_speed(
    evaluation: Evaluation, summary: CompareSummary, *, resamples: int = PROMPT_RESAMPLES, seed: int | None = None
) -> SpeedSummary:
    """Seconds per prompt with intervals over batches, for the lines that a summary has."""
    seed = evaluation.config["seed"] if seed is None else seed
    tables = {task: _TimeTable.of(evaluation, summary, task) for task in summary.shown if task != MACRO}
    lines = [line for table in tables.values() for line in _lines(table.task, [table], summary, resamples, seed)]
    macro: list[SpeedLine] = []
    if summary.macro:
        policies = [line.policy for line in summary.macro]
        macro = _lines(MACRO, [tables[task].cut(policies) for task in summary.macro_tasks], summary, resamples, seed)
    known = [batch.time for batch in evaluation.times if batch.time is not None]
    here = [time for time in known if time.run == evaluation.run]
    machines = dict.fromkeys(time.machine for time in (*here, *known))
    earlier = [time for time in known if time.run != evaluation.run]
    return SpeedSummary(
        lines=tuple(lines),
        macro=tuple(macro),
        measured=len(here),
        earlier=len(earlier),
        elsewhere=sum(time.machine != evaluation.machine for time in earlier),
        unknown=len(evaluation.times) - len(known),
        machines=tuple(machines),
    )


@dataclass(frozen=True)
class _TimeTable:
    """One task's batches by policies; the reference is the first column."""

    task: str
    policies: tuple[str, ...]
    seconds_PA: np.ndarray
    """NaN where it is not known, or not to be counted."""
    rows_PA: np.ndarray
    tokens_PA: np.ndarray
    written_PA: np.ndarray
    machine_PA: np.ndarray
    cold_A: np.ndarray

    @classmethod
    def of(cls, evaluation: Evaluation, summary: CompareSummary, task: str) -> "_TimeTable":
        policies = tuple(line.policy for line in summary.of(task))
        by_place = {(b.policy, b.batch): b.time for b in evaluation.times if b.task == task}
        batches = range(1 + max((batch for _, batch in by_place), default=-1))
        columns = [list(_counted([by_place.get((policy, batch)) for batch in batches])) for policy in policies]
        known = [[t for t in column if t is not None] for column in columns]
        cold = [bool(times) and all(time.cold for time in times) for times in known]

        def table(name: str) -> np.ndarray:
            values = [[None if t is None else getattr(t, name) for t in column] for column in columns]
            return np.array(values, float).reshape(len(policies), -1).T

        machines = [["" if t is None else t.machine for t in column] for column in columns]
        machine_PA = np.array(machines, object).reshape(len(policies), -1).T
        seconds, rows, tokens, written = map(table, ("seconds", "rows", "tokens", "answer_tokens"))
        return cls(task, policies, seconds, rows, tokens, written, machine_PA, np.array(cold, dtype=bool))

    @property
    def paired_PA(self) -> np.ndarray:
        """Seconds where the same machine measured the reference."""
        return np.where(self.machine_PA == self.machine_PA[:, [0]], self.seconds_PA, nan)

    def cut(self, policies: Sequence[str]) -> "_TimeTable":
        at = [self.policies.index(policy) for policy in policies]
        return _TimeTable(
            self.task,
            tuple(policies),
            self.seconds_PA[:, at],
            self.rows_PA[:, at],
            self.tokens_PA[:, at],
            self.written_PA[:, at],
            self.machine_PA[:, at],
            self.cold_A[at],
        )


def _counted(times: Sequence[BatchTime | None]) -> Iterator[BatchTime | None]:
    """Without first batches, wherever there are others."""
    warm = [time for time in times if time is not None and not time.cold]
    for time in times:
        yield None if time is not None and time.cold and warm else time


def _lines(
    task: str, tables: Sequence[_TimeTable], summary: CompareSummary, resamples: int, seed: int
) -> list[SpeedLine]:
    rows_T = [table.rows_PA for table in tables]
    seconds_T = [table.seconds_PA for table in tables]
    draws: dict[str, Any] = {"seed": seed, "resamples": resamples}
    seconds = mean_over_tasks(seconds_T, rows_T, **draws)
    ratios = mean_over_tasks([table.paired_PA for table in tables], rows_T, relative_to=0, **draws)
    speeds = mean_over_tasks([table.tokens_PA for table in tables], seconds_T, **draws)
    written = mean_over_tasks([table.written_PA for table in tables], seconds_T, **draws)
    # A task with one batch does not move when batches are drawn.
    few_A = np.min([np.isfinite(x_PA).sum(0) for x_PA in seconds_T], 0) < 2
    cold_A = np.any([table.cold_A for table in tables], 0)
    utility = {line.policy: line.utility.value for line in summary.of(task)}
    policies = tables[0].policies
    front_A = pareto_front([utility[policy] for policy in policies], [one.value for one in seconds])
    return [
        SpeedLine(
            task,
            policy,
            seconds=_shown(seconds[at], few_A[at]),
            ratio=_shown(ratios[at], few_A[at]),
            tokens_per_second=_shown(speeds[at], few_A[at]),
            answer_tokens_per_second=_shown(written[at], few_A[at]),
            batches=int(seconds[at].n or 0),
            cold=bool(cold_A[at]),
            front=bool(front_A[at]),
        )
        for at, policy in enumerate(policies)
    ]


def _shown(value: Estimate, few: bool) -> Estimate:
    """Without an interval that would mean nothing."""
    return replace(value, low=nan, high=nan) if few else value
