"""Run the Python that a model wrote, and find out whether it passes its tests.

A completion is hostile until shown otherwise. It runs in an interpreter of its own that can read the standard library
and nothing else, write nothing, start nothing and reach nobody. What decides is never in reach of the completion: the
tests run in another process, which asks it for values. docs/tasks.md says what is promised and what is not.

    result = check_completion(problem, completion)     # problem: prompt, test, entry_point
    result.status                                      # pass, fail, error, timeout or unavailable

`unavailable` is trouble of the evaluator, not of the completion, and must not be scored.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from unmask.base.errors import UnknownName, require
from unmask.base.files import storable
from unmask.base.options import Options
from unmask.tasks.sandbox import confine

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Status: TypeAlias = Literal["pass", "fail", "error", "timeout", "unavailable"]
SETUP_S = 60.0
"""Longest time to start the interpreter, in seconds, not counted for the completion. Longer is `unavailable`."""
TICK_S = 0.1
"""Longest time until a cancelled run notices, in seconds."""
ISOLATION_VARIABLE = "UNMASK_SANDBOX"
"""Environment variable with the name of the isolation to use where a call names none."""


class Unavailable(Exception):
    """Error for a machine on which no isolation works. Results then have the status `unavailable`."""


ISOLATIONS = ("landlock", "bubblewrap", "off")
"""Ways to isolate a completion. `landlock` and `bubblewrap` hold files back and filter system calls. `off` is a process
with limits alone, and is used by name only."""


class Limits(Options):
    """Limits on the time and memory of one run."""

    wall_s: Seconds = 10.0
    """Seconds on the clock, from the moment the completion starts."""
    cpu_s: Seconds = 5.0
    """Seconds of processor time, in whole seconds, rounded up."""
    memory_mb: Annotated[int, Field(ge=64, lt=1 << 20)] = 512
    """Address space of a process, in MiB."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class SandboxResult:
    """Outcome of running one completion."""

    status: Status
    """`fail`: a test said no. `error`: the completion broke. `unavailable`: the evaluator did; do not score it."""
    detail: str
    isolation: str
    """Name of the isolation, for the report; `none` where there is none to use."""
    wall_s: float
    """Seconds from the start of the completion to its outcome."""


def choose_isolation(name: str | None = None) -> str:
    """Return the name of the isolation to use: the given one, that of `UNMASK_SANDBOX`, or the best of this machine.

    A misspelt name is refused. If the machine has none, `Unavailable` is raised: nothing weaker is taken.
    """
    name = name or os.environ.get(ISOLATION_VARIABLE) or None
    if name is not None:
        if name not in ISOLATIONS:
            raise UnknownName(f"isolation of the sandbox ({ISOLATION_VARIABLE})", name, ISOLATIONS)
        return name
    try:
        confine.landlock_version()
    except OSError as error:
        if shutil.which("bwrap"):
            return "bubblewrap"
        raise Unavailable(
            f"no sandbox works here (landlock: {error}; bubblewrap: bwrap is not installed); "
            f"{ISOLATION_VARIABLE}=off runs completions without one"
        ) from None
    return "landlock"


def check_completion(
    problem: Mapping[str, Any], completion: str, limits: Limits = DEFAULT_LIMITS, *, isolation: str | None = None
) -> SandboxResult:
    """Run one completion of a programming problem against its tests, which define `check(candidate)`."""
    return check_completions([(problem, completion)], 1, limits=limits, isolation=isolation)[0]


