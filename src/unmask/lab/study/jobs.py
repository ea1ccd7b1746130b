"""The work of a study as jobs, one for each shard, and the one loop that carries jobs out: `run_jobs`.

Several processes may work on one store. Each job is claimed, run, stored and released; a job that another process has
claimed is waited for. A job that fails is tried again after the others, and set aside after three attempts. What is
wrong with the study, the store or the machine is no failure of a job: it ends the run.
"""

import errno
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import torch

from unmask.api import LoadedModel, Request
from unmask.base.errors import ConfigError, NotEnoughMemory, SchemaError, StorageError, UnmaskError, WorkerDied
from unmask.lab.branching import BatchSettings
from unmask.lab.cluster import DaemonThread, Executor, is_out_of_memory
from unmask.lab.store import Failure, Shard, Store, fingerprint, storage_error
from unmask.lab.study.config import ModelSpec, StudyConfig
from unmask.lab.study.prompts import example_request
from unmask.tasks import Example

Examples = Mapping[str, Mapping[str, Sequence[Example]]]
"""Examples by task and role."""

POLL_SECONDS = 0.5
"""Seconds between looks at shards that another process is working on."""
TICK_SECONDS = 0.2
"""Seconds between reports of progress while calls run elsewhere."""
GRACE_SECONDS = 2.0
"""Seconds that a stopped run waits for computed shards to be stored."""
MAX_RUNNING_GROUPS = 1024
HOPELESS_FAILURES = 3
"""Number of failed jobs after which a run ends with their error, if no job has ever succeeded."""
_STUDY_ERRORS = (ConfigError, SchemaError, StorageError, NotEnoughMemory)
_MACHINE_ERRNOS = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN
}  # fmt: skip


# Jobs of branches


@dataclass(frozen=True)
class Job:
    """A shard of branches, and the prompts that it is made of."""

    shard: Shard
    requests: tuple[Request, ...]
    examples: tuple[Example, ...]


def plan_jobs(study: StudyConfig, spec: ModelSpec, model: LoadedModel, examples: Examples) -> list[Job]:
    """Cut a model's prompts into shards: those of one task, role and canvas width, in the order of their split."""
    jobs = []
    for task, roles in examples.items():
        about, bucket = study.task(task), study.engine.bucket
        for role, members in roles.items():
            block = 0
            pairs = [(example_request(model, about, study.steps[task], example), example) for example in members]
            fits = [(r, e) for r, e in pairs if model.max_length is None or len(r.canvas) <= model.max_length]
            for width in sorted({request.padded_length(bucket) for request, _ in fits}):
                alike = [pair for pair in fits if pair[0].padded_length(bucket) == width]
                for first in range(0, len(alike), study.shard):
                    requests, members_of_shard = zip(*alike[first : first + study.shard], strict=True)
                    # Everything that the numbers of a shard depend on. The key of every stored shard is made of it.
                    made_of = [study.config, spec.name, spec.reference, _model_identity(spec, model), task]
                    made_of += [about.version, role, _hash_prompts(requests, members_of_shard)]
                    shard = Shard(
                        kind="branches",
                        model=spec.name,
                        task=task,
                        split=role,
                        block=block,
                        depends=fingerprint(made_of),
                    )
                    jobs.append(Job(shard, requests, members_of_shard))
                    block += 1
    return jobs


