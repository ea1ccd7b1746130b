"""Always-diagnostic adaptation: the proposal at every state that has one."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unmask.adapt.diagnostics import Reading
from unmask.adapt.gated import Gated
from unmask.core import Trajectory


@dataclass(frozen=True)
class Proposed(Gated):
    """Take what the diagnostic proposes; where it abstains, the fixed action."""

    name: ClassVar[str] = "always"

    def opens(self, traj: Trajectory, reading: Reading) -> Tensor:
        return ~reading.abstains_B