def check_completions(
    items: Iterable[tuple[Mapping[str, Any], str]],
    workers: int = 2,
    on_done: Callable[[int, SandboxResult], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    isolation: str | None = None,
) -> list[SandboxResult]:
    """Run completions of problems against their tests, several at a time; return results in the order of the pairs.

    `on_done(index, result)` is called in this thread as each one ends. If anything is raised meanwhile, for
    instance a `KeyboardInterrupt`, all running completions are killed before it is raised again.
    """
    require(isinstance(workers, int) and workers >= 1, "workers", workers, "1 or more", "try the number of cores")
    pairs = list(items)
    for problem, completion in pairs:
        row = isinstance(problem, Mapping)
        require(row, "problem", problem, "a mapping of prompt, test and entry_point", "pass a problem of HumanEval")
        require(isinstance(completion, str), "completion", completion, "a text", "pass what completes the prompt")
    cancel, results = threading.Event(), dict[int, SandboxResult]()
    try:
        chosen: str | None = choose_isolation(isolation)
    except Unavailable as trouble:
        chosen, reason = None, str(trouble)

    def check(problem: Mapping[str, Any], completion: str) -> SandboxResult:
        if chosen is None:
            return SandboxResult("unavailable", reason, "none", 0.0)
        return run_isolated(problem, completion, limits, chosen, cancel)

    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = {pool.submit(check, *pair): index for index, pair in enumerate(pairs)}
            for future in as_completed(futures):
                index = futures[future]
                results[index] = future.result()
                if on_done:
                    on_done(index, results[index])
        except BaseException:
            cancel.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [results[index] for index in range(len(pairs))]


def run_isolated(
    problem: Mapping[str, Any],
    completion: str,
    limits: Limits,
    isolation: str,
    cancel: threading.Event,
    output: int = subprocess.DEVNULL,
) -> SandboxResult:
    """Check one completion in a process of its own, and return the outcome. Its prints go to the file `output`."""
    tests = {key: problem.get(key) for key in ("prompt", "test", "entry_point")}
    for key, value in tests.items():
        if not isinstance(value, str):
            return SandboxResult("unavailable", f"the problem has no text under {key!r}", isolation, 0.0)
    try:
        with tempfile.TemporaryDirectory(prefix="unmask-", ignore_cleanup_errors=True) as work:
            job = {
                "program": problem["prompt"] + completion,
                "entry_point": problem["entry_point"],
                "isolation": isolation,
                "work": work,
                "readable": confine.readable_paths() if isolation == "landlock" else (),
                "cpu_s": limits.cpu_s,
                "memory_mb": limits.memory_mb,
            }
            # The tests are a frame of their own, which is read after the process of the completion was forked.
            frames = [json.dumps(part).encode("ascii") for part in (job, tests)]
            # Sockets, because a pipe of ours can be opened by any process of the same user, through /proc.
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    process = subprocess.Popen(
                        _build_command(isolation, work),
                        stdin=theirs.fileno(),
                        stdout=output,
                        stderr=subprocess.PIPE,
                        env=_ENVIRONMENT,
                        cwd="/",
                        # A session is a process group too: one signal ends the checker and the worker.
                        start_new_session=True,
                    )
                try:
                    ours.settimeout(SETUP_S)
                    with contextlib.suppress(ConnectionError):
                        ours.sendall(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
                    status, detail, wall_s = _await_outcome(ours, limits, isolation, cancel)
                finally:
                    # Whatever is raised on the way, nothing goes on running: the filter keeps all of it in this group.
                    os.killpg(process.pid, signal.SIGKILL)
                    _, errors = process.communicate()
            if detail == _NOT_STARTED:
                detail += errors.decode("utf-8", "replace").strip()[-500:] or f"exit code {process.returncode}"
    except OSError as error:
        status, detail, wall_s = "unavailable", f"sandbox: {type(error).__name__}: {error}", 0.0
    return SandboxResult(status, storable(detail), isolation, wall_s)


def _await_outcome(
    ours: socket.socket, limits: Limits, isolation: str, cancel: threading.Event
) -> tuple[Status, str, float]:
    """Read events of the process that checks until it decides or time is up; return status, detail and seconds."""
    started_at, deadline, pending = 0.0, time.monotonic() + SETUP_S, b""

    def make_outcome(status: Status, detail: str) -> tuple[Status, str, float]:
        return status, detail, time.monotonic() - started_at if started_at else 0.0

    # Waits are short, so that Ctrl-C in the main thread, which sets `cancel`, is seen soon.
    while not cancel.is_set():
        left = deadline - time.monotonic()
        if left <= 0 and started_at:
            return make_outcome("timeout", f"no answer within {limits.wall_s:g} s")
        if left <= 0:
            return make_outcome("unavailable", f"sandbox: not ready after {SETUP_S:g} s")
        ours.settimeout(min(TICK_S, left))
        try:
            data = ours.recv(1 << 16)
        except TimeoutError:
            continue
        except ConnectionError:
            data = b""
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for event in map(json.loads, lines):
            if "ready" in event:
                started_at = time.monotonic()
                deadline = started_at + limits.wall_s
            elif "trouble" in event:
                return make_outcome("unavailable", event["trouble"])
            else:
                return make_outcome(event["status"], event["detail"])
    if cancel.is_set():
        return make_outcome("unavailable", "cancelled")
    if not started_at:
        return make_outcome("unavailable", _NOT_STARTED)
    if isolation == "off":
        return make_outcome("error", "the process that checks was ended; without isolation a completion can do that")
    return make_outcome("unavailable", "sandbox: the process that checks ended without a verdict")


_NOT_STARTED = "sandbox: the interpreter did not start: "
# `-P -s -S` and an empty environment isolate like `-I`, which would not let the hash seed be fixed. It is fixed so that
# a completion that depends on the order of a set gets the same verdict every time. One arena: glibc would reserve 64 MB
# of the limited address space for each more, and how many depends on contention.
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}
_FOLDER = str(Path(__file__).parent)
# A package of the same modules without this file, which would import the library.
_START = f"""
import sys
sys.modules["sandbox"] = package = type(sys)("sandbox")
package.__path__ = [{_FOLDER!r}]
from sandbox.child import main
main()
"""


def _build_command(isolation: str, work: str) -> list[str]:
    """Return the command that starts the base interpreter without any installed package."""
    python = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    command = [python, *_FLAGS, "-c", _START]
    if isolation != "bubblewrap":
        return command
    bwrap = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--die-with-parent"]
    bwrap += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    for path, files in confine.readable_paths():
        bwrap += ["--ro-bind", path, path] if files else ["--dir", path]
    for path in (python, _FOLDER):
        bwrap += ["--ro-bind", path, path]
    for name in ("null", "zero", "full", "random", "urandom"):
        bwrap += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    # A folder in memory in place of the one on disk.
    return [*bwrap, "--size", str(confine.FILE_BYTES), "--tmpfs", work, "--remount-ro", "/", "--chdir", "/", *command]
