"""The laboratory: experiments on top of the decoder, never the reverse.

What runs studies is looked up on first use: decoding on a cluster, and benches on hosts with little but torch, have no
use for tables.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from unmask.lab.study.protocol import StudyOutcome as StudyOutcome
    from unmask.lab.study.protocol import run_study as run_study

__all__ = [
    "CONTENDERS",
    "FAMILIES",
    "Contender",
    "DemoComparison",
    "DemoProblem",
    "DemoRow",
    "Ray",
    "Reveal",
    "StudyOutcome",
    "problems",
    "run_demo",
    "run_study",
]


def __getattr__(name: str) -> Any:
    if name in ("StudyOutcome", "run_study"):
        return getattr(import_module("unmask.lab.study.protocol"), name)
    raise AttributeError(f"module 'unmask.lab' has no attribute {name!r}")
