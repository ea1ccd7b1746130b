"""CUDA graphs without a GPU: operations are noted while they run, and a replay runs them again on the same tensors.

As on a GPU, a replay reads and writes the memory of the recording, and whatever the host computed stays as it was.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Operation = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]


class FakeGraph:
    """What was noted."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for function, args, kwargs, before in self.operations:
            after = function(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(after), strict=True):
                # A view has moved already, with what it is a view of.
                if isinstance(old, Tensor) and storage(old) != storage(new):
                    old.copy_(new)


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class FakeCapture(TorchDispatchMode):
    """Stands in for `torch.cuda.graph`."""

    def __init__(self, events: list[tuple[str, Any]], graph: FakeGraph, pool: Any = None, stream: Any = None) -> None:
        super().__init__()
        self.graph = graph
        events.append(("capture", (pool, stream)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.graph.operations.append((func, args, kwargs or {}, result))
        return result


class FakeStream:
    """Streams run one after the other here; who waited for whom is not checked."""

    def wait_stream(self, other: "FakeStream") -> None:
        assert isinstance(other, FakeStream)


def install(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Replace `torch.cuda`'s graphs and streams; gives what happened so far: streams entered, captures begun."""
    events: list[tuple[str, Any]] = []

    def stream(entered: FakeStream) -> Any:
        events.append(("stream", entered))
        return nullcontext()

    names = {
        "CUDAGraph": FakeGraph,
        "graph": lambda graph, pool=None, stream=None: FakeCapture(events, graph, pool, stream),
        "graph_pool_handle": lambda: (0, 1),
        "device": lambda device: nullcontext(),
        "Stream": FakeStream,
        "stream": stream,
        "current_stream": FakeStream,
        "synchronize": lambda: None,
    }
    for name, value in names.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return events
