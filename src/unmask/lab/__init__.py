"""The laboratory: experiments on top of the decoder, never the reverse."""

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

__all__ = [
    "CONTENDERS",
    "FAMILIES",
    "Contender",
    "DemoComparison",
    "DemoProblem",
    "DemoRow",
    "Reveal",
    "problems",
    "run_demo",
]
