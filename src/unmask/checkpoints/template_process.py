"""The process in which chat templates are rendered: started at the first one, kept for the next, ended at a limit.

A template is a stranger's program. Jinja's sandbox keeps it from files, modules and Python's internals, but bounds
neither its time nor its memory, so it runs where both can be taken from it without harm to this process.
"""

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any, BinaryIO, cast

import jinja2
import markupsafe

from unmask.base.errors import CheckpointError
from unmask.checkpoints import template_child
from unmask.checkpoints.template_child import read_frame, write_frame

SECONDS = 10.0
"""Processor time of one rendering; published templates take about a thousandth of a second."""
WALL = 60.0
"""Seconds after which a rendering is given up in any case; the only limit on time on Windows."""

# The process finds Jinja and nothing else of this environment. Not a fork: other threads of this process hold locks.
_START = "import runpy, sys; sys.path[:0] = sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"
# No word of this process's environment but what an interpreter needs to start and to tell the time.
_PASSED_ON = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TZ")


def render_apart(source: str, values: dict[str, Any], most: int) -> list[Any]:
    """The child's reply; ["stopped", why] where it came to none."""
    with _kept.lock:
        child = _kept.running()
        with child.watched():
            try:
                reply = child.ask({"source": source, "values": values, "most": most, "seconds": SECONDS})
            except (EOFError, OSError):
                return ["stopped", child.why_it_ended()]
            except BaseException:
                # A reply that nobody read would answer the next request.
                child.end()
                raise
        if reply == ["memory"]:
            # What is left of it is not worth trusting.
            child.end()
        return reply


class RenderingProcess:
    """The process, and how it is talked to."""

    def __init__(self) -> None:
        folders = {str(Path(cast(str, package.__file__)).parents[1]) for package in (jinja2, markupsafe)}
        command = [sys.executable, "-I", "-c", _START, template_child.__file__, *sorted(folders)]
        self._late = False
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                # Ctrl-C is for this process to answer.
                start_new_session=True,
            )
            with self.watched():
                read_frame(cast(BinaryIO, self.process.stdout))
        except (OSError, ValueError, EOFError) as error:
            raise CheckpointError(
                f"the process that renders chat templates does not start ({str(error) or 'it ended at once'}); "
                f"allowed: a Python at {sys.executable} with jinja2 that may be run; repair it, or load with chat=False"
            ) from error

    def ask(self, request: dict[str, Any]) -> list[Any]:
        write_frame(cast(BinaryIO, self.process.stdin), request)
        reply: list[Any] = read_frame(cast(BinaryIO, self.process.stdout))
        return reply

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Ended if the caller still waits after the longest time."""
        timer = Timer(WALL, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._late = True
        self.process.kill()

    def why_it_ended(self) -> str:
        """In words, once it has."""
        # A process that closed its output and lives on would be waited for.
        late = self._late
        if self.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)
        self.end()
        code = self.process.returncode
        if sys.platform != "win32" and code == -signal.SIGPROF:
            return f"takes more than {SECONDS:g} s of processor time"
        return f"takes more than {WALL:g} s" if late else f"ends the process that renders it (code {code})"

    def end(self) -> None:
        """Gone, with its pipes."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                cast(BinaryIO, stream).close()


class _Kept:
    """The process that is kept for the next template, and the lock that lets one thread at a time talk to it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork it is the other process's, and the lock may be held by a thread that is not here."""
        self.lock = Lock()
        self.child: RenderingProcess | None = None

    def running(self) -> RenderingProcess:
        if self.child is not None and self.child.process.poll() is not None:
            self.end()
        self.child = self.child or RenderingProcess()
        return self.child

    def end(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None


_kept = _Kept()
atexit.register(_kept.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.forget)
