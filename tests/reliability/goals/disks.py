"""Disks that are full and folders that cannot be written to: a clear error, nothing half-written, and it goes on.

A limit on the size of files stands in for a full disk: a write stops in the middle with an error, on any system and for
any user. A folder on a file system of a few pages, where this user may mount one, is a disk that really fills up.
"""

import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.reliability.case import Case, Goal
from tests.reliability.made import WORKS, Made, Work
from tests.reliability.process import Ended

NAMES = tuple(WORKS)
NEWNS, PRIVATE = 0x20000, 0x44000
CAPABILITIES = 0x20080522
"""The version of the structures below."""
OVERRIDES = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


def full(limit: int) -> Callable[[], None]:
    """Files may have so many bytes, in this process."""

    def first() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return first


def mounted(folder: Path, pages: int) -> Callable[[], None]:
    """A disk of so many pages in a folder, seen by this process only; what was in the folder is put on it."""

    def first() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEWNS) or libc.mount(b"none", b"/", None, PRIVATE, None):
            raise OSError(ctypes.get_errno(), "unshare")
        size = f"size={pages * 4096}".encode()
        if libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, size):
            raise OSError(ctypes.get_errno(), "mount")

    return first


def without_override() -> None:
    """Root obeys the permissions of files like everybody else, in this process: it gives up what overrides them."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        # Effective, permitted and inheritable; the first word of each has the old capabilities.
        for at in range(3):
            sets[at] &= ~OVERRIDES
        libc.capset(header, sets)


@cache
def may_mount() -> bool:
    """Tried in a process of its own."""
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


def not_run() -> Sequence[str]:
    return [] if may_mount() else ["disks: a small file system that fills up (this user may not mount one)"]


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    name, rng = NAMES[case.number % len(NAMES)], case.rng
    work = WORKS[name]
    how = ("size", "size", "readonly", "mount" if may_mount() else "size")[case.number // len(NAMES) % 4]
    work.prepare(folder)
    size = None
    if how == "readonly":
        ended = _read_only(work, folder)
    elif how == "mount":
        return _filled(work, name, folder, rng.randint(1, 60))
    else:
        size = int(2 ** rng.uniform(0, 19))
        ended = work.run(folder, first=full(size))
    if trouble := _unclear(ended, size):
        return f"{name}, {how}: {trouble}"
    ended = work.run(folder)
    if ended.code or ended.trouble:
        return f"{name} does not go on after {how}: {ended.trouble or ended.last}"
    if work.outcome(folder, ended) != made.outcome(name):
        return f"{name}: other results after {how}"
    return None


def _unclear(ended: Ended, size: int | None = None) -> str:
    """What is wrong with how a command ended that could not write; empty if nothing is."""
    if ended.trouble:
        return ended.trouble
    # A limit on the size of files may be too small for what is said about it.
    cut = size is not None and len(ended.err.encode()) >= size
    if ended.code and not cut and not ended.last.startswith(("error:", "not complete")):
        return f"exit code {ended.code} and no error: {ended.err[-300:]}"
    return ""


def _read_only(work: Work, folder: Path) -> Ended:
    """The command in a folder that may not be written to; afterwards it may be again."""
    folder.chmod(0o555)
    ended = work.run(folder, first=without_override)
    folder.chmod(0o755)
    return ended


def _filled(work: Work, name: str, folder: Path, pages: int) -> str | None:
    """On a disk of so many pages; what is on it goes with the process, so only how the command ends is seen."""
    disk = folder / "disk"
    disk.mkdir()

    def first() -> None:
        mounted(disk, pages)()
        try:
            work.prepare(disk)
        except OSError:
            os._exit(0)

    ended = work.run(disk, first=first)
    trouble = _unclear(ended)
    return f"{name} on a disk of {4 * pages} KiB: {trouble}" if trouble else None


GOAL = Goal("disks", "full and read-only disks", try_case, sample=16, needs=NAMES, not_run=not_run)
