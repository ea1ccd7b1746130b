"""One run: a folder to work in, a jail to work in it, and nothing left of either."""

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from unmask.tasks.sandbox.jail import linux
from unmask.tasks.sandbox.jail.folder import remove
from unmask.tasks.sandbox.limits import Limits
from unmask.tasks.sandbox.process import JailProcess, SandboxRun, jail_code
from unmask.tasks.sandbox.walls import WORK, Walls, visible


def run_jail(
    job: dict[str, Any],
    tests: dict[str, str],
    limits: Limits,
    walls: Walls,
    cancel: threading.Event | None = None,
) -> SandboxRun:
    """Start the jail, feed it, wait for it, clear up. Never raises for what goes wrong in there."""
    run = SandboxRun()
    try:
        with work_folder(walls) as work, _hidden(walls):
            job = {
                **job,
                "mode": walls.kind,
                "layers": walls.layers,
                "limits": asdict(limits),
                "visible": visible(),
                "work": work,
                # The kernel does not count the processes of root, whatever the limit says.
                "counted": "uid" in walls.layers or os.geteuid() != 0,
            }
            frames = b"".join(len(data).to_bytes(4, "big") + data for data in (jail_code(), _json(job), _json(tests)))
            JailProcess(run, frames, limits, walls, cancel or threading.Event()).run()
    except OSError as error:
        run.trouble = run.trouble or f"sandbox: {type(error).__name__}: {error}"
    return run


_HIDDEN = {"runs": 0, "before": 1}
_HIDDEN_LOCK = threading.Lock()


@contextlib.contextmanager
def _hidden(walls: Walls) -> Iterator[None]:
    """Where a completion is the same user as we are and sees /proc, this process must not let itself be steered."""
    if sys.platform != "linux" or walls.kind != "weak" or {"landlock", "uid"} & set(walls.layers):
        yield
        return
    with _HIDDEN_LOCK:
        if not _HIDDEN["runs"]:
            _HIDDEN["before"] = linux.hide_memory()
        _HIDDEN["runs"] += 1
    try:
        yield
    finally:
        with _HIDDEN_LOCK:
            _HIDDEN["runs"] -= 1
            if not _HIDDEN["runs"] and _HIDDEN["before"] == 1:
                linux.show_memory()


def _json(value: object) -> bytes:
    return json.dumps(value).encode("ascii")


@contextlib.contextmanager
def work_folder(walls: Walls) -> Iterator[str]:
    """A folder on disk, where the mode does not have its own in memory."""
    if walls.kind != "weak":
        yield WORK
        return
    folder = tempfile.mkdtemp(prefix="unmask-")
    try:
        yield folder
    finally:
        remove(folder)
