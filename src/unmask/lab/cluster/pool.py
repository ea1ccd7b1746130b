"""Workers of a cluster, as many as there is room for, and calls that outlive them.

A thread of the driver's holds all there is: it starts a worker wherever a node has room, gives each one call at a time,
begins calls of lost workers again, and near the end gives what takes long to a second worker; who is first wins, and
the other result is dropped. Work that needs no model goes to helpers, which are actors as well. Calls must be
deterministic. Who submits a call gets a future.
"""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from unmask.base.errors import ConfigError, UnmaskError, WorkerDied
from unmask.lab.cluster.faults import Fault, FaultKind, fault_of, in_short, out_of_memory
from unmask.lab.cluster.helpers import Helpers, SideWork, settle
from unmask.lab.cluster.identity import check_identity, identity
from unmask.lab.cluster.progress import ClusterNow, WorkerLogs, WorkerNow
from unmask.lab.cluster.where import Ray, Resources, resources_of
from unmask.lab.cluster.workers import Setup, WorkerActor, received

LOOK = 1.0
"""Seconds between looks at the nodes, and at what workers are doing."""
TICK = 0.05
"""Seconds that the thread sleeps at most while something is under way."""
SLOW, LEAST, SEEN = 3.0, 2.0, 3
"""A call gets a second worker if it takes so many times the median, and so many seconds, once so many are done."""
GRACE = 10.0
"""Seconds that the thread has to end."""
STARTS = 3
"""So many workers in a row may die while they start."""


class PoolClosed(UnmaskError):
    """The work was stopped before a call was done."""


class ClusterLost(ConfigError):
    """The head is gone, and all nodes with it."""


