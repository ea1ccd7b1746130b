"""What a case may use, so that one that finds a hole does not take the machine with it."""

import os
import resource
import stat
from pathlib import Path

MEMORY = 8 << 30
"""Address space of a process: torch alone reserves two gigabytes."""


def bounded() -> None:
    """Limit the memory of this process: who asks for more gets an error and not the machine's."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


DEVICES = ("null", "full")


def make_devices(folder: Path) -> None:
    """Devices of the case's own: root could lose the real ones to a command that renames over them.

    Others get links to the real ones, which they cannot hurt.
    """
    for name, number in zip(DEVICES, (3, 7), strict=True):
        try:
            os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(1, number))
        except PermissionError:
            (folder / name).symlink_to(f"/dev/{name}")


def lost_device(folder: Path) -> str:
    """The first device that is none any more; empty if all are."""
    lost = (name for name in DEVICES if not stat.S_ISCHR((folder / name).stat().st_mode))
    return next((f"the device {name} was replaced by something else" for name in lost), "")
