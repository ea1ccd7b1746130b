"""Folders that several tests read, made once for a run of the tests, however many processes it has."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` of this run, filled by the first process that asks for it; to be read only."""
    base = factory.getbasetemp()
    # Each worker of xdist has a folder of its own in the folder of the run.
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    home = run / "made-once"
    home.mkdir(exist_ok=True)
    folder, done = home / name, home / f"{name}.done"
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            # What a failed or interrupted attempt left behind is not whole.
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.touch()
    return folder
