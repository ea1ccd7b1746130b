"""Threads, limits of the machine, versions, and a fingerprint of the code that computes results.

Threads of OpenMP spin while they wait for each other. On cores that other programs use too, a small model then takes
many times as long. Passive threads sleep instead, but torch reads that setting only when it is loaded, so
`import unmask` calls `configure_threads` first.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from unmask import __version__
from unmask.base.errors import require

THREADS_VARIABLE = "UNMASK_THREADS"
"""Variable for the number of threads: a number, `auto` (at most `MAX_THREADS`), or `keep` to change nothing."""
MAX_THREADS = 4
"""Largest number of threads under `auto`. More do not help models that fit on a CPU."""
THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
THREAD_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY", "GOMP_SPINCOUNT")
"""Variables that a user may have set. If one of a group is set, no variable of that group is changed."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")

NOT_FINGERPRINTED = {
    *("__init__.py", "__main__.py", "py.typed", "report", "viewer", "cli", "train"),
    # The parts of the laboratory are hashed one by one; these analyse, show, time or schedule.
    *("lab", "lab/__init__.py", "lab/analysis", "lab/bench.py", "lab/bench_outside.py", "lab/cluster"),
    *("lab/compare", "lab/compare/__init__.py", "lab/compare/store.py", "lab/compare/summary.py"),
    *("lab/demo.py", "lab/demo.toml", "lab/published.py", "lab/verify.py"),
}
"""Packages and modules that change no stored number. `code_fingerprint` hashes all others, with their data."""


# Threads, and the limits of this process


def configure_threads(environment: MutableMapping[str, str] | None = None) -> None:
    """Set OpenMP's variables for the whole process according to `UNMASK_THREADS`.

    Variables that the user has set are not changed. Once torch is loaded nothing is set, because torch has read them.
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
    """Return the number of cores that this process may use: its affinity, or its container's share of time if less."""
    # macOS has no affinity.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *cpu_limits()]))


def cpu_limits(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUPS) -> Iterator[int]:
    """Yield the number of cores whose time each control group of this process grants, rounded up."""
    version_1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    for quota, period in _read_group_limits("cpu", ("cpu.max",), version_1, root, own):
        if quota > 0 and period > 0:
            yield math.ceil(quota / period)


def available_memory() -> int | None:
    """Return the bytes of main memory that this process may still allocate; None if the system does not tell."""
    free = list(memory_limits())
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            free.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration):
        # macOS tells only the total.
        with suppress(OSError, ValueError, AttributeError):
            free.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(free, default=None)


def memory_limits(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUPS) -> Iterator[int]:
    """Yield the bytes that each control group of this process leaves free; groups without a limit are skipped."""
    version_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for limit, usage in _read_group_limits("memory", ("memory.max", "memory.current"), version_1, root, own):
        yield limit - usage


def _read_group_limits(
    controller: str, version_2: tuple[str, ...], version_1: tuple[str, ...], root: Path, own: Path
) -> Iterator[tuple[int, int]]:
    """Yield two numbers of each control group of this process, innermost first; groups without both are skipped.

    Version 2 has one tree of groups. Version 1 has a tree for each controller, and other names of files.
    """
    with suppress(OSError, UnicodeDecodeError):
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            home = root / controller if controllers else root
            group = home / path.lstrip("/")
            files = version_1 if controllers else version_2
            for folder in (folder for folder in (group, *group.parents) if folder.is_relative_to(home)):
                # A group without a limit lacks these files, or has the word "max" in them.
                with suppress(OSError, ValueError):
                    first, second = " ".join((folder / name).read_text(encoding="utf-8") for name in files).split()
                    yield int(first), int(second)


# Versions and code


def versions() -> dict[str, str]:
    """Return versions of packages and the number of threads, on which the last bits of a result may depend."""
    # Imported here, because `import unmask` must be fast.
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


def machine_name(device: Any) -> str:
    """Describe a torch device, the threads and the machine, whose name may be private and is hashed."""
    import platform

    import torch

    kind = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()}-core {platform.machine()}"
    )
    name = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
    return f"{kind}, {torch.get_num_threads()} threads, machine {name}"


def code_fingerprint() -> str:
    """Return a hash of the code and data that results depend on."""
    return hashlib.sha256(json.dumps(code_parts(), sort_keys=True).encode()).hexdigest()[:16]


def code_parts() -> dict[str, str]:
    """Return a hash of each package and module that results depend on, so that messages can name a changed one."""
    return dict(_hash_code_parts())


@cache
def _hash_code_parts() -> tuple[tuple[str, str], ...]:
    home = Path(__file__).parents[1]
    folders = (home, home / "lab", home / "lab" / "compare")
    paths = sorted(path for folder in folders for path in folder.iterdir())
    parts = {path.relative_to(home).as_posix(): path for path in paths if not path.name.startswith((".", "__py"))}
    return tuple((name, hash_source(path)) for name, path in parts.items() if name not in NOT_FINGERPRINTED)


def hash_source(path: Path) -> str:
    """Hash a file, or all files in a folder except hidden and compiled ones. Line ends of text do not count."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(path).as_posix()
        if "__pycache__" in name or file.name.startswith("."):
            continue
        content = file.read_bytes()
        # Weights are not text: bytes that look like a line end are part of a number.
        if file.suffix != ".safetensors":
            content = content.replace(b"\r\n", b"\n")
        digest.update(f"{name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]
