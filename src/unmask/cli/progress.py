"""How a command shows that it works: something live on a terminal, elsewhere a line now and then."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from unmask.report.console import Console, silence

if TYPE_CHECKING:
    from unmask.lab.compare import CompareProgress

Now = TypeVar("Now")

EVERY = 5.0
"""Seconds between two lines."""


def note(text: str) -> None:
    """A line on stderr, if somebody is there to read it: work does not end with its audience."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # Closed, or on a disk that is full.
        silence(sys.stderr)


def wide_console() -> Console:
    """Standard output for tables. A file has no width of its own; rich would take it for a terminal of 80 columns."""
    return Console() if sys.stdout.isatty() else Console(width=160)


class Pace:
    """Whether enough seconds have passed since the last time."""

    def __init__(self, every: float = EVERY, at_once: bool = True) -> None:
        self.every, self.last = every, -math.inf if at_once else time.monotonic()

    def due(self, whatever_the_time: bool = False) -> bool:
        now = time.monotonic()
        if now - self.last < self.every and not whatever_the_time:
            return False
        self.last = now
        return True


class AnswerLines:
    """A line every few seconds, and one at the end: the answers that are there, and how long the others will take.

    `line` puts that beside what the command is at; the first comes `at_once`, or after some seconds.
    """

    def __init__(self, line: "Callable[[CompareProgress, str], str]", *, at_once: bool) -> None:
        self.line, self.pace, self.started = line, Pace(at_once=at_once), time.monotonic()

    def show(self, now: "CompareProgress") -> None:
        if not self.pace.due(whatever_the_time=now.done >= now.total):
            return
        spent = time.monotonic() - self.started
        left = spent / max(now.done - now.kept, 1) * (now.total - now.done)
        kept = f" ({now.kept} from before)" if now.kept else ""
        note(self.line(now, f"{now.done}/{now.total} answers{kept}, {spent:.0f} s, about {left:.0f} s left"))


@contextmanager
def watching(
    lines: Callable[[Now], None],
    screen: Callable[[], AbstractContextManager[Callable[[Now], None]]],
    *,
    quiet: bool = False,
    live: bool | None = None,
) -> Iterator[Callable[[Now], None]]:
    """What is to be called with every progress: `lines`, or what `screen` gives where stderr is a terminal."""
    if quiet:
        yield lambda now: None
    elif sys.stderr.isatty() if live is None else live:
        with screen() as show:
            yield show
    else:
        yield lines


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Callable[[int, int, str], Any]]:
    """A bar on stderr; what it yields takes how much is done, of how much, and a text."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done, of, text: progress.update(task, completed=done, total=of, description=text)
