"""Where a study stands while it runs: what is done, by whom and how long the rest will take."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from unmask.lab.branch import BranchProgress
from unmask.lab.branch.states import spaced
from unmask.lab.run.jobs import Members
from unmask.lab.store import Store
from unmask.lab.study import Study


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
    """Seconds still to go, NaN before anybody knows."""
    decoded: float = math.nan
    """Share of the end-to-end decoding that is done; NaN before it has begun."""


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

    def add(self, info: Mapping[str, Any]) -> None:
        self.shards += 1
        for key in ("states", "branches", "judged"):
            setattr(self, key, getattr(self, key) + info[key])
        self.naive += info["forwards"]["naive"]
        self.done += info["forwards"]["done"]
        self.utility += info["utility"]


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
        self.per_state = {
            spec.name: study.rollouts * sum(len(named) for named in study.sets(spec.reference).values())
            for spec in study.models
        }
        proposals = study.rollouts * len(study.diagnostics)
        self.candidates = {name: count / (count + proposals) for name, count in self.per_state.items()}
        """Share of branches that are candidates'; tables count those of proposals apart."""
        prompts = [(task, len(members)) for task, roles in tasks.items() for members in roles.values()]
        states = {task: len(spaced(study.steps[task], study.states)) for task in tasks}
        each = sum(states[task] * count for task, count in prompts)
        self.states_total = each * len(study.models)
        self.branches_total = each * sum(self.per_state.values())
        about = sum(-(-count // study.shard) for _, count in prompts)
        self.planned = {spec.name: about for spec in study.models}
        """Shards by model; a guess until its prompts have met its tokenizer."""
        self.counted: set[str] = set()
        self.tally = _Tally()
        self.forwards = 0
        self.live = BranchProgress(0, 0, 0)
        self.decoding = math.nan
        """When that began."""
        self.refresh()
        self.before = self.tally.branches

    def refresh(self) -> None:
        for name, info in zip(self.store.names(), self.store.infos(), strict=False):
            if name not in self.counted:
                self.counted.add(name)
                self.tally.add(info)

    def inside(self, model: str, shard: str) -> Callable[[BranchProgress], None]:
        def heard(now: BranchProgress) -> None:
            self.live = now._replace(branches=round(now.branches * self.candidates[model]))
            self.tell(self.now(shard))

        return heard

    def decoded(self, name: str, share: float) -> None:
        """Of the end-to-end decoding, of which a share is done."""
        if math.isnan(self.decoding):
            self.decoding = time.monotonic()
        spent = time.monotonic() - self.decoding
        left = spent * (1 - share) / share if share > 0 else math.nan
        self.tell(self.now(name)._replace(left=left, decoded=share))

    def finished(self, shard: str) -> None:
        self.forwards += self.live.forwards
        self.live = BranchProgress(0, 0, 0)
        self.refresh()
        self.tell(self.now(shard))

    def now(self, shard: str) -> StudyProgress:
        tally, spent = self.tally, time.monotonic() - self.began
        branches = tally.branches + self.live.branches
        since = branches - self.before
        left = spent / since * max(0, self.branches_total - branches) if since > 0 else math.nan
        return StudyProgress(
            shard=shard,
            shards=tally.shards,
            shards_total=sum(self.planned.values()),
            states=tally.states + self.live.states,
            states_total=self.states_total,
            branches=branches,
            branches_total=self.branches_total,
            forwards=self.forwards + self.live.forwards,
            naive=tally.naive,
            done=tally.done,
            utility=tally.utility / tally.judged if tally.judged else math.nan,
            unjudged=tally.branches - tally.judged,
            seconds=spent,
            left=left,
        )
