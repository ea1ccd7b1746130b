"""What a denoiser, a policy, a search and the look-ahead promise each other."""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from unmask.core.action import Action
from unmask.core.prediction import Logits, Prediction
from unmask.core.proposal import Vocabulary
from unmask.core.state import State
from unmask.core.trajectory import Trajectory
from unmask.core.view import Needs, View
from unmask.errors import ContractError

ALL = -1
"""A policy that reads its whole past."""


class Denoiser(Protocol):
    """A masked diffusion model: one bidirectional forward pass over all rows of a view."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def device(self) -> torch.device:
        """Where it wants its views."""
        ...

    def __call__(self, view: View, needs: Needs) -> Logits: ...


class LookAhead(Protocol):
    """The one way to run the denoiser on a canvas that is not (yet) real: batched, counted, remembered."""

    def look(
        self, states: State, owner_R: Tensor, needs: Needs | None = None, given_RL: Tensor | None = None
    ) -> Prediction:
        """Greedy predictions for hypothetical rows; `owner_R` says which running row pays for each.

        `given_RL` asks for the probability of these tokens (-1: none), as `View.given_BN` does.
        """
        ...


class NoLookAhead:
    """For policies that decide from the step's own forward."""

    def look(
        self, states: State, owner_R: Tensor, needs: Needs | None = None, given_RL: Tensor | None = None
    ) -> Prediction:
        raise ContractError(
            "a policy asked to look ahead without saying so; allowed: `looks_ahead` is True for policies that do; "
            "define the property"
        )


NO_LOOK_AHEAD = NoLookAhead()


class Policy(ABC):
    """Decides one action per step. Frozen; what it must remember goes into `Action.notes`."""

    name: ClassVar[str]

    @abstractmethod
    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        """The decision at the trajectory's state: a pure function of what the trajectory holds and of looks ahead."""

    def view(self, traj: Trajectory) -> View:
        """What the denoiser should read."""
        return View.of(traj.state, self.needs)

    def done(self, traj: Trajectory) -> Tensor:
        """Which rows have finished."""
        return ~traj.state.masked_BL.any(-1)

    def check(self, state: State) -> None:
        """Refuse a start this method cannot decode; called once."""
        return None

    @property
    def needs(self) -> Needs:
        """What the method reads of a prediction: static."""
        return Needs()

    @property
    def memory(self) -> int:
        """How many past steps it reads: 0, 1 (notes count) or `ALL`. Futures are merged only under 0."""
        return 0

    @property
    def random(self) -> bool:
        """Whether it asks for random numbers of its own. The laboratory lets nobody draw who does not say so."""
        return False

    @property
    def looks_ahead(self) -> bool:
        """Whether it runs the model on hypothetical canvases. Nobody may who does not say so."""
        return False


class Search(ABC):
    """A method that owns its loop: beams, trees, particles. Reads the model only through the look-ahead."""

    name: ClassVar[str]

    @abstractmethod
    def decode(self, look_ahead: LookAhead, traj: Trajectory) -> Trajectory:
        """From a started trajectory to a finished one; `Trajectory.forwards_B` is filled in by the caller."""
