"""What numbers may depend on besides their configuration: threads, limits of this machine, versions, and the code.

OpenMP's threads spin while they wait for each other. On cores that are shared with anything else the one they wait for
is not running, and a small model takes many times as long. Passive threads sleep instead, but torch reads that setting
only when it is loaded: `import unmask` therefore calls `configure_threads` first.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, MutableMapping
from functools import cache
from pathlib import Path

from unmask import __version__
from unmask.base.errors import require

THREADS_VARIABLE = "UNMASK_THREADS"
"""How many threads torch gets: a number, `auto` (at most `MAX_THREADS`), or `keep` for all as it is."""
MAX_THREADS = 4
"""Threads where nobody sets a number; more do not help the models that fit on a CPU."""
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
THREAD_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY", "GOMP_SPINCOUNT")
"""A user's own settings: where one of a group is set, nothing of that group is changed."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")

COMPUTES = (
    "base",
    "stats",
    "core",
    "axes",
    "engine",
    "models",
    "methods",
    "adapt",
    "api",
    "tasks",
    "lab/store",
    "lab/study.py",
    "lab/study_models.py",
    "lab/prompts.py",
    "lab/methods.py",
    "lab/searches.py",
    "lab/gates.py",
    "lab/choose.py",
    "lab/whole_runs.py",
    "lab/guaranteed.py",
    "lab/run",
    "lab/branch",
    "lab/calibrate.py",
    "lab/calibrate_named.py",
    "lab/compare.py",
    "lab/compare_matched.py",
    "lab/compare_methods.py",
    "lab/compare_prompts.py",
    "lab/compare_remote.py",
)
"""Packages and modules that a stored number comes from, with their data. `code_fingerprint` hashes them."""
DOES_NOT_COMPUTE = (
    "__init__.py",
    "__main__.py",
    "py.typed",
    "look",
    "report",
    "view",
    "cli",
    "train",
    "lab/__init__.py",
    "lab/analysis",
    "lab/asked.py",
    "lab/bench",
    "lab/cluster",
    "lab/compare_failed.py",
    "lab/compare_speed.py",
    "lab/compare_store.py",
    "lab/compare_summary.py",
    "lab/compare_timing.py",
    "lab/demo.py",
    "lab/demo_kept.py",
    "lab/demo_runs.py",
    "lab/published.py",
    "lab/verify.py",
)
"""What shows, analyses, times, trains or schedules. A new file belongs into one of the two lists."""


# Threads, and the limits of this process


def configure_threads(environment: MutableMapping[str, str] | None = None) -> None:
    """Set OpenMP's variables for the whole process, as `UNMASK_THREADS` says: a number, `auto` or `keep`.

    Nothing is set where torch has read the variables already, or where the user has set their own.
    """
    environment = os.environ if environment is None else environment
    chosen = environment.get(THREADS_VARIABLE) or "auto"
    number = int(chosen) if chosen.isdecimal() else 0
    allowed = "auto, keep or a number from 1 on"
    require(chosen in ("auto", "keep") or number > 0, THREADS_VARIABLE, chosen, allowed, "leave it unset for auto")
    if chosen == "keep" or "torch" in sys.modules:
        return
    if not any(name in environment for name in THREAD_COUNT_VARIABLES):
        environment["OMP_NUM_THREADS"] = str(number or min(MAX_THREADS, usable_cores()))
    if not any(name in environment for name in THREAD_WAIT_VARIABLES):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"


def usable_cores() -> int:
    """Number of cores that this process may run on, and no more than its container's share of time."""
    # macOS has no affinity and lets a process run anywhere.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *cpu_limits()]))


def cpu_limits(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUPS) -> Iterator[int]:
    """Yield the cores' worth of time that each control group of this process grants, rounded up."""
    for folder in _control_groups("cpu", root, own):
        try:
            if (folder / "cpu.max").exists():
                quota, period = _read(folder / "cpu.max").split()
            else:
                quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
            if quota != "max" and int(quota) > 0:
                yield math.ceil(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue


def available_memory() -> int | None:
    """Bytes of main memory that this process may still take, or None where the system does not say."""
    return min([*_machine_memory(), *memory_limits()], default=None)


def memory_limits(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUPS) -> Iterator[int]:
    """Yield the bytes that each control group of this process leaves; nothing for a group without a limit."""
    for folder in _control_groups("memory", root, own):
        try:
            if (folder / "memory.max").exists():
                yield int(_read(folder / "memory.max")) - int(_read(folder / "memory.current"))
            else:
                yield int(_read(folder / "memory.limit_in_bytes")) - int(_read(folder / "memory.usage_in_bytes"))
        except (OSError, ValueError):  # No such files, or the word "max".
            continue


def _machine_memory() -> Iterator[int]:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            yield next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        try:
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, AttributeError):
            return


def _control_groups(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups, innermost first: version 2 has one tree, version 1 one for each."""
    try:
        lines = _read(own).splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        home = root / controller if controllers else root
        group = home / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(home))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


# Versions and code


def versions() -> dict[str, str]:
    """Versions of this package, of what computes and of Python, and torch's threads, since the last bits may depend."""
    # Both take longer to import than `import unmask` may take.
    import platform
    from importlib.metadata import version

    import torch

    return {
        "unmask": __version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
    }


def code_fingerprint() -> str:
    """Hash the code and data that compute: equal for equal content, whatever the line ends or compiled files."""
    return hashlib.sha256(json.dumps(code_parts(), sort_keys=True).encode()).hexdigest()[:16]


def code_parts() -> dict[str, str]:
    """Return a hash for each entry of `COMPUTES`, so that a message can say which one differs."""
    return dict(_hash_parts())


@cache
def _hash_parts() -> tuple[tuple[str, str], ...]:
    home = Path(__file__).parents[1]
    return tuple((part, hash_source(home / part)) for part in COMPUTES)


def hash_source(path: Path) -> str:
    """Hash a file, or all files in a folder, but for hidden and compiled ones."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(path).as_posix()
        if "__pycache__" in name or file.name.startswith("."):
            continue
        content = file.read_bytes()
        # Weights are not text: a pair of bytes that looks like a line end is a part of a number.
        if file.suffix != ".safetensors":
            content = content.replace(b"\r\n", b"\n")
        digest.update(f"{name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]
