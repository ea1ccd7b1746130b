"""SIGKILL at random moments of long commands; then the same command goes on, and nothing is lost or different."""

from pathlib import Path

from tests.reliability.case import Case, Goal
from tests.reliability.made import WORKS, Made

NAMES = tuple(WORKS)
KILLS = 3
"""At most so many, one after the other."""


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    name, rng = NAMES[case.number % len(NAMES)], case.rng
    work = WORKS[name]
    work.prepare(folder)
    kept: dict[str, str] = {}
    for _ in range(rng.randint(1, KILLS)):
        ended = work.run(folder, kill_after=rng.uniform(0, 1.1) * made.seconds(name))
        if ended.code != -9 and ended.trouble:
            return f"{name} after a kill: {ended.trouble}"
        now = work.finished(folder)
        if lost := [path for path, content in kept.items() if now.get(path) != content]:
            return f"{name}: lost or changed {', '.join(lost)}"
        kept = now
    ended = work.run(folder)
    if ended.code or ended.trouble:
        return f"{name} does not go on after kills: {ended.trouble or ended.last}"
    if work.outcome(folder, ended) != made.outcome(name):
        return f"{name}: other results than without kills"
    if lost := [path for path, content in kept.items() if work.finished(folder).get(path) != content]:
        return f"{name}: redone though finished: {', '.join(lost)}"
    if litter := [str(p.relative_to(folder)) for p in folder.rglob(".*") if "partial" in p.name]:
        return f"{name}: left behind {', '.join(litter)}"
    return None


GOAL = Goal("kills", "SIGKILL, then the same command", try_case, sample=8, needs=NAMES)
