"""What the tests of the sandbox share: a problem, programs run and judged, and a look at the processes left."""

import contextlib
import ctypes
import os
import subprocess
import textwrap
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from unmask.tasks import sandbox
from unmask.tasks.sandbox import Limits, SandboxVerdict, check_many, probe, run_program

SHORT = Limits(wall_s=10, cpu_s=1, memory_mb=256, file_mb=4, output_kb=16)
PROBLEM = {
    "prompt": "def double(x):\n",
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
}
RIGHT = "    return 2 * x\n"
# Wrong on purpose: whatever a hostile completion does around it, it must not pass.
WRONG = "    return 0\n"


def adopt(yes: bool) -> None:
    assert ctypes.CDLL(None).prctl(36, int(yes), 0, 0, 0) == 0


def no_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def children() -> list[str]:
    return subprocess.run(["ps", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False).stdout.split(
        "\n"
    )


def below(pid: int, generations: int) -> set[int]:
    """Descendants of a process, so many generations down."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may contain anything.
            parents[int(place.parent.name)] = int(place.read_bytes().rpartition(b")")[2].split()[1])
    family = {pid}
    for _ in range(generations):
        family = {child for child, parent in parents.items() if parent in family}
    return family


def wait_until(condition, seconds: float) -> bool:
    stop = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > stop:
            return False
        time.sleep(0.01)
    return True


def needs_seccomp(mode: str | None, why: str) -> None:
    if "seccomp" not in probe.find_walls(mode).layers:
        pytest.skip(f"no seccomp here: {why}")


def code(text: str) -> str:
    return textwrap.dedent(text)


def run(text: str, mode: str | None, limits: Limits = SHORT) -> sandbox.ProgramResult:
    return run_program(code(text), limits, mode=mode)


def judged(
    bodies: Iterable[str], mode: str | None = None, limits: Limits = SHORT, workers: int = 2
) -> list[SandboxVerdict]:
    """Verdicts on completions of `PROBLEM`."""
    return check_many([(PROBLEM, body) for body in bodies], workers, limits=limits, mode=mode)


def exceptions(names: Iterable[str], verdicts: Iterable[SandboxVerdict], allowed: str) -> dict[str, SandboxVerdict]:
    """Those of the verdicts that are not one of the allowed."""
    return {
        name: verdict for name, verdict in zip(names, verdicts, strict=True) if verdict.status not in allowed.split()
    }
