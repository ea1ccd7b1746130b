"""What a study takes on a cluster: wall time and GPU hours of so many workers, from what it takes on one.

Work that is cut into pieces is never spread evenly: a phase lasts until its last piece is done, and the next one waits
for it. So the pieces are handed out here as a run hands them out, in order, each to the worker that is free first.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unmask.errors import require
from unmask.lab.run.estimate import CostEstimate, bucket_sizes
from unmask.lab.run.jobs import Members
from unmask.lab.run.naive import prompts_asked
from unmask.lab.study import Study
from unmask.lab.study_models import ModelSpec
from unmask.request import TextSide

HOUR = 3600.0
BRANCHES, END_TO_END, LOAD = "branches", "end to end", "load"

Shards = Mapping[str, Mapping[str, Sequence[int]]]
"""Prompts of each shard, by model and task."""


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
    """Seconds of the longest piece: no number of workers takes less."""


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
    shards: Shards,
    *,
    workers: int,
    gpus_per_worker: float = 1.0,
    load_seconds: float = 0.0,
) -> ClusterCost:
    """Of the study's estimates, which must have their seconds. Every worker loads every model it works with.

    Branches of a model are pieces of its shards' size; whole runs of a model and task are one piece.
    """
    require(workers >= 1, "workers", workers, "1 or more", "a study needs one")
    require(gpus_per_worker >= 0, "gpus_per_worker", gpus_per_worker, "0 or more", "0 is a worker without a GPU")
    known = all(row.seconds is not None for row in estimates)
    require(known, "times", None, "a rate, or a forward that was measured", "give one of them")
    phases = tuple(_phases(study, estimates, shards, workers, load_seconds))
    alone = tuple(_phases(study, estimates, shards, 1, load_seconds))
    wall, gpus = sum(phase.wall for phase in phases), workers * gpus_per_worker
    worked = sum(phase.work for phase in phases if phase.name != LOAD)
    return ClusterCost(
        workers=workers,
        gpus=gpus,
        wall=wall,
        gpu_hours=wall * gpus / HOUR,
        busy=worked / (wall * workers) if wall else 0.0,
        one_worker=sum(phase.wall for phase in alone),
        phases=phases,
    )


def makespan(seconds: Sequence[float], workers: int) -> float:
    """When the last piece is done, if each goes to the worker that is free first, in their order."""
    free = [0.0] * workers
    for piece in seconds:
        heapq.heapreplace(free, free[0] + piece)
    return max(free)


def shards_of(study: Study, spec: ModelSpec, tasks: Members | None, text: TextSide | None) -> dict[str, list[int]]:
    """Prompts of each shard, by task: of one role and bucket, so many at a time.

    Without a tokenizer or the task's data, as if all prompts of a role had one bucket.
    """
    shards: dict[str, list[int]] = {}
    for task in study.tasks:
        sizes = bucket_sizes(study, text, task, tasks)
        alike = (
            [*prompts_asked(study, task).values()]
            if sizes is None
            else [many for of_role in sizes.values() for _, many in sorted(Counter(of_role).items())]
        )
        each = study.shard
        shards[task] = [min(each, many - at) for many in alike for at in range(0, many, each)]
    return shards


def _phases(
    study: Study, estimates: Sequence[CostEstimate], shards: Shards, workers: int, load_seconds: float
) -> list[Phase]:
    """Models one after the other: their branches, and when all are there, their whole runs."""
    phases: list[Phase] = []
    loaded = ""
    for name in (BRANCHES, *([END_TO_END] if study.end_to_end else [])):
        for spec in study.models:
            rows = [row for row in estimates if row.model == spec.name]
            pieces = [piece for row in rows for piece in _pieces(name, row, shards)]
            if not pieces:
                continue
            if loaded != spec.name:
                phases.append(Phase(LOAD, spec.name, workers, load_seconds, load_seconds, load_seconds))
            loaded = spec.name
            phases.append(Phase(name, loaded, len(pieces), sum(pieces), makespan(pieces, workers), max(pieces)))
    return phases


def _pieces(name: str, row: CostEstimate, shards: Shards) -> list[float]:
    """Seconds of each piece of one model and task; every prompt of it counts the same."""
    assert row.seconds is not None
    forwards = row.expected + row.end_to_end
    if name == END_TO_END:
        return [row.seconds * row.end_to_end / forwards] if row.end_to_end else []
    each = row.seconds * row.expected / forwards / max(1, row.prompts)
    return [each * prompts for prompts in shards[row.model][row.task]]
