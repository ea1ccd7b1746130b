"""Break the promises of this package at random: `python -m tests.reliability --minutes M --seed S [--only GOAL]`.

Two cases run at a time, each in a forked process with a folder and a process group of its own, so that one that hangs
or dies takes nothing else along. `--sample` tries a fixed number of cases of each goal, the same for the same seed.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.reliability.case import Case, Goal
from tests.reliability.made import Made
from tests.reliability.process import POLL, fork, preload

WORKERS = 2
SHOWN = 1000
"""Characters shown of a failure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if nothing was found, 1 if something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; default: an hour")
    parser.add_argument("--seed", type=int, help="of everything; default: a random one, which is printed")
    parser.add_argument("--only", metavar="GOAL", action="append", default=[], help="one goal; may be repeated")
    parser.add_argument("--case", type=int, help="one case of the goal, again; its folder stays")
    parser.add_argument("--sample", action="store_true", help="a fixed number of cases of each goal: two minutes")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    preload()
    # Goals import the package, which reads the environment that was just set.
    from tests.reliability.goals import GOALS

    unknown = sorted(set(options.only) - set(GOALS))
    if unknown:
        print(f"unknown goals {', '.join(unknown)}; known: {', '.join(GOALS)}", file=sys.stderr)
        return 2
    goals = [goal for name, goal in GOALS.items() if not options.only or name in options.only]
    place = Path(tempfile.mkdtemp(prefix="unmask-torture-"))
    made = Made(place / "made")
    made.build([name for goal in goals for name in goal.needs])
    if options.case is not None:
        case = Case(goals[0].name, seed, options.case)
        found = goals[0].try_case(case, _make_folder(place, case), made)
        print(f"FAILED: {_printable(found)}" if found else "no failure", f"its folder: {place}", sep="\n")
        return int(bool(found))
    print(f"seed {seed}", flush=True)
    began, minutes = time.monotonic(), None if options.sample else options.minutes
    # What a machine cannot do is found out once, here: cases are forked from this process and know it.
    not_run = [what for goal in goals for what in goal.not_run()]
    try:
        failed, tried = torture(goals, seed, place, made, minutes)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for goal in goals:
        print(f"{goal.name:<12} {tried[goal.name]:>4} cases  {goal.about}")
    print(*(f"not run: {what}" for what in not_run), *(f"failed: {case.command}" for case in failed), sep="\n")
    print(f"seed {seed}: {len(failed)} failures in {tried.total()} cases, {time.monotonic() - began:.0f} s")
    return int(bool(failed))


def schedule(goals: Sequence[Goal], seed: int, minutes: float | None) -> Iterator[tuple[Goal, Case]]:
    """Yield cases of all goals in turn, until the minutes are over, or each goal's sample where there are none."""
    stop = None if minutes is None else time.monotonic() + 60 * minutes
    for number in count() if stop is not None else range(max(goal.sample for goal in goals)):
        for goal in goals:
            if stop is not None and time.monotonic() > stop:
                return
            if stop is not None or number < goal.sample:
                yield goal, Case(goal.name, seed, number)


@dataclass(frozen=True)
class _Running:
    goal: Goal
    case: Case
    folder: Path
    began: float


def torture(
    goals: Sequence[Goal], seed: int, place: Path, made: Made, minutes: float | None
) -> tuple[list[Case], Counter[str]]:
    """Try cases, tell of each that fails, and return these and how many of each goal were tried."""
    cases = schedule(goals, seed, minutes)
    running: dict[int, _Running] = {}
    failed, tried = [], Counter[str]()
    try:
        while True:
            while len(running) < WORKERS and (one := next(cases, None)) is not None:
                folder = _make_folder(place, one[1])
                running[_start(*one, folder, made)] = _Running(*one, folder, time.monotonic())
            if not running:
                return failed, tried
            for pid, case in list(running.items()):
                # WNOWAIT: who is dead keeps its number until its group is killed.
                is_dead = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
                if not is_dead and time.monotonic() - case.began < case.goal.seconds:
                    continue
                code = _end(pid)
                del running[pid]
                tried[case.goal.name] += 1
                found = _read_result(case.folder, code) if is_dead else f"hung: not over after {case.goal.seconds:g} s"
                shutil.rmtree(case.folder, ignore_errors=True)
                if found:
                    failed.append(case.case)
                    print(f"FAILED {case.goal.name} {case.case.number}: {_printable(found)[:SHOWN]}")
                    print(f"  again: {case.case.command}", flush=True)
            time.sleep(POLL)
    finally:
        for pid in running:
            _end(pid)


def _make_folder(place: Path, case: Case) -> Path:
    folder = place / f"{case.goal}-{case.number}"
    folder.mkdir()
    return folder


def _start(goal: Goal, case: Case, folder: Path, made: Made) -> int:
    """Begin a case in a process of its own; return its id."""

    def child() -> int:
        os.setpgid(0, 0)
        os.chdir(folder)
        try:
            found = goal.try_case(case, folder, made)
        except Exception:
            found = f"the case itself: {traceback.format_exc()[-1500:]}"
        (folder / ".result").write_text(json.dumps(found), encoding="utf-8")
        return 0

    return fork(child)


def _end(pid: int) -> int:
    """End a case and all it started; return its exit code."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _read_result(folder: Path, code: int) -> str | None:
    """Return what a case saw, or that it came to no end of its own."""
    try:
        result: str | None = json.loads((folder / ".result").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"the case itself ended with {code}"
    return result


def _printable(text: str) -> str:
    """Hostile text as a terminal may get it."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in plain)


if __name__ == "__main__":
    sys.exit(main())
