"""Trouble of the evaluator is unavailable, never a verdict."""

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from tests.helpers.sandboxed import PROBLEM, RIGHT, WRONG, below, exceptions, needs_seccomp, wait_until
from unmask.base.errors import ConfigError, UnknownName
from unmask.tasks import sandbox
from unmask.tasks.sandbox import Limits, SandboxVerdict, check_completion, check_many, probe, process, run_program
from unmask.tasks.sandbox import run as run_module
from unmask.tasks.sandbox.walls import Walls


def test_broken_problem_is_unavailable():
    problems = [
        {},
        {**PROBLEM, "test": None},
        {**PROBLEM, "test": "def check("},
        {**PROBLEM, "test": "x = 1"},
        {**PROBLEM, "test": "import no_such_module\ndef check(candidate): pass"},
        {**PROBLEM, "test": "def check(candidate):\n    undefined(candidate)"},
        {**PROBLEM, "test": "def check(candidate):\n    candidate(object())"},
        {**PROBLEM, "prompt": "def double(x)"},
    ]
    verdicts = check_many([(problem, RIGHT) for problem in problems])
    assert not exceptions(map(str, problems), verdicts, "unavailable")
    assert all(verdict.detail for verdict in verdicts)


def test_no_interpreter_is_unavailable(monkeypatch, tmp_path):
    assert check_completion(PROBLEM, RIGHT).status == "pass"
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "no-python"))
    assert check_completion(PROBLEM, RIGHT).status == "unavailable"
    monkeypatch.setattr(sys, "_base_executable", "/bin/false")
    verdict = check_completion(PROBLEM, RIGHT)
    assert verdict.status == "unavailable"
    assert "did not start" in verdict.detail
    monkeypatch.setattr(probe, "PROBES", {})
    verdict = check_completion(PROBLEM, RIGHT)
    assert (verdict.status, verdict.mode) == ("unavailable", "none")
    monkeypatch.undo()
    assert check_completion(PROBLEM, RIGHT).status == "pass"


def test_no_room_for_the_folder_is_unavailable(monkeypatch, tmp_path):
    assert check_completion(PROBLEM, RIGHT, mode="weak").status == "pass"

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    verdict = check_completion(PROBLEM, RIGHT, mode="weak")
    assert verdict.status == "unavailable"
    assert "No space left" in verdict.detail


def test_wall_that_cannot_be_built_is_unavailable(monkeypatch):
    """A run never falls back to weaker walls than the report will name."""
    assert check_completion(PROBLEM, RIGHT, mode="weak").status == "pass"
    monkeypatch.setattr(run_module, "visible", lambda: ("/no-such-place",))
    monkeypatch.setattr(run_module, "work_folder", lambda walls: contextlib.nullcontext("/no-such-place"))
    verdict = check_completion(PROBLEM, RIGHT, mode="weak")
    assert verdict.status == "unavailable"
    assert "/no-such-place" in verdict.detail


def test_slow_start_is_unavailable(monkeypatch):
    assert check_completion(PROBLEM, RIGHT).status == "pass"
    monkeypatch.setattr(process, "SETUP_S", 0.001)
    verdict = check_completion(PROBLEM, RIGHT)
    assert verdict.status == "unavailable"
    assert "not ready" in verdict.detail


def test_killed_supervisor_is_unavailable(monkeypatch, mode):
    needs_seccomp(mode, "without it the completion itself may have done it")
    assert check_completion(PROBLEM, RIGHT, mode=mode).status == "pass"
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(process.subprocess, "Popen", Recorded)
    verdicts: list[SandboxVerdict] = []
    thread = threading.Thread(
        target=lambda: verdicts.append(check_completion(PROBLEM, "    while True: pass\n", mode=mode))
    )
    thread.start()
    # The supervisor's child checks, and its child is the completion.
    assert wait_until(lambda: started and below(started[0].pid, 2), 5)
    time.sleep(0.1)
    started[0].kill()
    thread.join()
    assert verdicts[0].status == "unavailable", verdicts


def test_unknown_mode_and_impossible_limits():
    with pytest.raises(UnknownName, match="namespace"):
        check_completion(PROBLEM, RIGHT, mode="namespaces")
    for wrong in ({"wall_s": 0}, {"cpu_s": float("inf")}, {"memory_mb": 1}, {"processes": 0}, {"file_mb": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Limits(**wrong)
    with pytest.raises(ConfigError, match="workers"):
        check_many([], workers=0)


def test_system_without_any_of_this(monkeypatch):
    monkeypatch.setattr(probe, "PROBES", {})
    monkeypatch.setattr(probe, "candidates", lambda kind: [])
    verdict = check_completion(PROBLEM, RIGHT)
    assert (verdict.status, verdict.mode) == ("unavailable", "none")
    assert run_program("pass").status == "unavailable"
    assert sandbox.available_modes() == []


def test_modes_are_stated():
    modes = sandbox.available_modes()
    assert modes
    assert modes[0] == check_completion(PROBLEM, RIGHT).mode
    assert all(text.startswith(("namespace", "bubblewrap", "weak: ")) for text in modes)
    walls = [Walls("weak", layers) for layers in ((), ("seccomp", "uid"), ("seccomp", "landlock", "uid"))]
    assert [wall.text for wall in walls] == [
        "weak: resource limits (no namespaces, no seccomp, no landlock, no own user)",
        "weak: seccomp + own user (no namespaces, no landlock)",
        "weak: seccomp + landlock + own user (no namespaces)",
    ]


def test_walls_that_let_signals_out_are_used_only_if_asked_for(monkeypatch):
    bare = Walls("weak", ("landlock",))
    monkeypatch.setattr(probe, "PROBES", {"namespace": "not here", "bubblewrap": "not here", "weak": bare})
    assert probe.find_walls("weak") is bare
    monkeypatch.setenv("UNMASK_SANDBOX", "weak")
    assert probe.find_walls(None) is bare
    monkeypatch.delenv("UNMASK_SANDBOX")
    verdict = check_completion(PROBLEM, RIGHT)
    assert verdict.status == "unavailable"
    assert "set UNMASK_SANDBOX=weak to use it" in verdict.detail
    monkeypatch.setenv("UNMASK_SANDBOX", "wek")
    with pytest.raises(UnknownName, match="weak"):
        check_completion(PROBLEM, RIGHT)


@pytest.mark.slow
def test_trouble_in_clearing_up_does_not_undo_a_verdict(monkeypatch, tmp_path):
    """Or a wrong completion could leave the scoring by what it leaves in its folder."""
    monkeypatch.setattr(probe, "PROBES", {})

    @contextlib.contextmanager
    def stubborn(walls):
        (tmp_path / "work").mkdir(exist_ok=True)
        yield str(tmp_path / "work")
        raise OSError(errno.ENOTEMPTY, "cannot be removed")

    assert check_completion(PROBLEM, RIGHT, mode="weak").status == "pass"
    monkeypatch.setattr(run_module, "work_folder", stubborn)
    for body, status in (
        (WRONG, "fail"),
        ("    import os\n    os._exit(0)\n", "error"),
        ("    while True: pass\n", "timeout"),
    ):
        verdict = check_completion(PROBLEM, body, Limits(wall_s=2, cpu_s=1), mode="weak")
        assert verdict.status == status, verdict
