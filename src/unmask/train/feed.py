"""A step's numbers on their way to the device: one copy from pinned memory into buffers that never move."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.train.batches import Batch, Group

ALIGNMENT = 64
"""Every part of the buffer starts at a multiple of so many bytes."""


class Inputs(NamedTuple):
    """A batch on the device."""

    rows_B: Tensor
    hidden_BN: Tensor
    place_R: Tensor
    weight_R: Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> "Inputs":
        """In memory of its own."""
        return cls(*(torch.from_numpy(getattr(batch, name)).to(device) for name in cls._fields))


class Feed:
    """Static inputs of a step: a batch per group, and the learning rate.

    Two host buffers take turns. The host may write a step while the copy of the one before is still waiting for the
    device; before it writes into a buffer again it waits until that buffer's own copy is done.
    """

    def __init__(self, groups: Sequence[Group], device: torch.device):
        shapes: list[tuple[torch.dtype, tuple[int, ...]]] = [(torch.float32, ())]
        for group in groups:
            shapes += [
                (torch.int64, (group.rows,)),
                (torch.bool, (group.rows, group.length)),
                (torch.int64, (group.room,)),
                (torch.float32, (group.room,)),
            ]
        cuda = device.type == "cuda"
        size = sum(_bytes(*shape) for shape in shapes)
        self._hosts = [torch.zeros(size, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
        self._written = [[view.numpy() for view in _views(host, shapes)] for host in self._hosts]
        self._copied = [torch.cuda.Event(blocking=True) for _ in range(2)] if cuda else []
        self._turn = 0
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self.rate, *rest = _views(self._device, shapes)
        self.inputs = [Inputs(*rest[at : at + 4]) for at in range(0, len(rest), 4)]

    def write(self, rate: float, batches: Sequence[Batch]) -> None:
        """The next step's numbers, on the host."""
        self._turn = 1 - self._turn
        if self._copied:
            self._copied[self._turn].synchronize()
        values = [np.float32(rate)]
        for batch in batches:
            values += [getattr(batch, name) for name in Inputs._fields]
        for place, value in zip(self._written[self._turn], values, strict=True):
            np.copyto(place, value, casting="no")

    def send(self) -> None:
        """What was written last goes to the device, after the work that was queued there before."""
        self._device.copy_(self._hosts[self._turn], non_blocking=True)
        if self._copied:
            self._copied[self._turn].record()


def _bytes(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return -(-dtype.itemsize * int(np.prod(shape, dtype=np.int64)) // ALIGNMENT) * ALIGNMENT


def _views(buffer: Tensor, shapes: Sequence[tuple[torch.dtype, tuple[int, ...]]]) -> list[Tensor]:
    parts, start = [], 0
    for dtype, shape in shapes:
        used = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        parts.append(buffer[start : start + used].view(dtype).view(shape))
        start += _bytes(dtype, shape)
    return parts
