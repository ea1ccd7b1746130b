"""Adaptive decoding: diagnostics, policies that leave the fixed action at some states, and gate files."""

from unmask.adapt.adaptive import (
    Adaptive,
    AlwaysRule,
    Coverage,
    DetectorRule,
    GateRule,
    RandomRule,
    Staged,
    coverage,
    nearest_candidate,
    needs_of,
    noted_diagnostics,
    read_policy_diagnostics,
    without_deviation_notes,
)
from unmask.adapt.arms import Arms, joint_arm
from unmask.adapt.diagnostics import DIAGNOSTICS, PAPER_DIAGNOSTICS, Diagnostic, Reading
from unmask.adapt.gate import EndToEnd, Gate, Guarantee, Lift
