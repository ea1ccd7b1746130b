"""The contract of a diagnostic, and the quantities that several of them read off a trajectory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import reveal_count, score
from unmask.base.errors import ConfigError
from unmask.base.options import check_annotations
from unmask.core import Action, Needs, Prediction, State, Step, Trajectory

T = TypeVar("T")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Mixture = Literal["reference", "diagnosed"]
"""Mixture of scoring rules that a diagnostic reads: the reference's, or the one that the score diagnostic proposes."""
IN_NAME = {"recorded": False}
"""Metadata of a setting that is part of the diagnostic's name, so that files do not record it a second time."""


@dataclass(frozen=True)
class Reading:
    """Signal and proposal of a diagnostic for the B rows of a trajectory."""

    signal_B: Tensor
    """Signal d_j(z), the strength of the evidence for the proposal; NaN where the diagnostic abstains."""
    abstains_B: Tensor
    """Rows without enough history to read a signal. Their action stays as it was given."""
    action: Action
    """The given action with the diagnostic's axis replaced by its proposal."""
    ingredients: Mapping[str, Tensor] = field(default_factory=dict)
    """Quantities that the signal is computed from, stored beside it. Their first axis is the batch."""


class Diagnostic(ABC):
    """A reader of the trajectory that gives a signal and a proposed action for one axis.

    A diagnostic is a frozen dataclass of its settings. It reads the recorded past and the present prediction, draws no
    random numbers and runs no model. The decoder must ask for its `needs` and keep `past_steps` steps.
    """

    name: ClassVar[str]
    """Name in studies, tables and gate files."""
    axis: ClassVar[str]
    """Axis of its proposals. Several diagnostics may share an axis."""
    ordered: ClassVar[bool] = True
    """Whether it reads the order in which the action reveals positions; if not, it reads only which positions."""
    cuda_graph: ClassVar[bool] = False
    """Whether `read` only launches kernels whose shapes follow from the shapes of its arguments. A GPU may then record
    it as a CUDA graph and replay it."""

    def __post_init__(self) -> None:
        """Check every setting against its annotation."""
        check_annotations(type(self), vars(self), self.name)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that gate files and studies record beside the name."""
        names = (f.name for f in fields(self) if f.metadata.get("recorded", True))  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names}

    @property
    def needs(self) -> Needs:
        """Parts of a prediction that the diagnostic reads, in the present and in past steps."""
        return Needs(divergence=True, attention=True)

    @property
    def past_steps(self) -> int:
        """Number of past steps that the diagnostic reads."""
        return 1

    @abstractmethod
    def read(self, traj: Trajectory, action: Action) -> Reading:
        """Return signal and proposal at the trajectory's state, where the reference would take `action`."""


def abstain(traj: Trajectory, action: Action) -> Reading:
    """Return a reading that abstains on all rows, as every diagnostic does before the first step."""
    nan_B = torch.full_like(traj.state.step_B, float("nan"), dtype=torch.float64)
    return Reading(nan_B, nan_B.isnan(), action)


def compute_once(traj: Trajectory, key: Hashable, compute: Callable[[], T]) -> T:
    """Compute a quantity once for a trajectory, because several diagnostics ask for the same one.

    The cache is kept in the trajectory's `__dict__`, so it is dropped with the trajectory. It cannot become stale,
    because tensors of a trajectory are never written to.
    """
    cache: dict[Hashable, Any] = traj.__dict__.setdefault("read", {})
    if key not in cache:
        cache[key] = compute()
    value: T = cache[key]
    return value


def masked_at_both_steps(traj: Trajectory, last: Step) -> Tensor:
    """Return the positions that were masked and predicted both at step t - 1 and at step t (P_t)."""
    length = traj.state.tokens_BL.shape[1]
    predicted_BL = traj.current_prediction.wanted_BN[:, :length] & last.prediction.wanted_BN[:, :length]
    return traj.state.masked_BL & last.state.masked_BL & predicted_BL


def predicted_positions(traj: Trajectory) -> Tensor:
    """Return the masked positions that have a prediction (M)."""
    return traj.state.masked_BL & traj.current_prediction.wanted_BN[:, : traj.state.tokens_BL.shape[1]]


def open_positions(state: State, action: Action) -> Tensor:
    """Return the positions that an action may reveal: those of its region that are masked or that it remasks."""
    masked_BL = state.masked_BL
    # A transition masks again before it reveals, so these positions are open too.
    if action.remask_BL is not None:
        masked_BL = masked_BL | (action.remask_BL & state.revisable_BL)
    return action.region_BL & masked_BL


def planned_count(state: State, action: Action) -> Tensor:
    """Return how many positions an action would reveal in each row."""
    return reveal_count(action.kappa_B, open_positions(state, action).sum(-1))


def priority(prediction: Prediction, action: Action) -> Tensor:
    """Return each position's score under an action's mixture of rules; NaN for a rule that was not computed."""
    return score.mix(action.alpha_BJ, score.landscape(prediction, action.region_BL.shape[1]))


def require_part(part: Tensor | None, name: str) -> Tensor:
    """Return a part of a prediction; refuse a prediction that was made without this part."""
    if part is None:
        raise ConfigError(
            f"{name} is None; allowed: predictions made with the diagnostic's needs, the past ones included; "
            "decode with a policy whose `needs` ask for them"
        )
    return part


def ordered_sum(x_BL: Tensor) -> Tensor:
    """Sum over the last axis from left to right, so that padding cannot change how the sum is rounded."""
    return x_BL.cumsum(-1)[..., -1]
