"""The decoding loop: one step, and whole runs from a start to an end."""

from unmask.engine.decode import GivenAction, decode, decode_one_step, join_rows
from unmask.engine.step import (
    LookAheadCache,
    StepCost,
    StepSettings,
    add_prediction,
    append_step,
    decide,
    forbid_noise,
    forward,
    predict,
    recompute_last_step,
    take_step,
)
from unmask.engine.transition import Transition, apply, raise_faults
