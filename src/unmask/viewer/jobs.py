"""Decoding for pages: a few threads, a stream of events for each job, and the runs that pages may branch from.

The event loop never computes. A job belongs to the request that started it: when that goes away (a closed tab, a stop
button), the job ends at its next step and its thread is free again.
"""

import asyncio
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import StreamingResponse

from unmask.api import Generation
from unmask.base.errors import UnmaskError, require
from unmask.base.files import storable
from unmask.core import Trajectory
from unmask.report.run_data import RunData
from unmask.tasks import Example

THREADS = 2
"""Jobs at once: the long answer of one tab does not keep another from starting."""
MOST_WAITING = 16
"""Jobs that may wait for a thread."""
MOST_RUNS = 200
"""Runs that pages may branch from; the oldest are forgotten."""
KEEP_ALIVE = 10.0
"""Seconds after which a silent stream sends a sign of life."""


class Cancelled(Exception):
    """The page that started this job has gone away."""


class PageJob:
    """One job: it sends events to its page, and ends early when the page has gone away."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.cancelled = threading.Event()

    def check(self) -> None:
        """End the job here if nobody waits for it any more."""
        if self.cancelled.is_set():
            raise Cancelled

    def send(self, event: str, value: Any) -> None:
        """Send an event from the job's thread."""
        self.check()
        self.queue_event(event, value)

    def queue_event(self, event: str, value: Any) -> None:
        """Queue an event from any thread; events after the end of the server are dropped."""
        try:
            self._loop.call_soon_threadsafe(self.events.put_nowait, (event, value))
        except RuntimeError:
            return

    def run(self, work: "Callable[[PageJob], None]") -> None:
        """Run the job's function; an error becomes an event of one line, and the last event is always `done`."""
        try:
            self.check()
            work(self)
        except Cancelled:
            pass
        except UnmaskError as error:
            self.queue_event("error", one_line(str(error)))
        except Exception as error:
            self.queue_event("error", one_line(f"unexpected {type(error).__name__}: {error}"))
        finally:
            self.queue_event("done", None)


class JobQueue:
    """The threads that decode, and the jobs that run or wait."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="unmask-view")
        self.jobs: set[PageJob] = set()

    def stream(self, work: Callable[[PageJob], None]) -> StreamingResponse:
        """Start a job and answer with its events; the job ends when the reader goes away."""
        ahead = len(self.jobs) - THREADS
        require(ahead < MOST_WAITING, "waiting jobs", ahead, f"fewer than {MOST_WAITING}", "try again later")
        job = PageJob()
        if ahead >= 0:
            job.queue_event("waiting", {"before": ahead + 1})
        self.jobs.add(job)
        # Called as soon as the thread has left the job, so that `jobs` counts what really runs or waits.
        self._pool.submit(job.run, work).add_done_callback(lambda _: self.jobs.discard(job))
        return StreamingResponse(_stream_events(job), media_type="text/event-stream")

    def stop(self) -> None:
        """Cancel every job, and end its stream without waiting for the step that it is at."""
        for job in tuple(self.jobs):
            job.cancelled.set()
            job.queue_event("done", None)

    def close(self) -> None:
        """Cancel every job and end the threads."""
        self.stop()
        self._pool.shutdown(cancel_futures=True)


async def _stream_events(job: PageJob) -> AsyncIterator[bytes]:
    """Yield the events of a job as server-sent events."""
    try:
        while True:
            try:
                event, value = await asyncio.wait_for(job.events.get(), KEEP_ALIVE)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            yield format_event(event, value)
            if event == "done":
                return
    finally:
        job.cancelled.set()


def format_event(event: str, value: Any) -> bytes:
    """Return one server-sent event; JSON has no line ends of its own, so a text cannot begin another event."""
    return f"event: {event}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()


def one_line(text: str) -> str:
    """Join a text to one line of bounded length."""
    return storable(" ".join(text.split()))[:2000]


@dataclass(frozen=True)
class KeptRun:
    """A finished run that pages may look at, branch from and export."""

    run: Generation | Trajectory
    """The result of a decode, or the content of a file."""
    data: RunData
    """The values that pages draw."""
    model: str
    """The name that pages use for the model."""
    example: Example | None = None
    """The prompt of a task, whose scorer scores the answers; None for the user's own prompt."""
    scoring: str = "ours"
    row: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def trajectory(self) -> Trajectory:
        return self.run.trajectory if isinstance(self.run, Generation) else self.run


class KeptRuns:
    """The latest runs by their ids."""

    def __init__(self, most: int = MOST_RUNS):
        self.most = most
        self._runs: OrderedDict[str, KeptRun] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, run: KeptRun) -> KeptRun:
        with self._lock:
            self._runs[run.id] = run
            while len(self._runs) > self.most:
                self._runs.popitem(last=False)
        return run

    def get(self, id: str) -> KeptRun:
        with self._lock:
            require(id in self._runs, "run", id, f"one of the last {self.most} of this server", "decode it again")
            self._runs.move_to_end(id)
            return self._runs[id]
