"""A process shut in: limits, privileges, files and system calls."""

import _thread
import contextlib
import math
import os
import resource
import sys

from . import linux
from .pipes import Job

FILES = 64
"""Files a process may have open."""
THREADS = 33
"""Threads that a single process may have: 32 beside the first, as many as a pool of threads takes."""
STACK_BYTES = 2 << 20
"""Of a thread, unless it asks for more: the usual 8 MB count against the memory limit though hardly any is used."""


def confine(job: Job, *, worker: bool) -> None:
    """Limits, then privileges, then files and system calls: each step takes away the means to undo the last."""
    layers, limits = job["layers"], job["limits"]
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_NOFILE, FILES)
    lower(resource.RLIMIT_FSIZE, limits["file_mb"] << 20)
    # Other systems have the limit but may not be able to set it; the mode says so.
    with contextlib.suppress(*[] if sys.platform == "linux" else [OSError, ValueError]):
        lower(resource.RLIMIT_AS, limits["memory_mb"] << 20)
    if worker:
        _thread.stack_size(STACK_BYTES)
        cpu_s = math.ceil(limits["cpu_s"])
        lower(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)
        lower(resource.RLIMIT_NPROC, tasks(job))
    if sys.platform == "linux":
        if "landlock" in layers:
            # Needs the promise that no program run later can gain privileges; `drop_privileges` repeats it.
            linux.no_new_privileges()
            linux.restrict_files(job["visible"], ".", signals=worker)
        linux.drop_privileges(job.get("uid"))
        linux.die_with_parent()
        if not worker:
            linux.hide_memory()
        if "seccomp" in layers:
            single = limits["processes"] == 1 or not job["counted"]
            linux.refuse_calls(forks=single, file_attributes=job["mode"] == "weak")
    if "seccomp" not in layers and job["mode"] == "weak":
        # All that is left is to make it inconvenient.
        sys.modules["_socket"] = None  # type: ignore[assignment]


def lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit; one that is already lower stays."""
    now = resource.getrlimit(kind)[1]
    hard = soft if hard is None else hard
    hard = hard if now == resource.RLIM_INFINITY else min(now, hard)
    resource.setrlimit(kind, (min(soft, hard), hard))


def tasks(job: Job) -> int:
    """Processes and threads that the user of the worker may have, ours included."""
    limits, layers = job["limits"], job["layers"]
    allowed: int = limits["processes"]
    if allowed == 1 and "seccomp" in layers:
        allowed = THREADS
    if "uid" in layers:
        return allowed + 1
    if job["mode"] != "weak":
        # Supervisor and checker, and the first process of bubblewrap.
        return allowed + (2 if job["mode"] == "namespace" else 3)
    # This process has been counted among them.
    return max(1, allowed - 1 + user_tasks())


def user_tasks() -> int:
    """Processes and threads that the user has now; 0 where one cannot tell, which forbids any more."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count
