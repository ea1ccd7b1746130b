"""From the answers of a comparison to numbers: means, intervals, differences on the same prompts, fronts, seconds.

Utilities and costs are means over prompts, so prompts are resampled. Seconds were measured by the batch, so batches
are: the prompts of one share its seconds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from unmask.base.errors import UnknownName
from unmask.lab.compare.run import Comparison, LeftOut, TaskRun
from unmask.stats import PROMPT_RESAMPLES, Array, Bools, Estimate, mean_over_tasks, pareto_front

MACRO = "macro"
"""Name in the column `task` for means over tasks, each counting the same."""
NEAR_ZERO = 0.02
"""Least mean utility that some policy must reach on a task for it to enter the mean over tasks."""

MEASURES = (
    "utility",
    "difference",
    "forwards",
    "forwards_ratio",
    "tokens_per_forward",
    "tokens_per_forward_ratio",
    "answer_tokens_per_forward",
)
"""Measures with an interval: four columns each, `utility`, `utility_low`, `utility_high`, `utility_n` (prompts).
Differences and ratios are to the reference, on the prompts that both have; forwards are per prompt. Tokens are answer
positions, filler included; `answer_tokens` end at the first end of text: what a reader gets."""
COUNTS = ("extra_forwards", "planner_forwards", "remasks", "processed_tokens")
"""Columns with means per prompt without an interval."""
SPEEDS = ("seconds", "ratio", "tokens_per_second", "answer_tokens_per_second")
"""Measures of a `SpeedSummary`, with intervals over batches: seconds of decoding per prompt, and how many times the
reference's, over the batches that one machine measured of both."""


@dataclass(frozen=True)
class CompareSummary:
    """Means with intervals of a comparison: a line per task and policy, and lines for the mean over tasks."""

    split: str
    reference: str
    tasks: tuple[TaskRun, ...]
    lines: pd.DataFrame
    """`task` (or `MACRO`), `policy`, `MEASURES`, `COUNTS`, then `unscored` (answers that could not be judged), `label`
    (how far the method can be trusted), `made_for` (its authors' settings, where a run's defaults are others), `front`
    (no other policy has at least this utility for no more forwards and is better in one of them) and `sure` (on the
    front beyond noise: better than each policy with no more forwards, the paired interval leaves out zero)."""
    macro_tasks: tuple[str, ...]
    """Tasks with a utility of the reference that are neither near zero nor left out of the mean by the user."""
    near_zero: tuple[str, ...]
    """Tasks left out of the mean because no policy reaches `NEAR_ZERO`."""
    without: tuple[str, ...]
    """Tasks that the user left out of the mean."""
    left_out: tuple[LeftOut, ...]

    def task_lines(self, task: str) -> pd.DataFrame:
        """Return the lines of a task, or of `MACRO`: those of the policies that decoded all of `macro_tasks`."""
        return self.lines[self.lines["task"] == task].reset_index(drop=True)

    def line(self, task: str, policy: str) -> pd.Series:
        """Return the line of a policy on a task."""
        lines = self.lines[(self.lines["task"] == task) & (self.lines["policy"] == policy)]
        if lines.empty:
            there = zip(self.lines["task"], self.lines["policy"], strict=True)
            raise UnknownName("task and policy", f"{task}, {policy}", (f"{t}, {p}" for t, p in there))
        return lines.iloc[0]

    @property
    def tasks_with_lines(self) -> tuple[str, ...]:
        """Names of the tasks with answers, and of the mean over tasks where there is one."""
        return tuple(dict.fromkeys(self.lines["task"]))

    def best_policy(self, task: str) -> pd.Series | None:
        """Return the line of the policy with the largest difference to the reference, of ties that with least cost.

        It is the reference where none is better, and None where there is no other policy. The interval of the best one
        flatters, because it was chosen on the same prompts; `picks` of another split avoid that.
        """
        lines = self.task_lines(task)
        others = lines[(lines["policy"] != self.reference) & lines["difference"].notna()]
        if others.empty:
            return None
        best = others.sort_values(["difference", "forwards"], ascending=[False, True], kind="stable").iloc[0]
        return best if best["difference"] > 0 else self.line(task, self.reference)

    def cheapest_policy(self, task: str) -> pd.Series | None:
        """Return the line of the policy with fewest forwards among those not worse than the reference beyond noise.

        None where nothing that is as good saves a forward.
        """
        known = self.task_lines(task)
        known = known[known["difference"].notna()]
        reference = known[known["policy"] == self.reference]
        if reference.empty:
            return None
        good = known[(known["difference_high"] >= 0) & (known["forwards"] < reference["forwards"].iloc[0])]
        if good.empty:
            return None
        return good.sort_values(["forwards", "utility"], ascending=[True, False], kind="stable").iloc[0]

    def picks(self) -> dict[str, str]:
        """Name the best policy of each task and over all, to be shown on other prompts than it was chosen on."""
        best = {task: self.best_policy(task) for task in (*(run.task for run in self.tasks), MACRO)}
        return {task: str(line["policy"]) for task, line in best.items() if line is not None}


