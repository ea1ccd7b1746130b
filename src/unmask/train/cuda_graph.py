"""What a training step needs to be recorded as a CUDA graph: inputs that never move, and rehearsals without a trace."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unmask.train.batches import Batch, Group

REHEARSALS = 3
"""Steps before recording: compilation, autotuning, library handles and the optimizer's state cannot be recorded."""
ALIGNMENT = 64
"""Every part of the input buffer starts at a multiple of so many bytes."""


class BatchTensors(NamedTuple):
    """A batch on the device."""

    rows_B: Tensor
    hidden_BN: Tensor
    place_R: Tensor
    weight_R: Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> "BatchTensors":
        """Copy a batch to new memory on the device."""
        return cls(*(torch.from_numpy(getattr(batch, name)).to(device) for name in cls._fields))


class StepInputs:
    """Static inputs of a step: a batch per group, and the learning rate.

    All of them are views of one buffer on the device, filled by one copy from pinned memory. Two host buffers take
    turns: the host may write the next step while the copy of the last one still waits for the device. Before it writes
    into a buffer again, it waits until that buffer's own copy is done; otherwise a step would read its successor's
    rows.
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
        parts, size = [], 0
        for dtype, shape in shapes:
            used = dtype.itemsize * math.prod(shape)
            parts.append((slice(size, size + used), dtype, shape))
            size += -(-used // ALIGNMENT) * ALIGNMENT

        def split_buffer(buffer: Tensor) -> list[Tensor]:
            return [buffer[place].view(dtype).view(shape) for place, dtype, shape in parts]

        cuda = device.type == "cuda"
        self._hosts = [torch.zeros(size, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
        self._host_arrays = [[view.numpy() for view in split_buffer(host)] for host in self._hosts]
        self._copies = [torch.cuda.Event(blocking=True) for _ in range(2)] if cuda else []
        self._turn = 0
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self.rate, *rest = split_buffer(self._device)
        self.batches = [BatchTensors(*rest[at : at + 4]) for at in range(0, len(rest), 4)]

    def write(self, rate: float, batches: Sequence[Batch]) -> None:
        """Write the next step's inputs on the host. The device sees them after `send`."""
        self._turn = 1 - self._turn
        if self._copies:
            self._copies[self._turn].synchronize()
        values = [np.float32(rate)]
        for batch in batches:
            values += [getattr(batch, name) for name in BatchTensors._fields]
        for array, value in zip(self._host_arrays[self._turn], values, strict=True):
            np.copyto(array, value, casting="no")

    def send(self) -> None:
        """Copy what was written last to the device, after the work that is queued there."""
        self._device.copy_(self._hosts[self._turn], non_blocking=True)
        if self._copies:
            self._copies[self._turn].record()


@contextmanager
def restored_after(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Put weights and optimizer state back to what they were, in the same memory, because a graph knows addresses.

    State that an optimizer creates in its first step is set to zero, as it starts.
    """

    def state_tensors(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], Tensor]:
        return {(id(p), name): value for p, state in optimizer.state.items() for name, value in state.items()}

    weights = [parameter.detach().clone() for parameter in model.parameters()]
    before = [{key: value.clone() for key, value in state_tensors(optimizer).items()} for optimizer in optimizers]
    yield
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(weight)
        for optimizer, state in zip(optimizers, before, strict=True):
            for key, value in state_tensors(optimizer).items():
                if key in state:
                    value.copy_(state[key])
                else:
                    value.zero_()
