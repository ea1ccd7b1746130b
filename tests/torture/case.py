"""What a goal is, what a case is, and what comes of one."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.torture.made import Made


@dataclass(frozen=True)
class Failure:
    """What a case saw that is promised not to happen."""

    what: str


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
    def again(self) -> str:
        """How to do it again."""
        return f"python -m tests.torture --only {self.goal} --case {self.number} --seed {self.seed}"


def cases(goal: str, seed: int) -> Iterator[Case]:
    """The cases of a goal, without end."""
    number = 0
    while True:
        yield Case(goal, seed, number)
        number += 1


TryCase = Callable[[Case, Path, Made], Failure | None]
"""A case, an empty folder of its own, and what was made beforehand."""


@dataclass(frozen=True)
class Goal:
    """One kind of attack."""

    name: str
    about: str
    try_case: TryCase
    sample: int
    """Cases of the sample that CI runs."""
    needs: Sequence[str] = ()
    """Which things of `made` its cases start from."""
    seconds: float = 180.0
    """What a case may take before it counts as hung."""
    not_run: Callable[[], Sequence[str]] = lambda: ()
    """What this machine cannot try, in words."""
