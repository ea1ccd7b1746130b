"""Values and contracts of the runtime. Nothing here knows a model, a method or a task."""

from unmask.core.action import RULES, Action
from unmask.core.contracts import ALL, NO_LOOK_AHEAD, Denoiser, DenoiserAround, LookAhead, Policy, Search, SearchRun
from unmask.core.prediction import Edit, Logits, Posterior, Prediction, Statistics
from unmask.core.proposal import Proposal, Vocabulary, propose
from unmask.core.rng import Noise, NoNoise, row_key
from unmask.core.state import State
from unmask.core.trajectory import Step, Trajectory
from unmask.core.view import Needs, View

__all__ = [
    "ALL",
    "NO_LOOK_AHEAD",
    "RULES",
    "Action",
    "Denoiser",
    "DenoiserAround",
    "Edit",
    "Logits",
    "LookAhead",
    "Needs",
    "NoNoise",
    "Noise",
    "Policy",
    "Posterior",
    "Prediction",
    "Proposal",
    "Search",
    "SearchRun",
    "State",
    "Statistics",
    "Step",
    "Trajectory",
    "View",
    "Vocabulary",
    "propose",
    "row_key",
]