def group_jobs(settings: BatchSettings, jobs: Sequence[Job], workers: int = 1) -> list[list[Job]]:
    """Put jobs of one canvas width together, so that forwards are full; with several workers, two groups for each."""
    prompts = sum(len(job.requests) for job in jobs)
    most = settings.rows if workers == 1 else min(settings.rows, max(1, -(-prompts // (2 * workers))))
    groups: list[list[Job]] = []
    growing: dict[int, list[Job]] = {}
    for job in jobs:
        width = max(request.padded_length(settings.bucket) for request in job.requests)
        group = growing.get(width, [])
        if not group or sum(len(one.requests) for one in [*group, job]) > most:
            group = growing[width] = []
            groups.append(group)
        group.append(job)
    return groups


def describe_model(spec: ModelSpec, model: LoadedModel, jobs: Sequence[Job]) -> dict[str, Any]:
    """Describe a model for the manifest: checkpoint, device, and the contents of each planned shard."""
    shards = {
        job.shard.name: {
            "task": job.shard.task,
            "split": job.shard.split,
            "block": job.shard.block,
            "prompts": len(job.requests),
        }
        for job in jobs
    }
    return {**_model_identity(spec, model), "reference": spec.reference, "shards": shards}


def _model_identity(spec: ModelSpec, model: LoadedModel) -> dict[str, Any]:
    device = model.denoiser.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"model": spec.model, "options": dict(model.options), "device": name}


def _hash_prompts(requests: Sequence[Request], examples: Sequence[Example]) -> str:
    digest = hashlib.sha256()
    for request, example in zip(requests, examples, strict=True):
        digest.update(repr((request.id, request.canvas, request.steps, example.target)).encode())
    return digest.hexdigest()


# Carrying jobs out


class HasShard(Protocol):
    """Any job that fills one shard."""

    @property
    def shard(self) -> Shard: ...


AnyJob = TypeVar("AnyJob", bound=HasShard)


class ShardContent(NamedTuple):
    """The tables of a shard, and what its info file says."""

    tables: Mapping[str, pa.Table]
    info: Mapping[str, Any]


Outcomes = Sequence[ShardContent | BaseException]
"""Content of each shard of a group, or the error that only this shard had."""
StoredFuture: TypeAlias = "Future[Outcomes]"


@dataclass(frozen=True)
class Work(Generic[AnyJob]):
    """Functions that group jobs and start a group."""

    start: Callable[[Sequence[AnyJob]], "Future[Outcomes]"]
    """Start a group of jobs."""
    group: Callable[[Sequence[AnyJob]], Iterable[Sequence[AnyJob]]] = lambda jobs: [[job] for job in jobs]
    """Cut jobs into groups that are run together."""


def _do_nothing(*values: Any) -> None:
    """Ignore an event: the default of every callback."""


@dataclass(frozen=True)
class JobEvents:
    """Callbacks of `run_jobs`."""

    on_stored: Callable[[Shard, Mapping[str, Any]], None] = _do_nothing
    """Gets each shard that is stored, with its info."""
    on_found: Callable[[], None] = _do_nothing
    """Called where another process has finished a shard."""
    on_failure: Callable[[Failure], None] = _do_nothing
    on_wait: Callable[[str], None] = _do_nothing
    """Gets the name of the process whose shards this one waits for, in a sentence."""
    on_tick: Callable[[int], None] = _do_nothing
    """Gets the number of running groups about once per `TICK_SECONDS`."""


def run_jobs(
    executor: Executor,
    jobs: Sequence[AnyJob],
    store: Store,
    work: Work[AnyJob],
    stop: Callable[[], str] = str,
    events: JobEvents | None = None,
) -> str:
    """Run every job that no other process runs, store its shard, and wait for the jobs of others.

    Returns why it stopped early, by the words of `stop`; empty if it did not. Jobs that are set aside are passed over.
    """
    with JobLoop(executor, len(jobs), store, work, stop, events or JobEvents()) as loop:
        return loop.run(jobs)


class JobLoop(Generic[AnyJob]):
    """Claims, starts, stores and releases the jobs of one process.

    Shards are stored by a thread of their own while the next group is computed.
    """

    def __init__(
        self,
        executor: Executor,
        jobs: int,
        store: Store,
        work: Work[AnyJob],
        stop: Callable[[], str],
        events: JobEvents,
    ):
        self.executor, self.jobs, self.store, self.work = executor, jobs, store, work
        self.stop, self.events = stop, events
        self.claims: dict[str, ExitStack] = {}
        """Claims by name of the shard."""
        self.running: dict[StoredFuture, list[AnyJob]] = {}
        """Groups under way, by the future that is done when their shards are stored."""
        self.alone: deque[AnyJob] = deque()
        """Claimed jobs of groups that failed, to be run one by one: so only those count that fail by themselves."""
        self.again: list[AnyJob] = []
        """Jobs that failed, and not yet too often."""
        self.failed_names: set[str] = set()
        self.storing = DaemonThread("storing")

    def __enter__(self) -> "JobLoop[AnyJob]":
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        # Whoever stops a run gets what is computed stored, if that takes a moment. After an error nothing new is begun.
        if kind is not None and issubclass(kind, Exception):
            self._cancel_running()
        wait(self.running, GRACE_SECONDS)
        self._cancel_running()
        self.storing.close()
        for claim in self.claims.values():
            claim.close()

    def _cancel_running(self) -> None:
        for stored in self.running:
            stored.cancel()

    def run(self, jobs: Sequence[AnyJob]) -> str:
        pending, announced = list(jobs), ""
        while pending:
            waiting, reason = self._run_groups(deque(list(group) for group in self.work.group(pending)))
            if reason:
                return reason
            if waiting and not self.again:
                # Another process has them. Should it die, its claims end, and they are ours.
                holders = sorted({self.store.claim_holder(job.shard) for job in waiting} - {""})
                text = f"waiting for {len(waiting)} shards of {' and '.join(holders)}"
                if holders and text != announced:
                    self.events.on_wait(text)
                    announced = text
                time.sleep(POLL_SECONDS)
            pending, self.again = [*self.again, *waiting], []
        return ""

    def _run_groups(self, groups: deque[list[AnyJob]]) -> tuple[list[AnyJob], str]:
        """Run all groups. Returns the jobs that other processes have, and why it stopped early."""
        waiting: list[AnyJob] = []
        reason = ""
        while groups or self.alone or self.running:
            reason = reason or self.stop()
            if reason:
                # What is under way is finished.
                groups.clear()
                while self.alone:
                    self._release_claim(self.alone.popleft())
            # One group more than calls run: it is scored and stored while they do.
            has_room = len(self.running) < min(self.executor.ahead + 1, MAX_RUNNING_GROUPS)
            if self.alone and has_room:
                self._start_group([self.alone.popleft()])
            elif groups and has_room:
                self._start_group(self._claim_group(groups.popleft(), waiting))
            more_to_start = bool(groups or self.alone) and len(self.running) <= self.executor.ahead
            ended, _ = wait(self.running, 0 if more_to_start else TICK_SECONDS, FIRST_COMPLETED)
            for stored in ended:
                self._handle_end(self.running.pop(stored), stored)
            self.events.on_tick(len(self.running))
        return waiting, reason

    def _claim_group(self, group: Sequence[AnyJob], waiting: list[AnyJob]) -> list[AnyJob]:
        """Claim the jobs of a group that are neither set aside, finished, nor held by another process."""
        ours = []
        for job in group:
            with ExitStack() as stack:
                if stack.enter_context(self.store.claim(job.shard)):
                    before = self.store.failures.of(job.shard)
                    if before is None or not before.is_set_aside:
                        self.claims[job.shard.name] = stack.pop_all()
                        ours.append(job)
                elif self.store.is_finished(job.shard):
                    self.events.on_found()
                else:
                    waiting.append(job)
        return ours

    def _start_group(self, group: list[AnyJob]) -> None:
        if not group:
            return
        computed = self.work.start(group)
        stored: StoredFuture = Future()
        self.running[stored] = group
        computed.add_done_callback(
            lambda done: self.storing.submit(lambda: self._store_group(group, done.result()), stored)
        )

    def _store_group(self, group: Sequence[AnyJob], contents: Outcomes) -> Outcomes:
        """Store the shards of a group. Returns the contents, with an error in place of one that was not stored."""
        outcomes: list[ShardContent | BaseException] = []
        for job, content in zip(group, contents, strict=True):
            try:
                if not isinstance(content, BaseException):
                    self.store.write(job.shard, content.tables, content.info)
                outcomes.append(content)
            except (Exception, SystemExit) as error:
                outcomes.append(error)
        return outcomes

    def _handle_end(self, group: list[AnyJob], stored: StoredFuture) -> None:
        error = stored.exception()
        if error is not None:
            raise_unless_job_error(self.store, error)
            if len(group) > 1:
                self.alone.extend(group)
                return
        for job, outcome in zip(group, [error] if error is not None else stored.result(), strict=True):
            if isinstance(outcome, BaseException):
                raise_unless_job_error(self.store, outcome)
                self._record_failure(job, outcome)
            else:
                if self.store.failures.of(job.shard) is not None:
                    self.store.failures.forget(job.shard)
                self._release_claim(job)
                self.events.on_stored(job.shard, outcome.info)

    def _record_failure(self, job: AnyJob, error: BaseException) -> None:
        failure = self.store.failures.add(job.shard, error)
        self.failed_names.add(job.shard.name)
        self._release_claim(job)
        self.events.on_failure(failure)
        hopeless = len(self.failed_names) >= min(HOPELESS_FAILURES, self.jobs) and not self.store.names()
        # A worker that dies breaks no promise of the study's.
        if isinstance(error, UnmaskError) and not isinstance(error, WorkerDied) and hopeless:
            raise error
        self.again += [] if failure.is_set_aside else [job]

    def _release_claim(self, job: AnyJob) -> None:
        self.claims.pop(job.shard.name).close()


def raise_unless_job_error(store: Store, error: BaseException) -> None:
    """Raise an error that belongs to the study, the store, the machine or the user, and to no single job."""
    if isinstance(error, _STUDY_ERRORS) or not isinstance(error, Exception | SystemExit):
        raise error
    if isinstance(error, OSError) and error.errno in _MACHINE_ERRNOS:
        raise storage_error(store.folder, error) from error
    if is_out_of_memory(error):
        raise NotEnoughMemory(
            f"memory ran out ({type(error).__name__}); what is finished stays; make room, or lower live, waiting or "
            "rows of [engine] (other rows are another study), and run the same command to go on"
        ) from error
