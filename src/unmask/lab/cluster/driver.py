"""A study on a cluster: workers compute, cores beside them judge, and this process plans, books and stores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from unmask.api import Request
from unmask.core import Policy, Search
from unmask.lab.branching import BranchProgress
from unmask.lab.cluster.connect import connected
from unmask.lab.cluster.helpers import ResultLost
from unmask.lab.cluster.pool import PoolClosed, WorkerPool
from unmask.lab.cluster.progress import WorkerLogs
from unmask.lab.cluster.study_work import (
    CarriedStudy,
    branch_shards,
    decode_part,
    judge_pairs,
    judge_shard,
    plan_model,
)
from unmask.lab.cluster.where import Ray
from unmask.lab.cluster.workers import Setup
from unmask.lab.store import ATTEMPTS, Shard
from unmask.lab.study.arms import PromptDecoder, PromptGroup
from unmask.lab.study.attempts import Claims, Piece
from unmask.lab.study.jobs import Job, group_jobs
from unmask.lab.study.prompts import Known, score_answers
from unmask.lab.study.shards import FinishedShard
from unmask.lab.study.side_by_side import Errors, SideBySide
from unmask.lab.study.site import PlannedWork, StudyOrder
from unmask.lab.study_models import ModelSpec
from unmask.tasks import Example

AHEAD = 2
"""Groups under way for each worker: one is computed while the last one is judged and stored."""


@contextmanager
def on_cluster(cluster: Ray, order: StudyOrder, load: Callable[[ModelSpec], Any]) -> "Iterator[ClusterSite]":
    """A site whose cluster is reached when something is to be done, and left at the end."""
    with ExitStack() as stack:
        yield ClusterSite(cluster, order, load, stack)


class ClusterSite:
    """Where a study runs: on the workers of a cluster."""

    def __init__(self, cluster: Ray, order: StudyOrder, load: Callable[[ModelSpec], Any], stack: ExitStack):
        self.where, self.order, self.load, self.stack = cluster, order, load, stack
        self._pool: WorkerPool | None = None
        self._planned: dict[str, PlannedWork] = {}

    @property
    def pool(self) -> WorkerPool:
        """Reached once."""
        if self._pool is None:
            order = self.order
            ray = self.stack.enter_context(connected(self.where))
            setup = Setup.of(self.load, CarriedStudy.of(order.study, order.engine, order.tasks))
            folder = order.store.folder
            # Lines are appended, which no object storage does.
            logs = WorkerLogs(folder / "logs" if isinstance(folder, Path) else None)
            self._pool = self.stack.enter_context(WorkerPool(ray, self.where, setup, logs=logs))
        return self._pool

    def plan_work(self, spec: ModelSpec) -> PlannedWork:
        if spec.name not in self._planned:
            what = f"planning {spec.name}"
            planned = self.pool.submit(plan_model, spec, what=what, deaths=ATTEMPTS)
            self._planned = {spec.name: self._wait(planned, what)}
        return self._planned[spec.name]

    def _wait(self, future: "Future[Any]", what: str) -> Any:
        """Says now and then who does what."""
        while True:
            try:
                return future.result(1.0)
            except TimeoutError:
                if future.done():
                    raise
                self.order.tracker.across(self.pool.now(), what)

    # Branches

    def branch(self, spec: ModelSpec, pending: Sequence[Job]) -> str:
        order, tracker = self.order, self.order.tracker
        stored: dict[str, Mapping[str, Any]] = {}

        def done(job: Job) -> None:
            tracker.add_stored(job.shard.name, stored.pop(job.shard.name))

        def tick() -> None:
            now = self.pool.now()
            live = [w.said for w in now.workers if isinstance(w.said, BranchProgress)]
            tracker.live_on(spec.name, live)
            tracker.across(now, _busy(now.busy, len(now.workers)))

        return SideBySide(
            claims=Claims(order.store, lambda job: job.shard, order.lost, done, len(pending)),
            groups=lambda jobs: group_jobs(order.engine, jobs, self.pool.size),
            do=partial(self._shards, spec, stored),
            room=lambda: AHEAD * self.pool.size,
            stop=order.stop,
            abandon=self._abandon,
            came=tracker.refresh,
            tick=tick,
        ).work(pending)

    def _shards(self, spec: ModelSpec, stored: dict[str, Mapping[str, Any]], jobs: Sequence[Job]) -> Errors:
        """Compute a group, judge its shards, store them; what is lost with a node in between is computed again."""
        expected, name = self._planned[spec.name].provenance, jobs[0].shard.name
        what = name if len(jobs) == 1 else f"{name} and {len(jobs) - 1} more"
        kept = self.pool.submit(branch_shards, spec, expected, list(jobs), what=what, keep=True).result()
        scoring, side = self.order.study.scoring, self.order.jobs or 1
        judged = [self.pool.beside(judge_shard, at, scoring, side, kept=[kept]) for at in range(len(jobs))]
        errors = [self._stored(future, stored) for future in judged]
        lost = [at for at, error in enumerate(errors) if isinstance(error, ResultLost)]
        if lost:
            again = self._shards(spec, stored, [jobs[at] for at in lost])
            for at, error in zip(lost, again, strict=True):
                errors[at] = error
        return errors

    def _stored(self, judged: "Future[FinishedShard]", stored: dict[str, Mapping[str, Any]]) -> BaseException | None:
        """How a shard ended; None where it is in its place."""
        try:
            finished = judged.result()
            finished.store(self.order.store)
        except PoolClosed:
            raise
        except (Exception, SystemExit) as error:
            return error
        stored[finished.shard.name] = finished.info
        return None

    def _abandon(self) -> None:
        if self._pool is not None:
            self._pool.close()

    # Whole runs

    def decoder(
        self, spec: ModelSpec, requests: Mapping[str, Sequence[Request]], on_batch: Callable[[], None]
    ) -> PromptDecoder:
        def submit(policy: Policy | Search, group: PromptGroup) -> "Future[pd.DataFrame]":
            return self.pool.submit(decode_part, spec, policy, group, what=f"decoding {policy}"[:80], deaths=ATTEMPTS)

        return PromptDecoder(requests, self.order.study.engine, submit, ahead=True, on_batch=on_batch)

    def score(self, frame: pd.DataFrame, examples: Sequence[Example], known: Known | None = None) -> pd.DataFrame:
        def beside(
            pairs: Sequence[tuple[str, Example]], workers: int | None, scoring: str
        ) -> Sequence[tuple[float, str]]:
            scored: Sequence[tuple[float, str]] = self.pool.beside(judge_pairs, pairs, workers, scoring).result()
            return scored

        study = self.order.study
        return score_answers(
            frame, examples, workers=self.order.jobs or 1, scoring=study.scoring, known=known, score=beside
        )

    def each(self, pending: Sequence[Piece], place: Callable[[Piece], Shard], do: Callable[[Piece], None]) -> str:
        order = self.order

        def alone(pieces: Sequence[Piece]) -> Errors:
            for piece in pieces:
                do(piece)
            return [None] * len(pieces)

        return SideBySide(
            claims=Claims(order.store, place, order.lost, lambda piece: None, len(pending)),
            groups=lambda left: [[piece] for piece in left],
            do=alone,
            room=lambda: AHEAD * self.pool.size,
            stop=order.stop,
            abandon=self._abandon,
        ).work(pending)


def _busy(busy: int, workers: int) -> str:
    return f"{busy} of {workers} workers"
