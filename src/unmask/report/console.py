"""Where a command prints: stdout for results, stderr for progress, and a quiet end when a pipe closes.

A terminal may hold fewer characters than a result has (`LANG=C`, `PYTHONIOENCODING=ascii`), or be gone: neither may end
a command that has done its work. `prepare` sees to that for everything that is printed, by whomever.
"""

import codecs
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, NoReturn

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

PLAINER = {
    **{"↑": "^", "↓": "v", "…": ".", "↵": "/", "░": "_", "·": ".", "★": "*", "†": "+", "‡": "#", "Δ": "D", "τ": "t"},
    **{"→": ">", "│": "|", "└": "+", "×": "x", "–": "-", "—": "-", "−": "-", "─": "-", "±": "+-", "∞": "inf"},
}
"""Signs of our own as plain ones, most of the same width; any other character is written as its number."""

AS_SIGNS, AS_JSON = "unmask-signs", "unmask-json"


def prepare() -> None:
    """Make stdout and stderr write what they cannot hold in another way, and be there even if they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=AS_SIGNS)


def silence(stream: IO[str]) -> None:
    """Nobody reads it any more: or the interpreter would try to flush once more as it ends, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _as_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(PLAINER.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in lost), error.end


def _as_json(error: UnicodeError) -> tuple[str, int]:
    """JSON has numbers of 16 bits for characters, and has them in strings only, as characters beyond ASCII are."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


codecs.register_error(AS_SIGNS, _as_signs)
codecs.register_error(AS_JSON, _as_json)


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


def say_json(text: str) -> None:
    """A JSON text to stdout: valid whatever stdout can hold."""
    encoding = sys.stdout.encoding or "utf-8"
    say(text.encode(encoding, AS_JSON).decode(encoding))


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
