"""Programs and completions that attack the sandbox, in every isolation that this machine has."""

import random
from collections.abc import Sequence
from pathlib import Path

from tests.attacks import sandbox
from tests.torture.case import Case, Failure, Goal
from tests.torture.made import Made

ONCE_OUT = ("fcntl F_SETOWN", "dnotify", "socketpair, then sendto", "frame by hand: a raised nothing")


def not_run() -> Sequence[str]:
    """Isolations that this machine does not have."""
    return [f"sandbox: no {name} here" for name in sandbox.OPEN if name not in sandbox.isolations()]


def try_case(case: Case, folder: Path, made: Made) -> Failure | None:
    """An attack and an isolation; each pair comes once before any comes again, those that once got out first."""
    pairs = [(attack, isolation) for attack in sandbox.ATTACKS for isolation in sandbox.isolations()]
    if not pairs:
        return None
    random.Random(case.seed).shuffle(pairs)
    pairs.sort(key=lambda pair: pair[0].name not in ONCE_OUT)
    attack, isolation = pairs[case.number % len(pairs)]
    outcome = sandbox.run(attack, isolation)
    if outcome.result != "escaped":
        return None
    return Failure(f"{attack.goal}: {attack.name!r} got out of {isolation!r}: {outcome.detail}")


GOAL = Goal("sandbox", "hostile programs in every isolation", try_case, sample=32, not_run=not_run)
