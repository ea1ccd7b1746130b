"""Branches from real states: what is tried, the engine that does equal work once, what it cost."""

from unmask.lab.branch.costs import AxisCost, BranchCost
from unmask.lab.branch.engine import Branch, BranchProgress, BranchResult, run, run_together
from unmask.lab.branch.futures import FirstStep
from unmask.lab.branch.plan import PROPOSAL, Alternative, Continuation, EngineSettings, Plan, stream
from unmask.lab.branch.readings import StoredReading
from unmask.lab.branch.states import ReferenceRun, Sampled, spaced

__all__ = [
    "PROPOSAL",
    "Alternative",
    "AxisCost",
    "Branch",
    "BranchCost",
    "BranchProgress",
    "BranchResult",
    "Continuation",
    "EngineSettings",
    "FirstStep",
    "Plan",
    "ReferenceRun",
    "Sampled",
    "StoredReading",
    "run",
    "run_together",
    "spaced",
    "stream",
]
