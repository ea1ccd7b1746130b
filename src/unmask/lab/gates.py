"""Readings of a gate that a study may hold side by side, by name: how tau is chosen, and beside which fixed action.

The arm `selective` is `lift`: tau by what the proposal gains out of fold, opportunity over the fixed action that a
prompt's other folds choose. Each further gate is an arm of its own, with a random gate of its own coverage as control.
"""

from collections.abc import Mapping
from typing import Any

from unmask.base.errors import require
from unmask.base.options import check_name, parse_names

LIFT = "lift"
"""The usual gate, whose arms have no further name."""
GATES: Mapping[str, Mapping[str, Any]] = {
    "mean": {"rule": "mean"},
    "lift-together": {"fixed_out_of_fold": False},
    "mean-together": {"rule": "mean", "fixed_out_of_fold": False},
    "snapped": {"proposal": "snapped"},
}
"""Changes to the settings of a calibration. `mean`: bins above the mean validation opportunity open; `together`:
opportunity over the fixed action that all prompts choose, as the paper's equations have it; `snapped`: the candidate
nearest to the proposal is taken in its place."""
FURTHER_DRAWS = 1
"""Runs of a further gate's random gate; the usual one has more, for it is the control of every table."""
AXIS_BY = ("lift", "opportunity")
"""What the axis of E4's headline is chosen by, on validation prompts."""


def selective_arm(gate: str) -> str:
    """How the arm of a gate is stored."""
    return "selective" if gate == LIFT else f"selective {gate}"


def random_arm(gate: str) -> str:
    """How its control is stored."""
    return "random gate" if gate == LIFT else f"random gate {gate}"


def parse_gates(value: Any, end_to_end: bool) -> tuple[str, ...]:
    """The further gates of a study file."""
    if value == []:
        return ()
    names = parse_names("gates", value)
    for name in names:
        check_name("name in gates", name, GATES)
    require(end_to_end, "gates", list(names), "with end_to_end = true", "they are arms of whole runs: switch it on")
    return names


def parse_axis_by(value: Any) -> str:
    """What the headline's axis is chosen by."""
    check_name("axis_by", value, AXIS_BY)
    return str(value)
