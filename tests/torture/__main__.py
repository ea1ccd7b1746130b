"""`python -m tests.torture --minutes M --seed S [--only GOAL]`; `--sample` for a fixed number of cases of each goal."""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.torture.case import Case, Failure, Goal
from tests.torture.process import preload
from tests.torture.runner import Tally, torture, try_one

MOST = 1000
"""Characters shown of a failure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if nothing was found, 1 if something was."""
    asked = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    preload()
    # Goals import the package, which reads the environment that was just set.
    from tests.torture.goals import GOALS

    unknown = sorted(set(asked.only) - set(GOALS))
    if unknown:
        print(f"unknown goals {', '.join(unknown)}; known: {', '.join(GOALS)}", file=sys.stderr)
        return 2
    goals = [goal for name, goal in GOALS.items() if not asked.only or name in asked.only]
    place = Path(tempfile.mkdtemp(prefix="unmask-torture-"))
    if asked.case is not None:
        return _again(goals, Case(goals[0].name, seed, asked.case), place)
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    try:
        minutes = None if asked.sample else asked.minutes
        tallies = torture(goals, seed, place, minutes=minutes, on_failure=_tell)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("\n".join(report(tallies, seed, time.monotonic() - began)))
    return int(any(tally.failures for tally in tallies))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; default: an hour")
    parser.add_argument("--seed", type=int, help="of everything; default: a random one, which is printed")
    parser.add_argument("--only", metavar="GOAL", action="append", default=[], help="one goal; may be repeated")
    parser.add_argument("--case", type=int, help="one case of the goal, again; its folder stays")
    parser.add_argument("--sample", action="store_true", help="a fixed number of cases of each goal: two minutes")
    return parser


def _again(goals: Sequence[Goal], case: Case, place: Path) -> int:
    failure = try_one(goals[0], case, place)
    print("no failure" if failure is None else f"FAILED: {_printable(failure.what)}")
    print(f"its folder: {place}")
    return int(failure is not None)


def _tell(case: Case, failure: Failure) -> None:
    print(f"FAILED {case.goal} {case.number}: {_printable(failure.what)[:MOST]}\n  again: {case.again}", flush=True)


def _printable(text: str) -> str:
    """Hostile text as a terminal may get it."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in plain)


def report(tallies: Sequence[Tally], seed: int, seconds: float) -> list[str]:
    """Goals, how often each was tried, and what failed."""
    lines = ["", f"{'goal':<12} {'tried':>6} {'failures':>8} {'seconds':>8} {'cpu':>6}  what"]
    for tally in sorted(tallies, key=lambda t: t.goal.name):
        counts = f"{tally.tried:>6} {len(tally.failures):>8} {tally.seconds:>8.0f} {tally.cpu:>6.0f}"
        lines.append(f"{tally.goal.name:<12} {counts}  {tally.goal.about}")
    for tally in tallies:
        lines += [f"not run: {what}" for what in tally.not_run]
    for tally in tallies:
        lines += [f"failed: {case.again}" for case, _ in tally.failures]
    total = sum(len(tally.failures) for tally in tallies)
    lines.append(f"seed {seed}: {total} failures in {sum(t.tried for t in tallies)} cases, {seconds:.0f} s")
    return lines


if __name__ == "__main__":
    sys.exit(main())
