"""The sandbox: honest completions are judged rightly, hostile ones are contained and never pass.

Each test leaves no process and no file behind: `nothing_left` sees to it. To that end this process adopts its orphaned
descendants, so that one which got away would turn up here.
"""

import functools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.sandboxed import SHORT, adopt, children, no_children, wait_until
from unmask.tasks.sandbox import probe
from unmask.tasks.sandbox import run as run_module
from unmask.tasks.sandbox.walls import Walls


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory, monkeypatch) -> Iterator[None]:
    if sys.platform != "linux":
        pytest.skip("the walls are those of Linux")
    tmp_path_factory.getbasetemp()
    # Not in `tmp_path`, which other users may not enter: the completion may be another user.
    folder = Path(tempfile.mkdtemp(prefix="unmask-test-"))
    folder.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    adopt(True)
    yield
    try:
        # An orphan may need a moment to be adopted, and a killed one to end.
        assert wait_until(no_children, 5), f"left running: {children()}"
        # Fails if a run left something in it.
        folder.rmdir()
    finally:
        adopt(False)


@pytest.fixture(params=["strongest", "weak"])
def mode(request) -> str | None:
    """The strongest mode of this machine, and what is left on one that offers nothing."""
    return None if request.param == "strongest" else "weak"


@functools.cache
def holds(walls: Walls) -> bool:
    return probe.holds(
        run_module.run_jail({"kind": "program", "program": probe.PROBE_PROGRAM}, {}, SHORT, walls), walls
    )


@pytest.fixture
def use(monkeypatch):
    """Make runs use particular walls, to see that each holds without the others; returns the mode to ask for."""

    def use(kind: str, layers: tuple[str, ...]) -> str:
        walls = Walls(kind, layers)
        if not holds(walls):
            pytest.skip(f"{kind} with {layers}: not possible for this user and interpreter")
        monkeypatch.setitem(probe.PROBES, kind, walls)
        return kind

    return use
