"""Selective adaptation: leave the fixed action only where the detector expects that it pays. Algorithm 1."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unmask.adapt.detector import Lookup
from unmask.adapt.diagnostics import Reading
from unmask.adapt.gated import Gated
from unmask.core import Trajectory


@dataclass(frozen=True)
class Selective(Gated):
    """The proposal where the expected opportunity is tau or more, else the fixed action. `eq:selective_policy`"""

    name: ClassVar[str] = "selective"
    detector: Lookup

    def opens(self, traj: Trajectory, reading: Reading) -> Tensor:
        return self.detector.opens(reading.signal_B)
