"""Child processes forked from one that has everything imported: a command costs milliseconds to start, not seconds.

A case runs in a process group of its own; the commands that it starts stay in that group, so that one signal ends them
all. Nothing is computed before a fork: no threads of torch's exist that a child could miss.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.fresh_python import environment

SECONDS = 60.0
"""What a command may take before it counts as hung; the longest takes a few."""
POLL = 0.005

PRELOADED = (
    "pyarrow.parquet",
    "rich.live",
    "unmask.api.load",
    "unmask.cli.app",
    "unmask.lab.calibrate",
    "unmask.lab.compare.summary",
    "unmask.lab.analysis",
    "unmask.lab.study.protocol",
    "unmask.report.compare",
    "unmask.report.study",
    "unmask.train",
)
"""What commands import when they start; matplotlib and transformers stay out, few commands want them."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    """Its exit code; below 0 the signal that ended it."""
    out: str
    err: str
    hung: bool = False
    interrupted: bool = False
    """Whether it was told to stop, as by Ctrl-C."""

    @property
    def trouble(self) -> str:
        """What no command may do: hang, die, or say that it did not expect something. Empty if it did not."""
        if self.hung:
            return f"hung: {self.err[-300:]}"
        if self.code < 0:
            return f"died of signal {-self.code}: {self.err[-300:]}"
        # Not on standard output: `study status` shows the tracebacks of shards that were set aside.
        for sign in ("Traceback (most recent", "error: unexpected ", "Fatal Python error"):
            if sign in self.err:
                return self.err[self.err.index(sign) :][-700:].strip()
        if self.code not in (0, 1, 2, 3):
            return f"exit code {self.code}: {self.err[-300:]}"
        if self.code == 2 and not self.err.strip():
            return "refused without a word"
        return ""

    @property
    def last(self) -> str:
        """The last line of what it complained about."""
        return (self.err.strip().splitlines() or [""])[-1][:300]


def preload() -> None:
    """Import what commands need, once, before the first fork."""
    # Children should not spin on a busy machine, must compute alike, and have no business in the network.
    for name, value in {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}.items():
        os.environ.setdefault(name, value)
    for name in PRELOADED:
        __import__(name)


def unmask(
    *arguments: object,
    folder: Path,
    seconds: float = SECONDS,
    kill_after: float | None = None,
    interrupt_after: float | None = None,
    first: Callable[[], object] = lambda: None,
) -> Ended:
    """A command line, run in `folder` by a forked child; `first` is called in the child before it.

    After `kill_after` seconds the child is killed with SIGKILL, if it is still there; after `interrupt_after` it gets
    Ctrl-C, and has as long again as a command may take.
    """
    from unmask.cli import main

    def child() -> int:
        first()
        os.chdir(folder)
        return main([str(argument) for argument in arguments])

    with _Output() as output:
        pid = fork(child, output)
        interrupted = interrupt_after is not None and not _over_within(pid, interrupt_after)
        if interrupted:
            os.kill(pid, signal.SIGINT)
        status, late = _wait(pid, seconds if kill_after is None else kill_after)
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, *output.read(), hung=late and kill_after is None, interrupted=interrupted)


def fresh(*arguments: object, folder: Path, seconds: float = SECONDS, **env: str) -> Ended:
    """A command line in a new interpreter: where the environment matters, or the code is another."""
    command = [sys.executable, "-m", "unmask", *map(str, arguments)]
    with _Output() as output:
        child = subprocess.Popen(command, cwd=folder, env=environment(**env), stdout=output.out, stderr=output.err)
        try:
            code, late = child.wait(seconds), False
        except subprocess.TimeoutExpired:
            child.kill()
            code, late = child.wait(), True
        return Ended(code, *output.read(), hung=late)


def fork(child: Callable[[], int], output: "_Output | None" = None) -> int:
    """The id of a new process that does what `child` does and ends with its exit code."""
    pid = os.fork()
    if pid:
        return pid
    try:
        if output is not None:
            output.take_over()
        code = child()
    except BaseException:
        traceback.print_exc()
        code = 70
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _over_within(pid: int, seconds: float) -> bool:
    """Whether a child ends in that time; it stays to be waited for."""
    stop = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= stop:
            return False
        time.sleep(POLL)
    return True


def _wait(pid: int, seconds: float) -> tuple[int, bool]:
    """How a child ended, and whether it had to be killed."""
    stop = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status, False
        if time.monotonic() >= stop:
            os.kill(pid, signal.SIGKILL)
            return os.waitpid(pid, 0)[1], True
        time.sleep(POLL)


class _Output:
    """Two files without names that a child writes to; pipes would have to be read meanwhile."""

    def __enter__(self) -> "_Output":
        self.out, self.err = (os.memfd_create(name) for name in ("out", "err"))
        return self

    def __exit__(self, *trouble: object) -> None:
        os.close(self.out)
        os.close(self.err)

    def take_over(self) -> None:
        """Become the standard output and error of this process."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        for handle, place in ((nothing, 0), (self.out, 1), (self.err, 2)):
            os.dup2(handle, place)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - they live as long as the process
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(open(place, "wb", closefd=False), encoding="utf-8", errors=errors)  # noqa: SIM115
            for place, errors in ((1, "strict"), (2, "backslashreplace"))
        )

    def read(self) -> tuple[str, str]:
        return tuple(_content(handle) for handle in (self.out, self.err))  # type: ignore[return-value]


def _content(handle: int) -> str:
    size = os.fstat(handle).st_size
    return os.pread(handle, min(size, 4 << 20), 0).decode("utf-8", "replace")


def listed(values: Sequence[object]) -> str:
    """A command line as one would type it, for reports."""
    return " ".join(repr(str(value)) if " " in str(value) or not str(value) else str(value) for value in values)
