"""A network small enough to be measured in a test, and a clock that counts forwards instead of seconds."""

from dataclasses import dataclass

import torch

from unmask.core import Vocabulary
from unmask.lab.bench import CanvasShape, Shape, Stopwatch, Subject, random_network
from unmask.models import TransformerSpec

SPEC = TransformerSpec(64, 32, 2, 2, 2, 48, 1e4, 1e-5, False, True)
CANVAS = CanvasShape(prompt=8, answer=8, steps=4, block=4)


def subject(canvas: CanvasShape = CANVAS) -> Subject:
    shape = Shape(SPEC, Vocabulary(64, 63, (62,)), 0)
    return Subject("tiny", random_network(shape, torch.device("cpu"), torch.float32), canvas, random=True)


@dataclass
class Counted:
    """A subject whose forwards are counted, and the clock that reads the count; part of the canvas is part of one."""

    subject: Subject
    forwards: float = 0

    def __post_init__(self) -> None:
        def count(model, given):
            self.forwards += given[0].shape[1] / 32

        self.subject.network.model.register_forward_pre_hook(count)

    @property
    def clock(self) -> Stopwatch:
        return Stopwatch(now=lambda: self.forwards)