def summarise(
    comparison: Comparison,
    *,
    resamples: int = PROMPT_RESAMPLES,
    seed: int | None = None,
    macro_without: Sequence[str] = (),
) -> CompareSummary:
    """Summarise a comparison: means with 95 % intervals from `resamples` draws of the prompts.

    `seed` defaults to the run's.

    Tasks of `macro_without` are shown and left out of the mean over tasks, and so are those near zero.
    """
    for task in macro_without:
        if task not in (names := [run.task for run in comparison.tasks]):
            raise UnknownName("task of the comparison", task, names)
    by_task = {str(task): rows for task, rows in comparison.answers.groupby("task", sort=False)}
    policies = {task: list(dict.fromkeys(rows["policy"])) for task, rows in by_task.items()}
    draws = {"seed": comparison.config["seed"] if seed is None else seed, "resamples": resamples}
    near_zero, scored = [], []
    for task, rows in by_task.items():
        means = rows.groupby("policy")["utility"].mean().dropna()
        if len(means) and (means < NEAR_ZERO).all():
            near_zero.append(task)
        # A policy that could not decode the task is not there; the reference always is.
        elif task not in macro_without and policies[task][0] in means:
            scored.append(task)
    parts = [_summary_lines(task, [rows], policies[task], draws) for task, rows in by_task.items()]
    if scored:
        # A policy that lacks one of these tasks would be averaged over others than the rest.
        everywhere = [p for p in policies[scored[0]] if all(p in policies[task] for task in scored)]
        parts.append(_summary_lines(MACRO, [by_task[task] for task in scored], everywhere, draws))
    lines = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_LINE_COLUMNS)
    status: Mapping[str, Mapping[str, str]] = comparison.config.get("methods", {})
    for name in ("label", "made_for"):
        lines[name] = [status.get(policy, {}).get(name, "") for policy in lines["policy"]]
    return CompareSummary(
        split=comparison.split,
        reference=comparison.reference,
        tasks=comparison.tasks,
        lines=lines[_LINE_COLUMNS],
        macro_tasks=tuple(scored),
        near_zero=tuple(near_zero),
        without=tuple(macro_without),
        left_out=comparison.left_out,
    )


def _estimate_columns(measures: Sequence[str]) -> list[str]:
    return [f"{measure}{end}" for measure in measures for end in ("", "_low", "_high", "_n")]


_LINE_COLUMNS = ["task", "policy", *_estimate_columns(MEASURES), *COUNTS, "unscored"]
_LINE_COLUMNS += ["label", "made_for", "front", "sure"]


