"""Work for pages: a few threads that decode, a queue before them, and the runs that pages may go on from.

The event loop never computes. A piece of work belongs to the request that asked for it; when that goes away (a closed
tab, a stop button), the work ends at its next step and its thread is free.
"""

import queue
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unmask.api import Generation
from unmask.base.errors import UnmaskError, require
from unmask.base.files import storable
from unmask.core import Trajectory
from unmask.tasks import Example

THREADS = 2
"""Decodes at once: one tab's long answer does not keep another from beginning."""
WAITING = 16
"""Pieces of work that may wait; more tabs than that are told so."""
KEPT = 200
"""Runs that pages may go on from; the oldest are forgotten."""

Tell = Callable[[str, Any], None]
"""Called in the worker's thread with the name of an event and its plain value."""


class Cancelled(Exception):
    """Nobody waits for this work any more."""


class PageWork:
    """One piece of work: what it tells, and whether anybody listens."""

    def __init__(self, work: "Callable[[PageWork], None]", tell: Tell):
        self._work, self._tell = work, tell
        self._cancelled = threading.Event()
        self.done = threading.Event()
        """Set when its thread has left it."""

    def cancel(self) -> None:
        """Nobody listens any more: it ends before its next word."""
        self._cancelled.set()

    def dismiss(self) -> None:
        """The same from the other side: whoever listens need not wait for that word."""
        self.cancel()
        self._tell("done", None)

    def check(self) -> None:
        """End here if nobody listens."""
        if self._cancelled.is_set():
            raise Cancelled

    def tell(self, event: str, value: Any) -> None:
        self.check()
        self._tell(event, value)

    def run(self) -> None:
        """Do it; what goes wrong is told in one line, and the last word is always `done`."""
        try:
            self.check()
            self._work(self)
        except Cancelled:
            pass
        except UnmaskError as error:
            self._tell("error", _line(str(error)))
        except Exception as error:
            self._tell("error", _line(f"unexpected {type(error).__name__}: {error}"))
        finally:
            self._tell("done", None)
            self.done.set()


class Workers:
    """The threads, and what waits for them."""

    def __init__(self, threads: int = THREADS, waiting: int = WAITING):
        self.waiting = waiting
        self._queue: queue.SimpleQueue[PageWork | None] = queue.SimpleQueue()
        self._running: set[PageWork] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._loop, name=f"view-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> int:
        """Pieces of work that a thread is at."""
        with self._lock:
            return len(self._running)

    def submit(self, work: Callable[[PageWork], None], tell: Tell) -> PageWork:
        """Queue a piece of work; told once more how many are before it where it has to wait."""
        before = self._queue.qsize()
        require(before < self.waiting, "work waiting", before, f"fewer than {self.waiting} pieces", "try again later")
        job = PageWork(work, tell)
        if before or self.running >= len(self._threads):
            job.tell("waiting", {"before": before + 1})
        self._queue.put(job)
        return job

    def dismiss(self) -> None:
        """Nobody waits for anything any more: running work ends at its next step, waiting work never begins."""
        with self._lock:
            for job in self._running:
                job.dismiss()
        while True:
            try:
                left = self._queue.get_nowait()
            except queue.Empty:
                return
            if left is not None:
                left.dismiss()
                left.done.set()

    def close(self, seconds: float = 5.0) -> None:
        """End every thread."""
        self.dismiss()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(seconds)

    def _loop(self) -> None:
        while (job := self._queue.get()) is not None:
            with self._lock:
                self._running.add(job)
            try:
                job.run()
            finally:
                with self._lock:
                    self._running.discard(job)


@dataclass(frozen=True)
class KeptRun:
    """A finished run that pages may look at, branch from and export."""

    run: Generation | Trajectory
    """What came out of a decode, or what a file holds."""
    record: dict[str, Any]
    """What pages draw."""
    model: str
    """By the name under which pages know it."""
    example: Example | None = None
    """The prompt of a task, where it is one: its judge scores the answers."""
    scoring: str = "ours"
    row: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def trajectory(self) -> Trajectory:
        return self.run.trajectory if isinstance(self.run, Generation) else self.run


class KeptRuns:
    """Runs by id, the latest ones."""

    def __init__(self, most: int = KEPT):
        self.most = most
        self._runs: OrderedDict[str, KeptRun] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, run: KeptRun) -> KeptRun:
        with self._lock:
            self._runs[run.id] = run
            while len(self._runs) > self.most:
                self._runs.popitem(last=False)
        return run

    def get(self, id: str) -> KeptRun:
        with self._lock:
            found = self._runs.get(id)
            if found is not None:
                self._runs.move_to_end(id)
        require(found is not None, "run", id, f"one of the last {self.most} of this server", "decode it again")
        assert found is not None
        return found


def _line(text: str) -> str:
    """On one line, as every page can hold it."""
    return storable(" ".join(text.split()))[:2000]
