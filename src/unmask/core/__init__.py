"""Values and contracts of decoding. Nothing here knows a model, a method or a task."""

from unmask.core.batch import (
    BatchValue,
    Layout,
    Path,
    axes_of,
    concat,
    copy_in,
    cut_canvas,
    map_tensors,
    part,
    replace_tensors,
    same_form,
    select,
    tensors,
)
from unmask.core.model_io import (
    Denoiser,
    DenoiserWrapper,
    ModelInput,
    ModelOutput,
    Needs,
    Slots,
    Vocabulary,
)
from unmask.core.noise import ForbiddenNoise, Noise, row_key
from unmask.core.policy import ALL, NO_LOOK_AHEAD, LookAhead, Policy, Search, SearchContext
from unmask.core.prediction import Edit, Posterior, Prediction, Statistics
from unmask.core.sampling import SamplingParams, sample
from unmask.core.state import RULES, Action, State
from unmask.core.trajectory import AnswerCost, Step, Trajectory, answer_tokens, cost_columns, join_runs, total_cost
from unmask.core.trajectory_file import check_value
from unmask.core.vocab_statistics import TokenDraw, filter_logits_
from unmask.core.vocab_statistics_choice import choose_statistics

__all__ = [
    "ALL",
    "NO_LOOK_AHEAD",
    "RULES",
    "Action",
    "AnswerCost",
    "BatchValue",
    "Denoiser",
    "DenoiserWrapper",
    "Edit",
    "ForbiddenNoise",
    "Layout",
    "LookAhead",
    "ModelInput",
    "ModelOutput",
    "Needs",
    "Noise",
    "Path",
    "Policy",
    "Posterior",
    "Prediction",
    "SamplingParams",
    "Search",
    "SearchContext",
    "Slots",
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
    "replace_tensors",
    "row_key",
    "same_form",
    "sample",
    "select",
    "tensors",
    "total_cost",
]
