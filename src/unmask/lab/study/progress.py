"""Where a study stands while it runs: what is done, by whom and how long the rest will take."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from unmask.lab.branching import PROPOSAL, RECOMPUTED, REFERENCE_RUN, BranchFrames, BranchProgress, spaced_steps
from unmask.lab.cluster.progress import ClusterNow
from unmask.lab.store import Failure, Store
from unmask.lab.study import Study
from unmask.lab.study.forecast import decodes_at_most
from unmask.lab.study.jobs import Members

ENOUGH = 8
"""Forwards, full of rows, that a pace is measured by: the first ones take longer."""


class StudyProgress(NamedTuple):
    """Where a study stands; what was there before this process came is counted, but not its time."""

    shard: str
    shards: int
    shards_total: int
    states: int
    states_total: int
    branches: int
    branches_total: int
    forwards: int
    """Row-forwards of this process."""
    naive: int
    """What they would have been without merging, over finished shards."""
    done: int
    """Row-forwards behind `naive`."""
    utility: float
    """Mean over all branches that were judged."""
    unjudged: int
    seconds: float
    left: float
    """Seconds still to go, end to end included; NaN before anybody knows."""
    decoded: float = math.nan
    """Share of the end-to-end decoding that is done; NaN before it has begun."""
    failed: int = 0
    """Attempts of this process that failed."""
    cluster: ClusterNow | None = None
    """Who does what, where workers elsewhere do it."""


class DecodeProgress(NamedTuple):
    """Where the end-to-end decoding stands, in row-forwards."""

    name: str
    """What is being decoded."""
    done: int
    """By this process."""
    left: int
    """By anybody."""
    total: int


@dataclass
class _Tally:
    """What finished shards add up to."""

    shards: int = 0
    states: int = 0
    branches: int = 0
    naive: int = 0
    done: int = 0
    judged: int = 0
    utility: float = 0.0
    seconds: float = 0.0

    def add(self, info: Mapping[str, Any]) -> None:
        self.shards += 1
        for key in ("states", "branches", "judged"):
            setattr(self, key, getattr(self, key) + info[key])
        self.naive += info["forwards"]["naive"]
        self.done += info["forwards"]["done"]
        self.utility += info["utility"]
        self.seconds += info["seconds"]


class ProgressTracker:
    """Turns what happens into progress."""

    def __init__(
        self,
        study: Study,
        tasks: Members,
        store: Store,
        began: float,
        tell: Callable[[StudyProgress], None],
    ):
        self.store, self.began, self.tell = store, began, tell
        self.enough = ENOUGH * study.engine.rows
        self.per_state = {
            spec.name: study.rollouts * sum(len(named) for named in study.sets(spec.reference).values())
            for spec in study.models
        }
        proposals = study.rollouts * len(study.diagnostics)
        self.candidates = {name: count / (count + proposals) for name, count in self.per_state.items()}
        """Share of branches that are candidates'; tables count those of proposals apart."""
        prompts = [(task, len(members)) for task, roles in tasks.items() for members in roles.values()]
        states = {task: len(spaced_steps(study.steps[task], study.states)) for task in tasks}
        each = sum(states[task] * count for task, count in prompts)
        self.states_total = each * len(study.models)
        self.branches_total = each * sum(self.per_state.values())
        about = sum(-(-count // study.shard) for _, count in prompts)
        self.planned = {spec.name: about for spec in study.models}
        """Shards by model; a guess until its prompts have met its tokenizer."""
        counts = {task: {role: len(members) for role, members in roles.items()} for task, roles in tasks.items()}
        self.whole_runs = sum(
            decodes_at_most(study, spec.reference).forwards(counts[task], study.steps[task])
            for spec in study.models
            for task in tasks
        )
        """Row-forwards of the end-to-end decoding, at most."""
        self.counted: set[str] = set()
        self.tally = _Tally()
        self.forwards = self.failed = 0
        self.cluster: ClusterNow | None = None
        self.live = BranchProgress(0, 0, 0)
        self.ready: dict[str, BranchProgress] = {}
        """Shards that are computed and not stored yet, by name."""
        self.working = self.decoding = math.nan
        """When branching and decoding began, here."""
        self.refresh()
        self.before = self.tally.done

    def refresh(self) -> None:
        for shard, info in self.store.infos().items():
            if shard.name not in self.counted:
                self.counted.add(shard.name)
                self.tally.add(info)

    def start(self) -> None:
        """A model is there; from now on time is spent on forwards."""
        if math.isnan(self.working):
            self.working = time.monotonic()

    def inside(self, model: str, shard: str, together: int = 1) -> Callable[[BranchProgress], None]:
        """Make the callback of shards that are computed together, of which `shard` is the first."""
        name = shard if together == 1 else f"{shard} and {together - 1} more"

        def report(now: BranchProgress) -> None:
            self.live = now._replace(branches=round(now.branches * self.candidates[model]))
            self.tell(self.now(name))

        return report

    def add_computed(self, shards: Mapping[str, BranchProgress]) -> None:
        """These are to be judged and stored."""
        self.ready = {**self.ready, **shards}
        self.live = BranchProgress(0, 0, 0)

    def report_decoding(self, now: DecodeProgress) -> None:
        """Report whole runs; until a policy is through, a forward is taken to last as long as before."""
        if math.isnan(self.decoding):
            self.decoding = time.monotonic()
        pace = (time.monotonic() - self.decoding) / now.done if now.done else self._pace()
        self.tell(self.now(now.name)._replace(left=pace * now.left, decoded=1 - now.left / now.total))

    def count_failure(self, failure: Failure) -> None:
        """An attempt has failed; what it did counts for nothing."""
        self.failed += 1
        self.ready.pop(failure.name, None)
        self.live = BranchProgress(0, 0, 0)
        self.tell(self.now(failure.name))

    def add_finished(self, shard: str) -> None:
        """It is stored."""
        self.refresh()
        self.forwards += self.ready.pop(shard).forwards
        self.tell(self.now(shard))

    def add_stored(self, shard: str, info: Mapping[str, Any]) -> None:
        """A worker's shard is in its place; what it says of itself need not be read again."""
        if shard not in self.counted:
            self.counted.add(shard)
            self.tally.add(info)
        self.forwards += info["forwards"]["done"]

    def live_on(self, model: str, parts: Sequence[BranchProgress]) -> None:
        """Take over the counts of shards that workers compute at this moment."""
        states, branches, forwards = (sum(part) for part in zip(*parts, strict=True)) if parts else (0, 0, 0)
        self.live = BranchProgress(states, round(branches * self.candidates[model]), forwards)

    def across(self, cluster: ClusterNow, name: str) -> None:
        """A cluster at this moment."""
        self.cluster = cluster
        self.tell(self.now(name))

    def now(self, shard: str) -> StudyProgress:
        tally, open_work = self.tally, self._open()
        branches = tally.branches + open_work.branches
        return StudyProgress(
            shard=shard,
            shards=tally.shards,
            shards_total=sum(self.planned.values()),
            states=tally.states + open_work.states,
            states_total=self.states_total,
            branches=branches,
            branches_total=self.branches_total,
            forwards=self.forwards + open_work.forwards,
            naive=tally.naive,
            done=tally.done,
            utility=tally.utility / tally.judged if tally.judged else math.nan,
            unjudged=tally.branches - tally.judged,
            seconds=time.monotonic() - self.began,
            left=self._seconds_left(branches),
            failed=self.failed,
            cluster=self.cluster,
        )

    def _open(self) -> BranchProgress:
        """Counts of shards that are not stored yet."""
        parts = zip(self.live, *self.ready.values(), strict=True)
        return BranchProgress(*(sum(part) for part in parts))

    def _seconds_left(self, branches: int) -> float:
        """Branches that are left take as many forwards each as those that are there; then come the whole runs."""
        open_branches = max(0, self.branches_total - branches)
        each = (self.tally.done + self._open().forwards) / branches if branches else math.nan
        return self._pace() * ((each * open_branches if open_branches else 0) + self.whole_runs)

    def _pace(self) -> float:
        """Seconds of a row-forward, everything included: here, or before this process has done any, by what is stored.

        Forwards of other processes count, for they shorten what is left.
        """
        since = self.tally.done - self.before + self._open().forwards
        if since >= self.enough and not math.isnan(self.working):
            return (time.monotonic() - self.working) / since
        return self.tally.seconds / self.tally.done if self.tally.done else math.nan


def progress_of(frames: BranchFrames) -> BranchProgress:
    """Counts of a computed shard; branches of candidates alone, as tables count them."""
    candidates = int((frames.branches["candidate"] != PROPOSAL).sum())
    costs = frames.costs
    done = int(costs.loc[~costs["axis"].isin([REFERENCE_RUN, RECOMPUTED]), "done"].sum())
    return BranchProgress(len(frames.states), candidates, done)
