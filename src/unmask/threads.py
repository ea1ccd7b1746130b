"""How many threads compute, and what they do while they wait: decided before torch is loaded.

OpenMP's threads spin while they wait for each other. On cores that are shared with anything else the one they wait for
is not running, and a small model takes many times as long. Passive threads sleep instead.
"""

import math
import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path

MOST = 4
"""Threads at most when nobody says how many: more do not help the models that fit on a CPU."""

OF_NUMBER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
OF_WAITING = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY", "GOMP_SPINCOUNT")
"""Settings of a user's own: where one is there, nothing is set beside it."""

_CGROUPS = Path("/sys/fs/cgroup")


def settle(environment: MutableMapping[str, str] | None = None) -> None:
    """Set OpenMP's environment, unless torch has read it already or the user has said otherwise."""
    environment = os.environ if environment is None else environment
    if "torch" in sys.modules:
        return
    if not any(name in environment for name in OF_NUMBER):
        environment["OMP_NUM_THREADS"] = str(min(MOST, usable_cores()))
    if not any(name in environment for name in OF_WAITING):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"


def count() -> int:
    """Threads that torch computes with; a result's last bits may depend on it."""
    import torch

    return torch.get_num_threads()


def usable_cores() -> int:
    """Cores that this process may run on, and no more than its container's share of time."""
    # Not every system has it; macOS lets a process run anywhere.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *_quotas()]))


def _quotas(root: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """Cores' worth of time that control groups grant, from the process's own group up; nothing where none is set."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        home = root / "cpu" if controllers else root
        group = home / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(home):
                yield from _quota(folder)


def _quota(folder: Path) -> Iterator[int]:
    """Of one group, in either version's files."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{what}_us").read_text(encoding="utf-8").strip() for what in ("quota", "period")
            )
        if quota != "max" and int(quota) > 0:
            yield math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return
