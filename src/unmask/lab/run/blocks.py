"""One shard, from what the engine found to what the store keeps: the same steps on one machine and on many.

computed_shard   beside the model: everything but utilities; it can travel
finished_shard   wherever answers are judged: its tables, and what it says of itself
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from unmask.base.environment import versions
from unmask.lab.branch import PROPOSAL, Branch, BranchCost, BranchResult, StoredReading
from unmask.lab.run.jobs import Job
from unmask.lab.run.judging import JudgedAnswer
from unmask.lab.run.tables import branches_table, readings_table, states_table
from unmask.lab.store import Shard, Store
from unmask.lab.study import Study


@dataclass(frozen=True)
class ComputedShard:
    """A shard before its answers are judged."""

    job: Job
    states: pa.Table
    distinct: tuple[Branch, ...]
    rollouts: tuple[tuple[int, ...], ...]
    readings: tuple[StoredReading, ...]
    report: BranchCost
    references: Mapping[str, str]
    """The reference's candidate by axis."""
    seconds: float
    versions: Mapping[str, str]

    @property
    def answers(self) -> list[tuple[str, tuple[int, ...]]]:
        """Each prompt's id and the tokens of an answer to it: what a judge takes."""
        return [(branch.prompt, branch.answer) for branch in self.distinct]


@dataclass(frozen=True)
class FinishedShard:
    """A shard as the store takes it."""

    shard: Shard
    states: pa.Table
    branches: pa.Table
    readings: pa.Table
    info: Mapping[str, Any]

    def store(self, store: Store) -> None:
        """There whole or not at all."""
        tables = {"states": self.states, "branches": self.branches, "readings": self.readings}
        store.write(self.shard, tables, self.info)


def shares(seconds: float, blocks: Sequence[BranchResult]) -> list[float]:
    """What each of several blocks took, by its share of the passes."""
    calls = [block.report.calls for block in blocks]
    return [seconds * own / max(1, sum(calls)) for own in calls]


def computed_shard(study: Study, reference: str, job: Job, block: BranchResult, seconds: float) -> ComputedShard:
    """What the engine found for a job, without its trajectories' tensors."""
    return ComputedShard(
        job=job,
        states=states_table(job.shard, block.paths),
        distinct=block.distinct,
        rollouts=block.rollouts,
        readings=block.readings,
        report=block.report,
        references={axis: next(iter(named)) for axis, named in study.sets(reference).items()},
        seconds=seconds,
        versions=versions(),
    )


def finished_shard(
    computed: ComputedShard, judged: Sequence[JudgedAnswer], judging: Callable[[], float]
) -> FinishedShard:
    """With verdicts of `computed.answers`; `judging` says how many seconds they and the tables took.

    Candidates' branches and proposals go into tables of their own.
    """
    lines = list(zip(computed.distinct, computed.rollouts, judged, strict=True))
    candidates = [line for line in lines if line[0].candidate != PROPOSAL]
    proposals = [
        (branch._replace(rollout=rollout), verdict)
        for branch, rollouts, verdict in lines
        if branch.candidate == PROPOSAL
        for rollout in rollouts
    ]
    shard = computed.job.shard
    branches, own, verdicts = zip(*candidates, strict=True)
    tables = (
        branches_table(shard, branches, own, verdicts, computed.references),
        readings_table(shard, computed.readings, proposals),
    )
    every = [verdict for _, own, verdict in candidates for _ in own]
    return FinishedShard(shard, computed.states, *tables, _info(computed, every, computed.seconds + judging()))


def _info(computed: ComputedShard, judged: list[JudgedAnswer], seconds: float) -> dict[str, Any]:
    """What a shard says of itself."""
    utilities = [verdict.utility for verdict in judged if not math.isnan(verdict.utility)]
    report, total = computed.report, computed.report.total
    return {
        "prompts": [request.id for request in computed.job.requests],
        "states": len(computed.states),
        "branches": len(judged),
        "judged": len(utilities),
        "utility": math.fsum(utilities),
        "forwards": {"naive": total.naive, "done": total.done, "trajectory": report.trajectory}
        | {"recalled": report.recalled, "calls": report.calls},
        "axes": {axis: asdict(work) for axis, work in report.axes.items()},
        "seconds": seconds,
        "versions": dict(computed.versions),
    }
