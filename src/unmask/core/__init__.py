"""Values and contracts of the runtime. Nothing here knows a model, a method or a task."""

from unmask.core.action import RULES, Action
from unmask.core.contracts import (
    ALL,
    NO_LOOK_AHEAD,
    Denoiser,
    DenoiserWrapper,
    LookAhead,
    Policy,
    Search,
    SearchContext,
)
from unmask.core.prediction import Edit, ModelOutput, Posterior, Prediction, Statistics
from unmask.core.proposal import SamplingParams, Vocabulary, sample
from unmask.core.rng import ForbiddenNoise, Noise, row_key
from unmask.core.state import State
from unmask.core.trajectory import Step, Trajectory
from unmask.core.view import ModelInput, Needs

__all__ = [
    "ALL",
    "NO_LOOK_AHEAD",
    "RULES",
    "Action",
    "Denoiser",
    "DenoiserWrapper",
    "Edit",
    "ForbiddenNoise",
    "LookAhead",
    "ModelInput",
    "ModelOutput",
    "Needs",
    "Noise",
    "Policy",
    "Posterior",
    "Prediction",
    "SamplingParams",
    "Search",
    "SearchContext",
    "State",
    "Statistics",
    "Step",
    "Trajectory",
    "Vocabulary",
    "row_key",
    "sample",
]