def _summary_lines(
    task: str, answers_T: Sequence[pd.DataFrame], policies: Sequence[str], draws: dict[str, Any]
) -> pd.DataFrame:
    """Build the summary line of each policy: means over the given tasks, on all of which it was decoded."""

    def pivot_column(column: str) -> list[Array]:
        """Return tables of prompts by policies, one for each task; prompts are in one order for all policies."""
        return [
            np.stack([rows.loc[rows["policy"] == policy, column].to_numpy(float) for policy in policies], 1)
            for rows in answers_T
        ]

    utility_T, forwards_T, tokens_T = pivot_column("utility"), pivot_column("forwards"), pivot_column("tokens")
    estimates = {
        "utility": mean_over_tasks(utility_T, **draws),
        # Where one of the two has no utility the difference is NaN, which leaves the pair out and not one side.
        "difference": mean_over_tasks([x_PA - x_PA[:, [0]] for x_PA in utility_T], **draws),
        "forwards": mean_over_tasks(forwards_T, **draws),
        "forwards_ratio": mean_over_tasks(forwards_T, relative_to=0, **draws),
        "tokens_per_forward": mean_over_tasks(tokens_T, forwards_T, **draws),
        "tokens_per_forward_ratio": mean_over_tasks(tokens_T, forwards_T, relative_to=0, **draws),
        "answer_tokens_per_forward": mean_over_tasks(pivot_column("answer_tokens"), forwards_T, **draws),
    }
    lines = pd.DataFrame({"task": task, "policy": policies, **_to_columns(estimates)})
    for name in COUNTS:
        lines[name] = np.mean([x_PA.mean(0) for x_PA in pivot_column(name)], 0)
    lines["unscored"] = np.sum([np.isnan(x_PA).sum(0) for x_PA in utility_T], 0)
    cost_A = lines["forwards"].to_numpy()
    front_A = pareto_front(lines["utility"].to_numpy(), cost_A)
    return lines.assign(front=front_A, sure=mark_sure_front(utility_T, cost_A, front_A, **draws))


def _to_columns(estimates: Mapping[str, Sequence[Estimate]]) -> dict[str, list[Any]]:
    """Spread estimates to four columns for every measure: value, both ends of the interval, and the count."""
    columns: dict[str, list[Any]] = {}
    for name, of_policies in estimates.items():
        columns[name] = [one.value for one in of_policies]
        columns[f"{name}_low"] = [one.low for one in of_policies]
        columns[f"{name}_high"] = [one.high for one in of_policies]
        columns[f"{name}_n"] = [one.n for one in of_policies]
    return columns


def mark_sure_front(
    utility_T: Sequence[Array], cost_A: ArrayLike, front_A: Bools, *, seed: int, resamples: int
) -> Bools:
    """Mark the policies of the front that are better than every one that costs no more, beyond noise.

    Beyond noise: the paired interval of the difference leaves out zero. Costs are compared as they are. The cheapest
    policy has nothing to beat, so it is sure if it is alone at its cost.
    """
    cost = np.asarray(cost_A, dtype=np.float64)
    sure_A = np.isfinite(cost) & front_A
    for own in np.flatnonzero(sure_A):
        others = [other for other in np.flatnonzero(cost <= cost[own]) if other != own]
        if others:
            # Paired with the policy itself: intervals of two means may overlap where every difference is positive.
            differences = [x_PA[:, others] - x_PA[:, [own]] for x_PA in utility_T]
            estimates = mean_over_tasks(differences, seed=seed, resamples=resamples)
            sure_A[own] = all(other.high < 0 for other in estimates)
    return np.asarray(sure_A)


# Wall time


@dataclass(frozen=True)
class SpeedSummary:
    """Wall time by task and policy. Times of different runs cannot be compared."""

    lines: pd.DataFrame
    """`task` (or `MACRO`), `policy`, `SPEEDS` (no interval with fewer than two batches), then `batches` (behind these
    numbers), `cold` (only first batches were measured, so what happens on first use is in the seconds) and `front` (no
    other policy has at least this utility in no more time and is better in one of them)."""
    measured: int
    """Number of batches measured in this run."""
    earlier: int
    """Number of batches that an earlier run measured."""
    elsewhere: int
    """Number of earlier batches measured on another machine, device or number of threads."""
    unknown: int
    """Number of batches whose seconds are lost."""
    machines: tuple[str, ...]

    def task_lines(self, task: str) -> pd.DataFrame:
        """Return the lines of a task, or of `MACRO`."""
        return self.lines[self.lines["task"] == task].reset_index(drop=True)


