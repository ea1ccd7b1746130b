"""The laboratory: experiments on top of the decoder, never the reverse."""

from unmask.lab.cluster import Ray
from unmask.lab.demo import (
    CONTENDERS,
    FAMILIES,
    Contender,
    DemoComparison,
    DemoProblem,
    DemoRow,
    Reveal,
    problems,
    run_demo,
)
from unmask.lab.run.driver import RunOutcome, run_study

__all__ = [
    "CONTENDERS",
    "FAMILIES",
    "Contender",
    "DemoComparison",
    "DemoProblem",
    "DemoRow",
    "Ray",
    "Reveal",
    "RunOutcome",
    "problems",
    "run_demo",
    "run_study",
]
