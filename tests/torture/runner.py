"""Cases of several goals, two at a time, each in a forked process with a folder and a process group of its own."""

import contextlib
import json
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.case import Case, Failure, Goal, cases
from tests.torture.made import Made
from tests.torture.process import POLL, fork

WORKERS = 2


@dataclass
class Tally:
    """What has come of a goal so far."""

    goal: Goal
    cases: Iterator[Case]
    not_run: Sequence[str]
    tried: int = 0
    running: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """Processor time of its cases and of what they waited for, whatever else the machine did."""
    failures: list[tuple[Case, Failure]] = field(default_factory=list)


@dataclass(frozen=True)
class _Running:
    """A case that is being tried."""

    tally: Tally
    case: Case
    folder: Path
    began: float


def torture(
    goals: Sequence[Goal],
    seed: int,
    place: Path,
    *,
    minutes: float | None,
    on_failure: Callable[[Case, Failure], None] = lambda case, failure: None,
) -> list[Tally]:
    """Try cases until the minutes are over, or each goal's sample where there are none.

    The order of goals follows from the seed, and the next case is of the goal that has had least time.
    """
    made = Made(place / "made")
    made.build([name for goal in goals for name in goal.needs])
    # What a machine can do is found out once, here: cases are forked from this process and know it.
    tallies = [Tally(goal, cases(goal.name, seed), goal.not_run()) for goal in goals]
    random.Random(seed).shuffle(tallies)
    stop = None if minutes is None else time.monotonic() + 60 * minutes
    running: dict[int, _Running] = {}
    try:
        while True:
            while len(running) < WORKERS and (tally := _next(tallies, stop)) is not None:
                case = next(tally.cases)
                pid, one = _begin(tally, case, place / f"{case.goal}-{case.number}", made)
                running[pid] = one
            if not running:
                return tallies
            for pid, ended in _over(running):
                failure = _result(ended, *_reap(pid, ended))
                del running[pid]
                if failure is not None:
                    ended.tally.failures.append((ended.case, failure))
                    on_failure(ended.case, failure)
            time.sleep(POLL)
    finally:
        for pid, one in running.items():
            _reap(pid, one)


def try_one(goal: Goal, case: Case, place: Path) -> Failure | None:
    """One case, here and now; its folder stays."""
    made = Made(place / "made")
    made.build(goal.needs)
    folder = place / f"{case.goal}-{case.number}"
    folder.mkdir()
    return goal.try_case(case, folder, made)


def _next(tallies: Sequence[Tally], stop: float | None) -> Tally | None:
    """The goal whose turn it is, if any."""
    if stop is not None:
        return min(tallies, key=lambda t: (t.seconds, t.tried + t.running)) if time.monotonic() < stop else None
    open_ = [t for t in tallies if t.tried + t.running < t.goal.sample]
    # Side by side, so that goals that wait and goals that compute share the machine.
    return min(open_, key=lambda t: (t.tried + t.running) / t.goal.sample, default=None)


def _begin(tally: Tally, case: Case, folder: Path, made: Made) -> tuple[int, _Running]:
    folder.mkdir()

    def child() -> int:
        os.setpgid(0, 0)
        os.chdir(folder)
        try:
            failure = tally.goal.try_case(case, folder, made)
        except Exception:
            failure = Failure(f"the case itself: {traceback.format_exc()[-1500:]}")
        (folder / ".result").write_text(json.dumps(None if failure is None else failure.what), encoding="utf-8")
        return 0

    tally.running += 1
    pid = fork(child)
    return pid, _Running(tally, case, folder, time.monotonic())


def _over(running: dict[int, _Running]) -> list[tuple[int, _Running]]:
    """Those that have ended, or have had their time."""
    now = time.monotonic()
    ended = []
    for pid, one in running.items():
        # WNOWAIT: who is dead keeps its number until its group is killed.
        dead = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if dead or now - one.began > one.tally.goal.seconds:
            ended.append((pid, one))
    return ended


def _reap(pid: int, one: _Running) -> tuple[int, bool]:
    """End a case and all it started; returns how it ended and whether it hung."""
    hung = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    one.tally.cpu += used.ru_utime + used.ru_stime
    one.tally.running -= 1
    one.tally.tried += 1
    one.tally.seconds += time.monotonic() - one.began
    return code, hung


def _result(one: _Running, code: int, hung: bool) -> Failure | None:
    """What came of a case; its folder goes."""
    try:
        if hung:
            return Failure(f"hung: not over after {one.tally.goal.seconds:g} s")
        try:
            what = json.loads((one.folder / ".result").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Failure(f"the case itself ended with {code}")
        return None if what is None else Failure(what)
    finally:
        shutil.rmtree(one.folder, ignore_errors=True)
