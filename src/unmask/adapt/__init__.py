"""Adaptive decoding: arms that leave the fixed action at some states, and the files they are kept in."""

from unmask.adapt.arms import Arms, joint_arm
from unmask.adapt.detector import Lookup
from unmask.adapt.gate import EndToEnd, Gate, Guarantee, Lift
from unmask.adapt.gated import Gated
from unmask.adapt.joint import JointPolicy
from unmask.adapt.notes import Coverage, coverage
from unmask.adapt.proposed import Proposed
from unmask.adapt.random_gate import RandomGate
from unmask.adapt.selective import Selective
from unmask.adapt.snapped import Snapped
from unmask.adapt.staged import Staged

__all__ = [
    "Arms",
    "Coverage",
    "EndToEnd",
    "Gate",
    "Gated",
    "Guarantee",
    "JointPolicy",
    "Lift",
    "Lookup",
    "Proposed",
    "RandomGate",
    "Selective",
    "Snapped",
    "Staged",
    "coverage",
    "joint_arm",
]
