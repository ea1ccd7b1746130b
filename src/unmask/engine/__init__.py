"""One step of decoding and the loop: from a start to an end."""

from unmask.engine.decode import GivenAction, decode, decode_one_step, join_rows
from unmask.engine.step import (
    LookCache,
    StepCost,
    StepSettings,
    add_prediction,
    append_step,
    decide,
    forward,
    hide_noise,
    predict,
    recompute_last_step,
    take_step,
)
from unmask.engine.transition import Transition, apply, raise_faults

__all__ = [
    "GivenAction",
    "LookCache",
    "StepCost",
    "StepSettings",
    "Transition",
    "add_prediction",
    "append_step",
    "apply",
    "decide",
    "decode",
    "decode_one_step",
    "forward",
    "hide_noise",
    "join_rows",
    "predict",
    "raise_faults",
    "recompute_last_step",
    "take_step",
]
