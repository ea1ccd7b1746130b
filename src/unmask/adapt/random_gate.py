"""The control of selective adaptation: as many deviations, at random states."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unmask.adapt.diagnostics import Reading
from unmask.adapt.gated import Gated
from unmask.base.errors import require
from unmask.core import Trajectory


@dataclass(frozen=True)
class RandomGate(Gated):
    """The proposal with probability `coverage` at every step that has one, else the fixed action."""

    name: ClassVar[str] = "random-gate"
    random = True
    coverage: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.coverage <= 1, "coverage", self.coverage, "0 to 1", "take that of the selective run")

    def opens(self, traj: Trajectory, reading: Reading) -> Tensor:
        step_B = traj.state.step_B
        return traj.noise.uniform(step_B, torch.zeros_like(step_B)[:, None], "random gate")[:, 0] < self.coverage
