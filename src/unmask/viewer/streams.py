"""Events of a piece of work as a stream that a page reads while it goes on (server-sent events)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import StreamingResponse

from unmask.viewer.sessions import PageWork, Workers

STILL_HERE = 10.0
"""Seconds after which a silent stream says that it lives."""
_LAST = "done"


class Listener:
    """Between a worker's thread and the event loop: what one says, the other reads in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def tell(self, event: str, value: Any) -> None:
        """From any thread; after the server has gone, into the void."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (event, value))
        except RuntimeError:
            return

    async def heard(self, seconds: float | None = None) -> tuple[str, Any]:
        return await asyncio.wait_for(self._queue.get(), seconds)


def streamed(workers: Workers, work: Callable[[PageWork], None]) -> StreamingResponse:
    """Begin a piece of work, and answer with what it tells; it ends when the reader goes away."""
    listener = Listener()
    job = workers.submit(work, listener.tell)
    return StreamingResponse(_lines(listener, job), media_type="text/event-stream")


async def awaited(workers: Workers, work: Callable[[PageWork], Any]) -> Any:
    """The one value of a short piece of work, or its error as `UnmaskError` text under "error"."""
    listener = Listener()
    job = workers.submit(lambda job: job.tell("value", work(job)), listener.tell)
    found: dict[str, Any] = {}
    try:
        while True:
            event, value = await listener.heard()
            if event == _LAST:
                return found
            if event in ("value", "error"):
                found[event] = value
    finally:
        job.cancel()


async def _lines(listener: Listener, job: PageWork) -> AsyncIterator[bytes]:
    try:
        while True:
            try:
                event, value = await listener.heard(STILL_HERE)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            yield as_event(event, value)
            if event == _LAST:
                return
    finally:
        job.cancel()


def as_event(event: str, value: Any) -> bytes:
    """One event; JSON has no line end of its own, so that a text cannot begin another."""
    return f"event: {event}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()
