"""Where a study stands while it runs, and how long the rest will take."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from unmask.lab.branching import BranchProgress, spaced_steps
from unmask.lab.store import Failure, Shard, Store
from unmask.lab.study.config import StudyConfig
from unmask.lab.study.forecast import decodes_at_most
from unmask.lab.study.jobs import Examples, Job

ENOUGH = 8
"""Full forwards to run before the pace is measured: the first ones take longer."""


class StudyProgress(NamedTuple):
    """Progress of a study: all stored work is counted, but only the time of this process."""

    shard: str
    """Name of the shard or task that is being computed."""
    shards: int
    shards_total: int
    states: int
    states_total: int
    branches: int
    branches_total: int
    forwards: int
    """Row-forwards of this process."""
    naive: int
    """Row-forwards that finished shards would have taken without merging."""
    done: int
    """Row-forwards that finished shards took."""
    utility: float
    """Mean over all branches that were scored."""
    unjudged: int
    seconds: float
    left: float
    """Seconds still to go, whole runs included; NaN before enough is measured."""
    decoded: float = math.nan
    """Share of the whole runs that is done; NaN before they have begun."""
    failed: int = 0
    """Attempts of this process that failed."""
    running: int = 0
    """Groups of shards that workers of a cluster have, or that wait for one."""


class ProgressTracker:
    """Counts finished work and failures of a study, and reports progress."""

    def __init__(
        self,
        study: StudyConfig,
        examples: Examples,
        store: Store,
        began: float,
        on_progress: Callable[[StudyProgress], None],
    ):
        self.store, self.began, self.on_progress = store, began, on_progress
        self.enough = ENOUGH * study.engine.rows
        proposals = study.rollouts * len(study.diagnostics)
        candidates = {
            spec.name: study.rollouts * sum(len(named) for named in study.candidate_sets(spec.reference).values())
            for spec in study.models
        }
        self.candidate_share = {name: count / (count + proposals) for name, count in candidates.items()}
        """Share of branches that tables count as branches: those of proposals are counted apart."""
        counts = {task: {role: len(part) for role, part in roles.items()} for task, roles in examples.items()}
        states = {task: len(spaced_steps(study.steps[task], study.states)) for task in examples}
        per_model = sum(states[task] * sum(of_role.values()) for task, of_role in counts.items())
        self.states_total = per_model * len(study.models)
        self.branches_total = per_model * sum(candidates.values())
        about = sum(-(-count // study.shard) for of_role in counts.values() for count in of_role.values())
        self.planned = {spec.name: about for spec in study.models}
        """Shards by model; a guess until its prompts have met its tokenizer."""
        self.whole_runs = {
            (spec.name, task): decodes_at_most(study, spec.reference).forwards(counts[task], study.steps[task])
            for spec in study.models
            for task in examples
        }
        """Row-forwards of whole runs by model and task, at most."""
        self.decoded: Counter[tuple[str, str]] = Counter()
        self.total: Counter[str] = Counter()
        """Sums of the info files of finished shards."""
        self.utility = self.seconds = 0.0
        self.counted: set[str] = set()
        self.forwards = self.failed = self.running = 0
        self.live: dict[str, BranchProgress] = {}
        """Groups that are computed here and not stored, by the name of their first shard."""
        self.branching_since = self.decoding_since = math.nan
        self.count_found()
        self.done_before = self.total["done"]

    def count_found(self) -> None:
        """Count the shards in the store that are not counted yet."""
        for shard, info in self.store.infos().items():
            self._count_shard(shard.name, info)

    def count_stored(self, shard: Shard, info: Mapping[str, Any]) -> None:
        """Count a shard that this run has stored."""
        if shard.kind == "branches":
            self._count_shard(shard.name, info)
            self.live.pop(shard.name, None)
            self.forwards += info["forwards"]["done"]
            self.report(shard.name)

    def _count_shard(self, name: str, info: Mapping[str, Any]) -> None:
        if name in self.counted:
            return
        self.counted.add(name)
        counts = {key: info[key] for key in ("states", "branches", "judged")}
        self.total.update(counts | {key: info["forwards"][key] for key in ("naive", "done")}, shards=1)
        self.utility += info["utility"]
        self.seconds += info["seconds"]

    def start_branching(self, model: str, shards: int) -> None:
        """Note how many shards a model has, and start the clock of its forwards."""
        self.planned[model] = shards
        if math.isnan(self.branching_since):
            self.branching_since = time.monotonic()

    def watch_group(self, jobs: Sequence[Job]) -> Callable[[BranchProgress], None]:
        """Return the progress callback for a group of shards that is computed in this process."""
        first = jobs[0].shard
        name = first.name if len(jobs) == 1 else f"{first.name} and {len(jobs) - 1} more"

        def report(now: BranchProgress) -> None:
            branches = round(now.branches * self.candidate_share[first.model])
            self.live[first.name] = now._replace(branches=branches)
            self.report(name)

        return report

    def report_decoded(self, model: str, task: str, forwards: int) -> None:
        """Report how many row-forwards of a task's whole runs are done."""
        if math.isnan(self.decoding_since):
            self.decoding_since = time.monotonic()
        self.decoded[model, task] = forwards
        self.report(f"{model}/{task}")

    def finish_decoding(self, model: str, task: str) -> None:
        """Stop counting the whole runs of a task as work to be done."""
        self.whole_runs.pop((model, task), None)

    def count_failure(self, failure: Failure) -> None:
        """Count an attempt that failed."""
        self.failed += 1
        self.live.pop(failure.name, None)
        self.report(failure.name)

    def report_running(self, running: int) -> None:
        """Report how many groups are under way on a cluster."""
        self.running = running
        self.report(f"{running} under way")

    def report(self, name: str) -> None:
        """Pass the present progress to `on_progress`; `name` says what has just changed."""
        total, live = self.total, self._sum_running_groups()
        decoding = not math.isnan(self.decoding_since)
        left, decoded = self._seconds_left(total["branches"] + live.branches), math.nan
        if decoding:
            ahead, done = self._forwards_left_in_whole_runs(), self.decoded.total()
            decoded = done / max(1, done + ahead)
            # Whole runs have a pace of their own, once a first policy is through.
            pace = (time.monotonic() - self.decoding_since) / done if done else self._seconds_per_forward()
            left = pace * ahead
        self.on_progress(
            StudyProgress(
                shard=name,
                shards=total["shards"],
                shards_total=sum(self.planned.values()),
                states=total["states"] + live.states,
                states_total=self.states_total,
                branches=total["branches"] + live.branches,
                branches_total=self.branches_total,
                forwards=self.forwards + live.forwards,
                naive=total["naive"],
                done=total["done"],
                utility=self.utility / total["judged"] if total["judged"] else math.nan,
                unjudged=total["branches"] - total["judged"],
                seconds=time.monotonic() - self.began,
                left=left,
                decoded=decoded,
                failed=self.failed,
                running=self.running,
            )
        )

    def _sum_running_groups(self) -> BranchProgress:
        """Add up the progress of groups that this process computes and has not stored."""
        return BranchProgress(*map(sum, zip((0, 0, 0), *self.live.values(), strict=True)))

    def _forwards_left_in_whole_runs(self) -> int:
        return sum(max(0, most - self.decoded[key]) for key, most in self.whole_runs.items())

    def _seconds_left(self, branches: int) -> float:
        """Estimate the time left: other branches take as many forwards as those that are there, then whole runs."""
        open_branches = max(0, self.branches_total - branches)
        each = (self.total["done"] + self._sum_running_groups().forwards) / branches if branches else math.nan
        return self._seconds_per_forward() * (
            (each * open_branches if open_branches else 0) + self._forwards_left_in_whole_runs()
        )

    def _seconds_per_forward(self) -> float:
        """Return seconds per row-forward of this run; of the stored shards until this run has done enough forwards.

        Forwards of other processes count, because they shorten what is left.
        """
        since = self.total["done"] - self.done_before + self._sum_running_groups().forwards
        if since >= self.enough and not math.isnan(self.branching_since):
            return (time.monotonic() - self.branching_since) / since
        return self.seconds / self.total["done"] if self.total["done"] else math.nan
