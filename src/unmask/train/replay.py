"""A whole optimisation step recorded as a CUDA graph: one launch instead of thousands."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

REHEARSALS = 3
"""Steps before recording: compilation, autotuning, library handles, the optimizer's state."""

T = TypeVar("T")


class Replay(Generic[T]):
    """Work that was recorded once, and what it returns.

    The work reads and writes the same memory every time; its results are overwritten by the next call. It may not
    wait for the device, nor read from the host, nor draw random numbers.
    """

    def __init__(self, work: Callable[[], T], device: torch.device):
        # One stream for both, so that nothing the rehearsals leave behind belongs to another one.
        with torch.cuda.device(device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(REHEARSALS):
                    work()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            # Memory that is freed by chance while recording is a pitfall; now nothing is left to free.
            gc.collect()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream):
                self._result = work()

    def __call__(self) -> T:
        self._graph.replay()
        return self._result


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
