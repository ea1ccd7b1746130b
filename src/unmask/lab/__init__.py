"""The laboratory: experiments on top of the decoder, never the reverse.

All but `Ray` is looked up on first use: decoding on a cluster has no use for tables and statistics.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unmask.lab.cluster import Ray

if TYPE_CHECKING:
    from unmask.lab.demo import CONTENDERS as CONTENDERS
    from unmask.lab.demo import FAMILIES as FAMILIES
    from unmask.lab.demo import Contender as Contender
    from unmask.lab.demo import DemoComparison as DemoComparison
    from unmask.lab.demo import DemoProblem as DemoProblem
    from unmask.lab.demo import DemoRow as DemoRow
    from unmask.lab.demo import Reveal as Reveal
    from unmask.lab.demo import demo_problems as demo_problems
    from unmask.lab.demo import run_demo as run_demo
    from unmask.lab.study.protocol import StudyOutcome as StudyOutcome
    from unmask.lab.study.protocol import run_study as run_study

_MODULES = {
    **dict.fromkeys(("CONTENDERS", "FAMILIES", "Contender", "DemoComparison", "DemoProblem", "DemoRow"), "demo"),
    **dict.fromkeys(("Reveal", "demo_problems", "run_demo"), "demo"),
    **dict.fromkeys(("StudyOutcome", "run_study"), "study.protocol"),
}

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
    "demo_problems",
    "run_demo",
    "run_study",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"unmask.lab.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'unmask.lab' has no attribute {name!r}")