@dataclass
class _Call:
    """Something to be done by any worker."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    what: str
    deaths: int
    """So many processes may die under it before whoever waits for it hears of it."""
    keep: bool
    """Whether the result stays in the object store."""
    future: "Future[Any]" = field(default_factory=Future)
    by: set[str] = field(default_factory=set)
    """Names of the workers that are at it."""
    began: float = 0.0


@dataclass
class _Worker:
    """An actor and what it is at."""

    name: str
    handle: Any
    at: str = ""
    """Its node."""
    host: str = ""
    ready: bool = False
    call: _Call | None = None
    since: float = 0.0
    result: Any = None
    """The object of what it returns."""
    said: Any = None
    looking: bool = False


class WorkerPool:
    """Calls for workers; use it as a context."""

    def __init__(
        self,
        ray: Any,
        cluster: Ray,
        setup: Setup,
        *,
        logs: WorkerLogs | None = None,
        actor: type = WorkerActor,
    ):
        """`actor` is a class with the methods of `WorkerActor`."""
        self.ray, self.where, self.setup = ray, cluster, setup
        self.logs = logs or WorkerLogs(None)
        self.driver = identity()
        self.taken: Resources = resources_of(cluster, self._nodes())
        self.lost = self.copies = 0
        self._setup, self._actor = ray.put(setup), ray.remote(actor)
        self._helpers = Helpers(ray, setup.parcel.files)
        self._queue: deque[_Call] = deque()
        self._workers: dict[str, _Worker] = {}
        self._pending: dict[Any, Any] = {}
        """What is under way: by Ray's reference, whom it concerns."""
        self._seconds: dict[str, list[float]] = {}
        """Of calls that are done, by function."""
        self._counter = self._failed_starts = 0
        self._room, self._looked = 0, -LOOK
        self._cores = 0.0
        self._fatal: BaseException | None = None
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._manage, name="workers of the cluster", daemon=True)

    def __enter__(self) -> "WorkerPool":
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    # For who has work

    @property
    def size(self) -> int:
        """Workers that there are, and that may soon be."""
        return max(len(self._workers), 1)

    def submit(
        self, function: Callable[..., Any], *arguments: Any, what: str = "", deaths: int = 1, keep: bool = False
    ) -> "Future[Any]":
        """Have `function(context, *arguments)` called by a worker. Importable, or of the user's carried code.

        `keep` leaves the result in the object store: the future then has a reference for `beside`. Node losses are not
        heard of; `WorkerDied` comes after so many `deaths` of processes.
        """
        call = _Call(function, arguments, what or function.__name__, deaths, keep)
        self._put(self._queue, call, call.future)
        return call.future

    def beside(self, function: Callable[..., Any], *arguments: Any, kept: Sequence[Any] = ()) -> "Future[Any]":
        """Have `function(*values of kept, *arguments)` called on any core: work that needs no model."""
        work = SideWork(function, self.ray.cloudpickle.dumps(arguments), tuple(kept))
        self._put(self._helpers.waiting, work, work.future)
        return work.future

    def _put(self, queue: "deque[Any]", item: Any, future: "Future[Any]") -> None:
        with self._lock:
            if self._fatal is not None or self._closed.is_set():
                future.set_exception(self._fatal or PoolClosed("the workers are gone"))
                return
            queue.append(item)
        self._wake.set()

    def close(self) -> None:
        """Stop everything. Who still waits for a call hears that it was stopped."""
        self._closed.set()
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(GRACE)
        self._fail(PoolClosed("the work was stopped"))
        for worker in list(self._workers.values()):
            self._kill(worker)
        self._helpers.stop()

    def now(self) -> ClusterNow:
        """Who does what."""
        at = time.monotonic()
        workers = tuple(
            WorkerNow(w.name, w.host, w.call.what if w.call else "", at - w.since if w.call else 0.0, w.said)
            for w in list(self._workers.values())
        )
        scoring = self._helpers.busy + len(self._helpers.waiting)
        return ClusterNow(workers, len(self._queue), scoring, self.lost, self.copies)

    # The thread

    def _manage(self) -> None:
        try:
            while not self._closed.is_set():
                self._look()
                self._give_to_helpers()
                self._give_out()
                self._listen()
        # Whatever it is, those who wait must hear of it.
        except BaseException as error:
            lost = ClusterLost(
                f"the cluster does not answer any more ({in_short(error)}); what is finished stays; start it again and "
                "run the same command to go on"
            )
            lost.__cause__ = error
            self._fail(lost)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._fatal = self._fatal or error
            calls = [*self._queue, *(w.call for w in self._workers.values() if w.call)]
            futures = [*(call.future for call in calls), *self._helpers.futures()]
            self._queue.clear()
            self._helpers.waiting.clear()
        for future in futures:
            settle(future, error=self._fatal)

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def _look(self) -> None:
        """Once a second: what nodes there are, whether more workers fit, what those that work say."""
        at = time.monotonic()
        if at - self._looked < LOOK:
            return
        self._looked = at
        nodes = self._nodes()
        self._room = sum(self.taken.fit(node) for node in nodes)
        self._cores = sum(node.get("CPU", 0) for node in nodes)
        wanted = self._room if self.where.workers is None else min(self.where.workers, self._room)
        for _ in range(wanted - len(self._workers)):
            self._start()
        for worker in self._workers.values():
            if worker.call is not None and not worker.looking:
                worker.looking = True
                self._pending[worker.handle.look.remote()] = ("look", worker)

    def _start(self) -> None:
        name = f"worker-{self._counter}"
        self._counter += 1
        actor = self._actor.options(
            num_cpus=self.taken.cpus, num_gpus=self.taken.gpus, max_concurrency=2, name=f"unmask-{id(self)}-{name}"
        )
        worker = _Worker(name, actor.remote())
        self._workers[name] = worker
        self._pending[worker.handle.hello.remote()] = ("hello", worker)

    def _give_to_helpers(self) -> None:
        """As many at a time as there are cores that no worker has, one in any case."""
        spare = int(self._cores - self.taken.cpus * len(self._workers))
        self._pending |= {reference: ("help", helper) for reference, helper in self._helpers.begin(max(1, spare))}

    def _give_out(self) -> None:
        idle = [w for w in self._workers.values() if w.ready and w.call is None]
        for worker in idle:
            call = self._next()
            if call is None:
                return
            self._give(worker, call)

    def _next(self) -> _Call | None:
        """The next call that nobody has; else the one that takes longest, if that is too long."""
        while self._queue:
            call = self._queue.popleft()
            if not call.future.done():
                return call
        at = time.monotonic()
        slow = [call for call in self._under_way() if len(call.by) == 1 and at - call.began > self._too_long(call)]
        if not slow:
            return None
        self.copies += 1
        return min(slow, key=lambda call: call.began)

    def _under_way(self) -> list[_Call]:
        calls = [w.call for w in self._workers.values() if w.call is not None]
        return [call for call in calls if not call.future.done()]

    def _too_long(self, call: _Call) -> float:
        done = self._seconds.get(call.function.__name__, [])
        return max(LEAST, SLOW * statistics.median(done)) if len(done) >= SEEN else float("inf")

    def _give(self, worker: _Worker, call: _Call) -> None:
        worker.call, worker.since, worker.said = call, time.monotonic(), None
        call.by.add(worker.name)
        call.began = call.began or worker.since
        run = worker.handle.run.options(num_returns=2)
        outcome, worker.result = run.remote(call.function, call.arguments)
        self._pending[outcome] = ("run", worker)

    def _listen(self) -> None:
        """Hear what has ended; sleep if nothing has."""
        if not self._pending:
            self._wake.wait(LOOK)
            self._wake.clear()
            return
        self._wake.clear()
        ready, _ = self.ray.wait(list(self._pending), num_returns=1, timeout=TICK, fetch_local=False)
        if ready:
            ready, _ = self.ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0, fetch_local=False)
        for reference in ready:
            whom = self._pending.pop(reference)
            if whom[0] == "help":
                self._helpers.ended(whom[1], reference)
            elif whom[1].name in self._workers:
                hear = {"hello": self._greeted, "ready": self._ready, "look": self._seen, "run": self._ended}[whom[0]]
                hear(whom[1], reference)

    # What ends

    def _greeted(self, worker: _Worker, reference: Any) -> None:
        try:
            about, worker.at = self.ray.get(reference)
        except Exception as error:
            return self._did_not_start(worker, error)
        try:
            check_identity(about, self.driver, worker.name)
        except ConfigError as error:
            return self._fail(error)
        worker.host = about["host"]
        self._pending[worker.handle.prepare.remote(self._setup)] = ("ready", worker)

    def _ready(self, worker: _Worker, reference: Any) -> None:
        try:
            self.ray.get(reference)
        except Exception as error:
            return self._did_not_start(worker, error)
        self._failed_starts, worker.ready = 0, True
        self.logs.write(worker.name, f"ready on {worker.host}, node {worker.at}")

    def _did_not_start(self, worker: _Worker, error: Exception) -> None:
        fault = fault_of(self.ray, error)
        self._drop(worker, f"did not start: {fault.text}")
        self._failed_starts += fault.kind is not FaultKind.NODE
        if fault.kind is FaultKind.ERROR or self._failed_starts >= STARTS:
            self._fail(_cannot_start(worker, fault))

    def _seen(self, worker: _Worker, reference: Any) -> None:
        worker.looking = False
        with suppress(Exception):
            worker.said = self.ray.get(reference)

    def _ended(self, worker: _Worker, reference: Any) -> None:
        call, result = worker.call, worker.result
        assert call is not None
        try:
            outcome = self.ray.get(reference)
            value = result if call.keep or outcome.error is not None else self.ray.get(result)
        except Exception as error:
            return self._broke(worker, call, fault_of(self.ray, error))
        worker.call = worker.result = None
        call.by.discard(worker.name)
        took = f"{call.what}: {outcome.seconds:.1f} s"
        if outcome.error is not None:
            return self._raised(worker, call, received(outcome.error), took)
        self.logs.write(worker.name, took if not call.future.done() else f"{took}, dropped: another was first")
        self._seconds.setdefault(call.function.__name__, []).append(outcome.seconds)
        settle(call.future, value)

    def _raised(self, worker: _Worker, call: _Call, error: BaseException, took: str) -> None:
        self.logs.write(worker.name, f"{took}, {type(error).__name__}: {error}")
        if out_of_memory(error):
            # Its process holds what could not be freed; a new one begins without.
            self._drop(worker, "ran out of memory")
            return self._died(call, f"{worker.name} ran out of memory: {error}")
        if not call.by:
            settle(call.future, error=error)

    def _broke(self, worker: _Worker, call: _Call, fault: Fault) -> None:
        """The worker is gone, or what it returned."""
        self._drop(worker, f"lost while at {call.what}: {fault.text}")
        call.by.discard(worker.name)
        if fault.kind is FaultKind.NODE:
            if not call.by and not call.future.done():
                self._queue.appendleft(call)
            return
        self._died(call, f"{worker.name} on {worker.host} died at {call.what}: {fault.text}")

    def _died(self, call: _Call, text: str) -> None:
        call.deaths -= 1
        if call.future.done() or call.by:
            return
        if call.deaths > 0:
            self._queue.appendleft(call)
        else:
            settle(call.future, error=WorkerDied(f"{text}; it is tried again by another"))

    def _drop(self, worker: _Worker, why: str) -> None:
        self.lost += 1
        self.logs.write(worker.name, why)
        self._workers.pop(worker.name, None)
        self._kill(worker)
        # A new one need not wait for the next look.
        self._looked = min(self._looked, time.monotonic() - LOOK / 2)

    def _kill(self, worker: _Worker) -> None:
        with suppress(Exception):
            self.ray.kill(worker.handle, no_restart=True)


def _cannot_start(worker: _Worker, fault: Fault) -> ConfigError:
    return ConfigError(
        f"{worker.name} does not start ({fault.text}); allowed: nodes with the same unmask as the driver and memory "
        "for it; look into Ray's logs of that node (/tmp/ray/session_latest/logs)"
    )
