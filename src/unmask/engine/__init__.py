"""One step of decoding and the loop: from a start to an end."""

from unmask.engine.decode import GivenAction, decode, decode_one_step
from unmask.engine.graphed_decode import GraphedRows, Perform, StepRecorder
from unmask.engine.history import NotGraphable
from unmask.engine.step import Runner, append_step, joined, record_of, step_limit
from unmask.engine.transition import Transition, apply, raise_faults

__all__ = [
    "GivenAction",
    "GraphedRows",
    "NotGraphable",
    "Perform",
    "Runner",
    "StepRecorder",
    "Transition",
    "append_step",
    "apply",
    "decode",
    "decode_one_step",
    "joined",
    "raise_faults",
    "record_of",
    "step_limit",
]
