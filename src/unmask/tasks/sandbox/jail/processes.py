"""Processes forked, awaited and ended."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

SWEEP_S = 5.0


def reset_signals() -> None:
    """Whoever started us may have ignored or blocked signals, and that is inherited.

    Python itself ignores two, to get an error from the call instead.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)


def fork(body: Callable[[], object]) -> int:
    """A child that runs `body` and never returns into the code of its parent."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        body()
        os._exit(0)
    finally:
        os._exit(70)


def wake_on_child() -> int:
    """A file that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def end(child: int) -> None:
    """Where orphans cannot be found later, the checker gets a moment to end the worker's process group."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform != "linux":
            os.kill(child, signal.SIGTERM)
            time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def end_group(worker: int) -> None:
    """End the worker and all of its process group."""
    with contextlib.suppress(OSError):
        os.killpg(worker, signal.SIGKILL)


def ending(worker: int, options: int = 0) -> dict[str, object]:
    """How the worker ended; empty if it has not, and was not waited for."""
    pid, status, usage = os.wait4(worker, options)
    if not pid:
        return {}
    code = os.waitstatus_to_exitcode(status)
    return {"exit": max(code, 0), "signal": max(-code, 0), "cpu_s": usage.ru_utime + usage.ru_stime}


def sweep() -> bool:
    """Kill every descendant, also those that left their session; true if none is left."""
    stop = time.monotonic() + SWEEP_S
    while time.monotonic() < stop:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.005)
    return False


def descendants() -> list[int]:
    """Processes below this one. Orphans are here too, because they were adopted."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{int(name)}/stat", "rb") as file:
            # The name of the program, in parentheses, may contain anything.
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family - {os.getpid()})
