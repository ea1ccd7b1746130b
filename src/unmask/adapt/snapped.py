"""Selective adaptation within the candidate set: the candidate that comes nearest to the diagnostic's proposal."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

from unmask.adapt.diagnostics import Reading
from unmask.adapt.gated import Gated, choose, memory_of, needs_of
from unmask.adapt.random_gate import RandomGate
from unmask.adapt.selective import Selective
from unmask.axes import AXES
from unmask.base.errors import UnknownName, require
from unmask.core import NO_LOOK_AHEAD, Action, Needs, Policy, State, Trajectory
from unmask.engine import apply


@dataclass(frozen=True)
class _NearestCandidate(Gated):
    """The candidate that comes nearest to the proposal, in its place."""

    candidates: tuple[Policy, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.candidates), "candidates", self.candidates, "one or more", "pass those of the axis")

    @property
    def needs(self) -> Needs:
        return super().needs | needs_of(self.candidates)

    @property
    def past_steps(self) -> int:
        return memory_of([self.fixed, self._base, *self.candidates], [self.diagnostic])

    def read(self, traj: Trajectory) -> Reading:
        reading = super().read(traj)
        actions = [policy.act(traj, NO_LOOK_AHEAD) for policy in self.candidates]
        revealed_BL = apply(traj.state, traj.current_prediction, reading.action).revealed_BL
        at_B = nearest(self.diagnostic.axis, traj.state, reading.action, revealed_BL, actions)
        snapped = reduce(lambda kept, at: choose(at_B == at[0], at[1], kept), enumerate(actions), actions[0])
        return replace(reading, action=snapped)


@dataclass(frozen=True)
class Snapped(_NearestCandidate, Selective):
    """The nearest candidate where the expected opportunity is tau or more, else the fixed action."""

    name: ClassVar[str] = "snapped"


@dataclass(frozen=True)
class RandomSnapped(_NearestCandidate, RandomGate):
    """Its control: as many deviations, to the nearest candidate, at random states."""

    name: ClassVar[str] = "random-snapped"


def nearest(axis: str, state: State, proposed: Action, revealed_BL: Tensor, candidates: Sequence[Action]) -> Tensor:
    """Index of the candidate nearest to a proposal on its axis, row by row; the first of equally near ones.

    `revealed_BL` is what the proposal reveals.
    """
    if axis not in AXES:
        raise UnknownName("axis", axis, AXES)
    distance_AB = torch.stack([AXES[axis].distance(state, proposed, other, revealed_BL) for other in candidates])
    # Not argmin, which promises no order among ties.
    least_B = distance_AB.min(0).values
    return (distance_AB == least_B).to(torch.int8).argmax(0)
