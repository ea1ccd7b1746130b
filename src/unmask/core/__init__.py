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
from unmask.core.cost import AnswerCost, answer_tokens, cost_columns, total_cost
from unmask.core.graphs import GraphMemory, Recording, copy_in, record
from unmask.core.layout import Layout, axes_of, cut_canvas, replace_tensors, same_form
from unmask.core.merge import join_runs
from unmask.core.prediction import CountedSlots, Edit, ModelOutput, PackedSlots, Posterior, Prediction, Statistics
from unmask.core.proposal import SamplingParams, Vocabulary, sample
from unmask.core.rng import ForbiddenNoise, Noise, row_key
from unmask.core.rows import Path, concat, map_tensors, part, select, tensors
from unmask.core.shapes import check_value
from unmask.core.state import State
from unmask.core.trajectory import Step, Trajectory
from unmask.core.view import ModelInput, Needs
from unmask.core.vocab_statistics import TokenDraw, filter_logits_
from unmask.core.vocab_statistics_choice import choose_statistics

__all__ = [
    "ALL",
    "NO_LOOK_AHEAD",
    "RULES",
    "Action",
    "AnswerCost",
    "CountedSlots",
    "Denoiser",
    "DenoiserWrapper",
    "Edit",
    "ForbiddenNoise",
    "GraphMemory",
    "Layout",
    "LookAhead",
    "ModelInput",
    "ModelOutput",
    "Needs",
    "Noise",
    "PackedSlots",
    "Path",
    "Policy",
    "Posterior",
    "Prediction",
    "Recording",
    "SamplingParams",
    "Search",
    "SearchContext",
    "State",
    "Statistics",
    "Step",
    "TokenDraw",
    "Trajectory",
    "Vocabulary",
    "answer_tokens",
    "axes_of",
    "check_value",
    "choose_statistics",
    "concat",
    "copy_in",
    "cost_columns",
    "cut_canvas",
    "filter_logits_",
    "join_runs",
    "map_tensors",
    "part",
    "record",
    "replace_tensors",
    "row_key",
    "same_form",
    "sample",
    "select",
    "tensors",
    "total_cost",
]