_SPEED_COLUMNS = ["task", "policy", *_estimate_columns(SPEEDS), "batches", "cold", "front"]


def summarise_speed(
    comparison: Comparison, summary: CompareSummary, *, resamples: int = PROMPT_RESAMPLES, seed: int | None = None
) -> SpeedSummary:
    """Compute seconds per prompt with intervals over batches, for the lines of a summary."""
    draws = {"seed": comparison.config["seed"] if seed is None else seed, "resamples": resamples}
    times = comparison.times
    parts = []
    for task in summary.tasks_with_lines:
        tasks = list(summary.macro_tasks) if task == MACRO else [task]
        parts.append(
            _speed_lines(task, [times[times["task"] == one] for one in tasks], summary.task_lines(task), draws)
        )
    known = times[times["seconds"].notna()]
    here, earlier = known[known["run"] == comparison.run], known[known["run"] != comparison.run]
    return SpeedSummary(
        lines=pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_SPEED_COLUMNS),
        measured=len(here),
        earlier=len(earlier),
        elsewhere=int((earlier["machine"] != comparison.machine).sum()),
        unknown=len(times) - len(known),
        machines=tuple(dict.fromkeys((*here["machine"], *known["machine"]))),
    )


def _speed_lines(
    task: str, times_T: Sequence[pd.DataFrame], utilities: pd.DataFrame, draws: dict[str, Any]
) -> pd.DataFrame:
    policies = utilities["policy"].tolist()
    # First batches are left out of a policy's numbers on a task wherever there are others.
    counted_T = [times[~_is_cold_or_lost(times)] for times in times_T]

    def pivot_column(column: str) -> list[Any]:
        """Return tables of batches by policies, one for each task."""
        return [
            counted.pivot(index="batch", columns="policy", values=column)
            .reindex(index=range(1 + int(times["batch"].max()) if len(times) else 0), columns=policies)
            .to_numpy(None if column == "machine" else float)
            for counted, times in zip(counted_T, times_T, strict=True)
        ]

    seconds_T, rows_T = pivot_column("seconds"), pivot_column("rows")
    # A ratio is over the batches that the machine of the reference's measured, too.
    paired_T = [
        np.where(machine_PA == machine_PA[:, [0]], seconds_PA, math.nan)
        for machine_PA, seconds_PA in zip(pivot_column("machine"), seconds_T, strict=True)
    ]
    estimates = {
        "seconds": mean_over_tasks(seconds_T, rows_T, **draws),
        "ratio": mean_over_tasks(paired_T, rows_T, relative_to=0, **draws),
        "tokens_per_second": mean_over_tasks(pivot_column("tokens"), seconds_T, **draws),
        "answer_tokens_per_second": mean_over_tasks(pivot_column("answer_tokens"), seconds_T, **draws),
    }
    lines = pd.DataFrame({"task": task, "policy": policies, **_to_columns(estimates)})
    # A task with one batch does not move when batches are drawn: an interval would mean nothing.
    few_A = np.min([np.isfinite(x_PA).sum(0) for x_PA in seconds_T], 0) < 2
    lines.loc[few_A, [f"{name}{end}" for name in SPEEDS for end in ("_low", "_high")]] = math.nan
    cold = [counted[counted["cold"] == True]["policy"] for counted in counted_T]  # noqa: E712 - a lost one is missing
    return lines.assign(
        batches=lines["seconds_n"],
        cold=lines["policy"].isin(pd.concat(cold)) if cold else False,
        front=pareto_front(utilities["utility"].to_numpy(), lines["seconds"].to_numpy()),
    )[_SPEED_COLUMNS]


def _is_cold_or_lost(times: pd.DataFrame) -> "pd.Series[bool]":
    """Mark first batches of policies that have other batches, and batches whose seconds are lost."""
    known = times["seconds"].notna()
    warm = set(times.loc[known & (times["cold"] == False), "policy"])  # noqa: E712
    return ~known | ((times["cold"] == True) & times["policy"].isin(warm))  # noqa: E712
