"""What a study takes on a cluster: wall time and GPU hours of so many workers, from what it takes on one.

Work that is cut into pieces is never spread evenly: a phase lasts until its last piece is done, and the next one waits
for it. So the pieces are handed out here as a run hands them out, in order, each to the worker that is free first.
"""

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unmask.api import TextSide
from unmask.base.errors import require
from unmask.lab.study import Study
from unmask.lab.study.forecast import CostEstimate, bucket_sizes, decodes_of
from unmask.lab.study.jobs import Members, grouped
from unmask.lab.study.naive import prompts_asked
from unmask.lab.study_models import ModelSpec

HOUR = 3600.0
BRANCHES, END_TO_END, LOAD = "branches", "end to end", "load"
WAITS = {"validation": 1, "evaluation": 2}
"""Policies of a task that come one after the other: the candidates, what they choose, and the random gate, which waits
for the selective one."""


class ShardSize(NamedTuple):
    """A shard to be: prompts of one task, role and bucket."""

    task: str
    slots: int | None
    """Its bucket; None without a tokenizer."""
    prompts: int


class Cut(NamedTuple):
    """How the work of one model is cut into pieces."""

    shards: Sequence[ShardSize]
    runs: Mapping[str, Mapping[str, Sequence[int]]]
    """By task and role: prompts of each batch that is decoded from beginning to end."""


class Phase(NamedTuple):
    """Pieces that may run side by side; the next phase begins when all are done."""

    name: str
    model: str
    pieces: int
    work: float
    """Seconds that one worker takes for all of it; loading is every worker's own."""
    wall: float
    """Seconds until the last one is done."""
    longest: float
    """Seconds that no number of workers takes less than: the longest piece, or the longest row of them."""


class ClusterCost(NamedTuple):
    """A study on so many workers."""

    workers: int
    gpus: float
    """Of all workers."""
    wall: float
    """Seconds."""
    gpu_hours: float
    """While they are held, waiting included: what is paid for."""
    busy: float
    """Share of the held time in which a worker computes."""
    one_worker: float
    """Seconds that a single worker would take."""
    phases: tuple[Phase, ...]


def cluster_cost(
    study: Study,
    estimates: Sequence[CostEstimate],
    cuts: Mapping[str, Cut],
    *,
    workers: int,
    gpus_per_worker: float = 1.0,
    load_seconds: float = 0.0,
) -> ClusterCost:
    """Of the study's estimates, which must have their seconds, and how each model's work is cut.

    Every worker loads every model it works with. Shards that are computed together are one piece. Whole runs of a task
    begin together as far as one does not choose another: so no task takes less than such a row of them takes for their
    largest batch.
    """
    require(workers >= 1, "workers", workers, "1 or more", "a study needs one")
    require(gpus_per_worker >= 0, "gpus_per_worker", gpus_per_worker, "0 or more", "0 is a worker without a GPU")
    known = all(row.seconds is not None for row in estimates)
    require(known, "times", None, "a rate, or a forward that was measured", "give one of them")
    phases = tuple(_phases(study, estimates, cuts, workers, load_seconds))
    wall, gpus = sum(phase.wall for phase in phases), workers * gpus_per_worker
    worked = sum(phase.work for phase in phases if phase.name != LOAD)
    return ClusterCost(
        workers=workers,
        gpus=gpus,
        wall=wall,
        gpu_hours=wall * gpus / HOUR,
        busy=worked / (wall * workers) if wall else 0.0,
        one_worker=sum(phase.work for phase in phases),
        phases=phases,
    )


def makespan(seconds: Sequence[float], workers: int) -> float:
    """When the last piece is done, if each goes to the worker that is free first, in their order."""
    free = [0.0] * workers
    for piece in seconds:
        heapq.heapreplace(free, free[0] + piece)
    return max(free)


