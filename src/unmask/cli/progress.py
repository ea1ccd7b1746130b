"""How a command shows that it works: a bar or panel on a terminal, elsewhere a line now and then, always on stderr."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from unmask.cli.terminal import Console, print_note

if TYPE_CHECKING:
    from unmask.lab.compare import CompareProgress

Event = TypeVar("Event")

SECONDS_BETWEEN_LINES = 5.0
INTERRUPTED, TERMINATED = 130, 143
"""Exit codes as shells have them: 128 and the signal's number."""


class Pace:
    """A clock that says whether enough seconds have passed since it last said yes."""

    def __init__(self, seconds: float = SECONDS_BETWEEN_LINES, at_once: bool = True) -> None:
        self.seconds, self.last = seconds, -math.inf if at_once else time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time for another line."""
        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True


@contextmanager
def show_bar(text: str, total: int | None = None, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Yield the `update` of a bar: keywords `completed`, `total`, `description`, or `advance`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda **now: progress.update(task, **now)


@contextmanager
def show_loading() -> Iterator[Callable[[str, int], None]]:
    """Yield a function that is called with the bytes of a model as they are read."""
    columns = (TextColumn("reading weights"), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda name, size: progress.update(task, advance=size)


@contextmanager
def show_progress(
    print_line: Callable[[Event], None],
    open_screen: Callable[[], AbstractContextManager[Callable[[Event], None]]],
    *,
    quiet: bool = False,
    live: bool | None = None,
) -> Iterator[Callable[[Event], None]]:
    """Yield a function to call with every event: a screen where stderr is a terminal, else lines."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty() if live is None else live:
        with open_screen() as update:
            yield update
    else:
        yield print_line


@contextmanager
def show_answers(text: str, quiet: bool, *, at_once: bool) -> "Iterator[Callable[[CompareProgress], None]]":
    """Show how many answers are decoded; the first line comes at once or after some seconds."""
    pace, started = Pace(at_once=at_once), time.monotonic()

    def print_line(now: "CompareProgress") -> None:
        if not pace.is_due() and now.done < now.total:
            return
        spent = time.monotonic() - started
        left = spent / max(now.done - now.kept, 1) * (now.total - now.done)
        kept = f" ({now.kept} from before)" if now.kept else ""
        count = f"{now.done}/{now.total} answers{kept}, {spent:.0f} s, about {left:.0f} s left"
        print_note(f"{count}  {now.task}  {now.policy}")

    @contextmanager
    def open_screen() -> "Iterator[Callable[[CompareProgress], None]]":
        with show_bar(text) as update:
            yield lambda now: update(completed=now.done, total=now.total, description=f"{now.task}  {now.policy}")

    with show_progress(print_line, open_screen, quiet=quiet) as on_progress:
        yield on_progress


class _Terminated(KeyboardInterrupt):
    """SIGTERM as an exception. Like Ctrl-C it passes code that catches whatever a user's function raises."""


@contextmanager
def explain_interrupts(describe: Callable[[], str]) -> Iterator[None]:
    """End the command on Ctrl-C and SIGTERM with a line: `describe` says what is kept and how to go on."""

    def stop(number: int, frame: Any) -> NoReturn:
        raise _Terminated

    # Only the main thread may set signal handlers.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if is_main else None
    try:
        yield
    except KeyboardInterrupt as error:
        terminated = isinstance(error, _Terminated)
        print_note(f"{'terminated' if terminated else 'interrupted'}: {describe()}")
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)
