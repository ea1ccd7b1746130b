"""Commands that are stopped say what is kept: Ctrl-C and SIGTERM, a line on stderr and an exit code, no traceback."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from unmask.cli.progress import note

INTERRUPTED, TERMINATED = 130, 143
"""As shells have it: 128 and the signal's number."""


class _Terminated(KeyboardInterrupt):
    """Somebody sent SIGTERM; like Ctrl-C, it gets through code that catches whatever a user's function raises."""


@contextmanager
def stoppable(kept: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command; `kept` says what is finished, and how to go on."""

    def end(number: int, frame: Any) -> NoReturn:
        raise _Terminated

    # Signals belong to the main thread; anywhere else they are somebody else's.
    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, end) if ours else None
    try:
        yield
    except KeyboardInterrupt as stop:
        ended = isinstance(stop, _Terminated)
        note(f"{'terminated' if ended else 'interrupted'}: {kept()}")
        raise typer.Exit(TERMINATED if ended else INTERRUPTED) from None
    finally:
        if ours:
            signal.signal(signal.SIGTERM, before)
