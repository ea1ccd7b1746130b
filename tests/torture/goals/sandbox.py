"""Programs and completions that attack the sandbox, in every mode that this machine has."""

import random
from collections.abc import Sequence
from pathlib import Path

from tests.attacks import sandbox
from tests.torture.case import Case, Failure, Goal
from tests.torture.made import Made

ONCE_OUT = ("fcntl F_SETOWN", "dnotify", "socketpair, then sendto", "frame by hand: a raised nothing")


def not_run() -> Sequence[str]:
    """Modes that the kernel or the user's rights do not allow."""
    return [f"sandbox mode {mode}: {why}" for mode, why in sandbox.missing().items()]


def try_case(case: Case, folder: Path, made: Made) -> Failure | None:
    """An attack and a mode; each pair comes once before any comes again, those that once got out first."""
    pairs = [(attack, mode) for attack in sandbox.ATTACKS for mode in sandbox.modes()]
    random.Random(case.seed).shuffle(pairs)
    pairs.sort(key=lambda pair: pair[0].name not in ONCE_OUT)
    attack, mode = pairs[case.number % len(pairs)]
    outcome = sandbox.run(attack, mode)
    if outcome.result != "escaped":
        return None
    return Failure(f"{attack.goal}: {attack.name!r} got out of {mode!r}: {outcome.detail}")


GOAL = Goal("sandbox", "hostile programs in every mode", try_case, sample=32, not_run=not_run)
