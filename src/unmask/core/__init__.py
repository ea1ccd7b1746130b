"""Values and contracts of decoding. Nothing here knows a model, a method or a task."""

from unmask.core.batch import (
    BatchValue,
    Layout,
    Path,
    axis_letters,
    concat,
    copy_into_buffers,
    cut_canvas,
    get_part,
    has_same_form,
    map_tensors,
    replace_tensors,
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
from unmask.core.policy import (
    ALL,
    NO_LOOK_AHEAD,
    BlockLength,
    Count,
    LookAhead,
    Natural,
    NonNegative,
    Policy,
    Probability,
    Search,
    SearchContext,
)
from unmask.core.prediction import Edit, Posterior, Prediction, Statistics, TokenDraw
from unmask.core.sampling import SamplingParams, sample
from unmask.core.state import RULES, Action, State
from unmask.core.trajectory import AnswerCost, Step, Trajectory, answer_tokens, cost_columns, join_runs, total_cost
from unmask.core.trajectory_file import check_tensor_fields
from unmask.core.vocab_statistics import choose_statistics_path, filter_logits_
