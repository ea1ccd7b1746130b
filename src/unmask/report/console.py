"""Where a command prints: stdout for results, stderr for progress, and a quiet end when a pipe closes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich import console as rich_console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class PipeClosed(Exception):
    """Whoever read our output has stopped, as `head` does."""


class Console(rich_console.Console):
    def on_broken_pipe(self) -> NoReturn:
        raise PipeClosed


def say(text: str) -> None:
    """Plain text to stdout, unwrapped."""
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        raise PipeClosed from error


@contextmanager
def loading() -> Iterator[Callable[[str, int], None]]:
    """A line on stderr that counts the bytes of a model as they are read."""
    bar = Progress(
        TextColumn("reading weights"),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=rich_console.Console(stderr=True, quiet=not sys.stderr.isatty()),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda name, size: bar.update(task, advance=size)


@contextmanager
def progress(what: str, total: int, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A bar on stderr, where it does not mix with results; call what it yields after each piece of work."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=rich_console.Console(stderr=True, quiet=quiet or not sys.stderr.isatty()),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, advance=1, description=done)
