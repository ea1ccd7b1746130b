"""Beyond the paper: several axes adapt in one step, each behind its own gate."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from unmask.adapt.detector import Lookup
from unmask.adapt.diagnostics import Diagnostic, read_all
from unmask.adapt.gated import choose, memory_of, needs_of, plain
from unmask.adapt.notes import noted
from unmask.axes import AXES
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Needs, Policy, State, Trajectory
from unmask.methods import with_explicit_order


@dataclass(frozen=True)
class JointPolicy(Policy):
    """Replace every axis whose gate opens, in the order score, region, cardinality, commitment.

    Each diagnostic reads the action as assembled so far. So the mixture that was diagnosed is the one inside the
    region and cardinality diagnostics, and counts are taken within the region that was proposed.
    """

    name: ClassVar[str] = "joint"
    fixed: Policy
    """Who acts where every gate is shut, and what stays on the axes whose gate is."""
    diagnostics: tuple[Diagnostic, ...]
    detectors: tuple[Lookup, ...]
    """One for each diagnostic."""

    def __post_init__(self) -> None:
        axes = [diagnostic.axis for diagnostic in self.diagnostics]
        ordered = len(axes) > 0 and axes == [axis for axis in AXES if axis in axes]
        require(ordered, "axes of the diagnostics", axes, f"some of {', '.join(AXES)}, in this order", "sort them")
        count = len(self.detectors)
        require(count == len(axes), "number of detectors", count, f"{len(axes)}, one per diagnostic", "pass as many")
        plain(self.fixed)

    @property
    def needs(self) -> Needs:
        return needs_of([self.fixed, self._base], self.diagnostics)

    @property
    def past_steps(self) -> int:
        return memory_of([self.fixed, self._base], self.diagnostics)

    @property
    def random(self) -> bool:
        return self.fixed.random

    def check(self, state: State) -> None:
        self.fixed.check(state)

    @property
    def cuda_graph(self) -> bool:
        policies = (self.fixed, self._base)
        return all(policy.cuda_graph for policy in policies) and all(one.cuda_graph for one in self.diagnostics)

    def bounded(self, length: int) -> Policy:
        return replace(self, fixed=self.fixed.bounded(length))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        action = self._base.act(traj, look_ahead)
        any_B = torch.zeros_like(traj.state.step_B, dtype=torch.bool)
        record: dict[str, Tensor] = {}
        for diagnostic, detector in zip(self.diagnostics, self.detectors, strict=True):
            reading = read_all([diagnostic], traj, action)[0]
            open_B = detector.opens(reading.signal_B) & ~reading.abstains_B
            action = choose(open_B, reading.action, action)
            any_B = any_B | open_B
            record |= noted(diagnostic.name, reading, open_B)
        action = choose(any_B, action, self.fixed.act(traj, look_ahead))
        return replace(action, notes={**action.notes, **record})

    @cached_property
    def _base(self) -> Policy:
        return with_explicit_order(self.fixed)
