"""One shard of a study: branched beside the model, scored wherever there is a processor, stored whole or not at all."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from unmask.api import LoadedModel
from unmask.base.environment import versions
from unmask.lab.branching import (
    PROPOSAL,
    RECOMPUTED,
    REFERENCE_RUN,
    SAVINGS,
    BatchSettings,
    BranchFrames,
    BranchProgress,
    branch,
)
from unmask.lab.store import Shard, Store
from unmask.lab.study.config import Study
from unmask.lab.study.jobs import Job
from unmask.lab.study.prompts import AnswerCodec, score_answers
from unmask.lab.study.tables import shard_tables
from unmask.lab.study_models import ModelSpec


@dataclass(frozen=True)
class BranchedShard:
    """A shard before its answers are scored; it can travel."""

    job: Job
    frames: BranchFrames
    references: Mapping[str, str]
    """The reference's candidate by axis."""
    seconds: float
    versions: Mapping[str, str]


@dataclass(frozen=True)
class FinishedShard:
    """A shard as the store takes it."""

    shard: Shard
    tables: Mapping[str, pa.Table]
    info: Mapping[str, Any]

    def store(self, store: Store) -> None:
        """Write it whole or not at all."""
        store.write(self.shard, self.tables, self.info)


def branch_group(
    model: LoadedModel,
    study: Study,
    spec: ModelSpec,
    settings: BatchSettings,
    jobs: Sequence[Job],
    on_progress: Callable[[BranchProgress], None] = lambda now: None,
) -> list[BranchedShard]:
    """Branch the prompts of several shards together, so that forwards are full; each has what it would have alone."""
    began = time.monotonic()
    requests = [request for job in jobs for request in job.requests]
    frames = branch(model.denoiser, study.plan(spec.reference), requests, settings, on_progress)
    shards = frames.split([len(job.requests) for job in jobs])
    references = {axis: next(iter(named)) for axis, named in study.sets(spec.reference).items()}
    # Each took its share of the passes.
    each = (time.monotonic() - began) / max(1, frames.calls)
    return [
        BranchedShard(job, own, references, each * own.calls, versions()) for job, own in zip(jobs, shards, strict=True)
    ]


def score_shard(
    branched: BranchedShard, codec: AnswerCodec | None, *, workers: int | None, scoring: str
) -> FinishedShard:
    """Give every branch the terminal utility of its answer, and make the tables. No codec where texts are there."""
    began, job, frames = time.monotonic(), branched.job, branched.frames
    branches = score_answers(frames.branches, job.members, job.requests, codec, workers=workers, scoring=scoring)
    tables = shard_tables(job.shard, frames._replace(branches=branches), branched.references)
    utilities = branches.loc[branches["candidate"] != PROPOSAL, "utility"]
    info = {
        "prompts": [request.id for request in job.requests],
        "states": len(frames.states),
        "branches": len(utilities),
        "judged": int(utilities.count()),
        "utility": math.fsum(utilities.dropna()),
        **_costs(frames),
        "seconds": branched.seconds + time.monotonic() - began,
        "versions": dict(branched.versions),
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
