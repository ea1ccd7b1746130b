"""An optimisation step is rehearsed before it is recorded as a CUDA graph; afterwards nothing shows that it was."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

REHEARSALS = 3
"""Steps before recording: compilation, autotuning, library handles, the optimizer's state."""


@contextmanager
def undone(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Weights and the optimizers' state are afterwards what they were before, in the same memory.

    State that an optimizer makes in its first step is set to zero, as it starts.
    """
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    states = [{place: value.clone() for place, value in _tensors(optimizer)} for optimizer in optimizers]
    yield
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(value)
        for optimizer, state in zip(optimizers, states, strict=True):
            for place, value in _tensors(optimizer):
                if place in state:
                    value.copy_(state[place])
                else:
                    value.zero_()


def _tensors(optimizer: torch.optim.Optimizer) -> list[tuple[tuple[int, str], Tensor]]:
    """Every tensor of the state, under its parameter and its name."""
    return [((id(p), name), value) for p, state in optimizer.state.items() for name, value in state.items()]
