"""What a diagnostic promises, and the quantities that several of them read off a trajectory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from unmask.axes import reveal_count, score
from unmask.base.errors import ConfigError
from unmask.core import Action, Needs, Prediction, State, Step, Trajectory

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """A diagnostic's answer for B rows: how strong its signal is, and what it would do instead."""

    signal_B: Tensor
    """d_j(z); NaN where it abstains."""
    abstains_B: Tensor
    """Rows whose history says nothing: they keep the reference's action."""
    action: Action
    """The reference's action with this one axis replaced."""
    ingredients: Mapping[str, Tensor] = field(default_factory=dict)
    """What the signal was made of, the batch first: worth storing beside it."""


class Diagnostic(ABC):
    """D_j of one axis: a signal and a proposal from the recorded past and the present prediction.

    Frozen, draws nothing, runs no model. The decoder must ask for its `needs` and keep `memory` steps.
    """

    name: ClassVar[str]
    """What studies, tables and gate files call it."""
    axis: ClassVar[str]
    """The axis that it proposes another action on; there may be several diagnostics of one axis."""
    ordered: ClassVar[bool] = True
    """Whether it reads the order in which the action reveals, or only which positions."""
    replays: ClassVar[bool] = False
    """Whether `read`, once it is `sized`, only starts kernels of shapes that follow from its arguments' shapes. A GPU
    may then record and replay it."""

    @property
    def needs(self) -> Needs:
        """What it reads of a prediction, the past ones included."""
        return Needs(divergence=True, attention=True)

    @property
    def past_steps(self) -> int:
        """How many past steps it reads."""
        return 1

    def sized(self, traj: Trajectory) -> "Diagnostic":
        """The same diagnostic, told all that `read` would have to ask the device about the trajectory."""
        return self

    def bounded(self, length: int) -> "Diagnostic":
        """The same diagnostic, sized for every trajectory of canvases of this length."""
        return self

    @abstractmethod
    def read(self, traj: Trajectory, action: Action) -> Reading:
        """Signal and proposal at the trajectory's state, where the reference would take `action`."""


def silence(traj: Trajectory, action: Action) -> Reading:
    """No row has a past."""
    nan_B = torch.full_like(traj.state.step_B, float("nan"), dtype=torch.float64)
    return Reading(nan_B, nan_B.isnan(), action)


def once(traj: Trajectory, what: Hashable, make: Callable[[], T]) -> T:
    """Kept with the trajectory, whose tensors are never written to: several diagnostics ask for the same."""
    kept: dict[Hashable, Any] = traj.__dict__.setdefault("read", {})
    if what not in kept:
        kept[what] = make()
    value: T = kept[what]
    return value


def masked_twice(traj: Trajectory, last: Step) -> Tensor:
    """P_t: positions masked, and predicted, at t - 1 and at t."""

    def make() -> Tensor:
        length = traj.state.tokens_BL.shape[1]
        known_BL = traj.current_prediction.wanted_BN[:, :length] & last.prediction.wanted_BN[:, :length]
        return traj.state.masked_BL & last.state.masked_BL & known_BL

    return once(traj, "masked twice", make)


def eligible(state: State, action: Action) -> Tensor:
    """Where `apply` would reveal: the region, cut to what is masked once the action has re-masked."""
    masked_BL = state.masked_BL
    if action.remask_BL is not None:
        masked_BL = masked_BL | (action.remask_BL & state.revisable_BL)
    return action.region_BL & masked_BL


def count(state: State, action: Action) -> Tensor:
    """How many positions `apply` would reveal."""
    return reveal_count(action.kappa_B, eligible(state, action).sum(-1))


def mixed(prediction: Prediction, action: Action) -> Tensor:
    """The priority landscape of a prediction under the action's mixture."""
    return score.mix(action.alpha_BJ, score.landscape(prediction, action.region_BL.shape[1]))


def asked(value: Tensor | None, what: str) -> Tensor:
    """A part of a prediction that the diagnostic's needs ask for."""
    if value is None:
        raise ConfigError(
            f"{what} is None; allowed: predictions made with the diagnostic's needs, the past ones included; "
            "decode with a policy whose `needs` ask for them"
        )
    return value


def total(x_BL: Tensor) -> Tensor:
    """Sum over the last axis in its order, so that padding cannot change how it is rounded."""
    return x_BL.cumsum(-1)[..., -1]