def cut_of(study: Study, spec: ModelSpec, tasks: Members | None, text: TextSide | None) -> Cut:
    """The pieces of a model: of one role and bucket, so many prompts at a time.

    Without a tokenizer or the task's data, as if all prompts of a role had one bucket.
    """
    shards: list[ShardSize] = []
    runs: dict[str, dict[str, list[int]]] = {}
    most = max(study.engine.rows, study.engine.live)
    for task in study.tasks:
        sizes = bucket_sizes(study, text, task, tasks)
        asked = prompts_asked(study, task) if sizes is None else {}
        buckets = {role: Counter(found) for role, found in (sizes or {}).items()}
        alike: dict[str, dict[int | None, int]] = {role: {None: many} for role, many in asked.items()} or {
            role: dict(sorted(counts.items())) for role, counts in buckets.items()
        }
        for counts in alike.values():
            shards += [ShardSize(task, slots, n) for slots, many in counts.items() for n in _parts(many, study.shard)]
        runs[task] = {role: _parts(sum(counts.values()), most) for role, counts in alike.items()}
    return Cut(shards, runs)


def _parts(many: int, each: int) -> list[int]:
    return [min(each, many - at) for at in range(0, many, each)]


def together(shards: Sequence[ShardSize], rows: int, workers: int = 1) -> list[list[ShardSize]]:
    """Shards that one worker computes together, as `jobs.in_groups` puts them; without buckets, those of one task."""

    def alike(shard: ShardSize) -> int | str:
        return shard.task if shard.slots is None else shard.slots

    return grouped(shards, alike, lambda shard: shard.prompts, rows, workers)


def _phases(
    study: Study, estimates: Sequence[CostEstimate], cuts: Mapping[str, Cut], workers: int, load_seconds: float
) -> list[Phase]:
    """Models one after the other: their branches, and when all are there, their whole runs."""
    phases: list[Phase] = []
    loaded = ""
    for name in (BRANCHES, *([END_TO_END] if study.end_to_end else [])):
        for spec in study.models:
            rows = {row.task: row for row in estimates if row.model == spec.name}
            cut = cuts[spec.name]
            branches = name == BRANCHES
            pieces, longest = _branches(study, rows, cut, workers) if branches else _whole(study, spec, rows, cut)
            if not any(pieces):
                continue
            if loaded != spec.name:
                phases.append(Phase(LOAD, spec.name, workers, load_seconds, load_seconds, load_seconds))
            loaded, wall = spec.name, max(makespan(pieces, workers), longest)
            phases.append(Phase(name, loaded, len(pieces), sum(pieces), wall, longest))
    return phases


def _branches(study: Study, rows: Mapping[str, CostEstimate], cut: Cut, workers: int) -> tuple[list[float], float]:
    """Seconds of each piece, and of the longest; every prompt of a task counts the same."""
    each = {task: _seconds(row) * row.expected / max(1, row.prompts) for task, row in rows.items()}
    groups = together(cut.shards, study.engine.rows, workers)
    pieces = [sum(each[shard.task] * shard.prompts for shard in group) for group in groups]
    return pieces, max(pieces, default=0.0)


def _whole(study: Study, spec: ModelSpec, rows: Mapping[str, CostEstimate], cut: Cut) -> tuple[list[float], float]:
    """Seconds of each batch of each policy, and of the task that takes longest if nobody waits."""
    each = decodes_of(study, spec.reference)._asdict()
    pieces: list[float] = []
    chains = [0.0]
    for task, row in rows.items():
        batches = cut.runs[task]
        decodes = sum(each[role] * sum(sizes) for role, sizes in batches.items())
        second = _seconds(row) * row.end_to_end / decodes if decodes else 0.0
        for role, sizes in batches.items():
            # By experience a share of a policy is the same as another one.
            policies = math.ceil(each[role])
            pieces += [second * many * each[role] / policies for many in sizes for _ in range(policies)]
        chains.append(sum(second * min(each[r], WAITS[r]) * max(sizes, default=0) for r, sizes in batches.items()))
    return pieces, max(chains)


def _seconds(row: CostEstimate) -> float:
    """Of one row-forward."""
    assert row.seconds is not None
    return row.seconds / max(1, row.expected + row.end_to_end)
