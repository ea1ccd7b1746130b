"""A goal of the torture, and a case of it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.made import Made


@dataclass(frozen=True)
class Case:
    """One try: everything about it follows from goal, seed and number."""

    goal: str
    seed: int
    number: int

    @property
    def rng(self) -> random.Random:
        """Its random numbers, from the beginning."""
        return random.Random(f"{self.goal} {self.seed} {self.number}")

    @property
    def command(self) -> str:
        """The command that does it again."""
        return f"python -m tests.reliability --only {self.goal} --case {self.number} --seed {self.seed}"


@dataclass(frozen=True)
class Goal:
    """One kind of attack."""

    name: str
    about: str
    try_case: Callable[[Case, Path, Made], str | None]
    """Tries a case in an empty folder of its own; returns what it saw that is promised not to happen, if anything."""
    sample: int
    """Cases of the sample that CI runs."""
    needs: Sequence[str] = ()
    """Names of what its cases start from, in `made`."""
    seconds: float = 180.0
    """Seconds after which a case counts as hung."""
    not_run: Callable[[], Sequence[str]] = lambda: ()
    """What this machine cannot try, in words."""
