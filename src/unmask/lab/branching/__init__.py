"""Branches from states of the reference's runs: what is tried, how it is computed, what it cost."""

from unmask.lab.branching.graph import (
    RECOMPUTED,
    REFERENCE_RUN,
    SAVINGS,
    TRANSITION,
    BranchFrames,
    BranchProgress,
    branch,
)
from unmask.lab.branching.plan import PROPOSAL, Alternative, BatchSettings, BranchPlan, Continuation, random_stream
from unmask.lab.branching.readings import SUMMARY
from unmask.lab.branching.states import spaced_steps
