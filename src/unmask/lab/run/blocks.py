"""One shard, from the frames of its branches to what the store keeps: the same steps on one machine and on many.

computed_shard   beside the model: everything but utilities; it can travel
finished_shard   wherever answers are judged: its tables, and what it says of itself
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from unmask.base.environment import versions
from unmask.lab.branching import PROPOSAL, RECOMPUTED, REFERENCE_RUN, SAVINGS, BranchFrames
from unmask.lab.run.jobs import Job
from unmask.lab.run.judging import JudgedAnswer
from unmask.lab.run.tables import shard_tables
from unmask.lab.store import Shard, Store
from unmask.lab.study import Study


@dataclass(frozen=True)
class ComputedShard:
    """A shard before its answers are judged."""

    job: Job
    frames: BranchFrames
    references: Mapping[str, str]
    """The reference's candidate by axis."""
    seconds: float
    versions: Mapping[str, str]

    @property
    def answers(self) -> list[tuple[str, tuple[int, ...]]]:
        """Each prompt's id and the tokens of an answer to it: what a judge takes."""
        branches = self.frames.branches
        return list(zip(branches["prompt"].tolist(), branches["answer"].tolist(), strict=True))


@dataclass(frozen=True)
class FinishedShard:
    """A shard as the store takes it."""

    shard: Shard
    tables: Mapping[str, pa.Table]
    info: Mapping[str, Any]

    def store(self, store: Store) -> None:
        """There whole or not at all."""
        store.write(self.shard, self.tables, self.info)


def shares(seconds: float, shards: Sequence[BranchFrames]) -> list[float]:
    """What each of several shards took, by its share of the passes."""
    calls = [frames.calls for frames in shards]
    return [seconds * own / max(1, sum(calls)) for own in calls]


def computed_shard(study: Study, reference: str, job: Job, frames: BranchFrames, seconds: float) -> ComputedShard:
    """What was computed for a job."""
    references = {axis: next(iter(named)) for axis, named in study.sets(reference).items()}
    return ComputedShard(job, frames, references, seconds, versions())


def finished_shard(
    computed: ComputedShard, judged: Sequence[JudgedAnswer], judging: Callable[[], float]
) -> FinishedShard:
    """With verdicts of `computed.answers`; `judging` says how many seconds they and the tables took."""
    job, frames = computed.job, computed.frames
    text, utility, reason = zip(*judged, strict=True)
    branches = frames.branches.assign(text=text, utility=utility, reason=reason)
    tables = shard_tables(job.shard, frames._replace(branches=branches), computed.references)
    counted = branches.loc[branches["candidate"] != PROPOSAL, "utility"]
    info = {
        "prompts": [request.id for request in job.requests],
        "states": len(frames.states),
        "branches": len(counted),
        "judged": int(counted.count()),
        "utility": math.fsum(counted.dropna()),
        **_costs(frames),
        "seconds": computed.seconds + judging(),
        "versions": dict(computed.versions),
    }
    return FinishedShard(job.shard, tables, info)


def _costs(frames: BranchFrames) -> dict[str, Any]:
    """Row-forwards of a shard, and those of each axis."""
    costs = frames.costs.groupby("axis", sort=False)[["branches", "done", *SAVINGS]].sum()
    beside = costs.loc[[REFERENCE_RUN, RECOMPUTED], "done"].tolist()
    axes = costs.drop([REFERENCE_RUN, RECOMPUTED])
    done, saved = int(axes["done"].sum()), int(axes[list(SAVINGS)].to_numpy().sum())
    forwards = {"naive": done + saved, "done": done, "trajectory": beside[0], "recalled": beside[1]}
    return {"forwards": {**forwards, "calls": frames.calls}, "axes": axes.to_dict("index")}
