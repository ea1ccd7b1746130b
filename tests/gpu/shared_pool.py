"""CUDA graphs without a GPU, as strict as a GPU's memory allows: for what may be read of a recording, and when.

As `fake_cuda`, which repeats the noted operations on the same tensors, but:
- capturing does not do the work: what it wrote is put back, and its results hold garbage until the first replay;
- a replay fills the results of all other graphs of its pool with garbage, since they may lie in the same memory;
- a capture or a replay inside a capture raises, as on a GPU;
- streams note who has waited for whom.
"""

from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.helpers import fake_cuda
from tests.helpers.fake_cuda import FakeCapture, FakeGraph, FakeStream, storage

Pools = dict[object, "WeakSet[PooledGraph]"]
GARBAGE = 1_000_003


class PooledGraph(FakeGraph):
    """A graph whose results share their memory with those of other graphs."""

    capturing = False

    def __init__(self) -> None:
        super().__init__()
        self.peers: WeakSet[PooledGraph] = WeakSet()
        self.own: dict[int, Tensor] = {}
        """A tensor of each storage that the capture allocated."""

    def replay(self) -> None:
        if PooledGraph.capturing:
            raise RuntimeError("CUDA error: a graph was replayed inside a capture")
        for peer in list(self.peers):
            if peer is not self:
                peer.spoil()
        with torch.inference_mode():
            super().replay()

    def spoil(self) -> None:
        """Fill what the capture allocated with garbage."""
        with torch.inference_mode():
            for tensor in self.own.values():
                whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
                if whole.is_floating_point():
                    whole.fill_(float("nan"))
                elif whole.dtype == torch.bool:
                    whole.logical_not_()
                else:
                    whole.fill_(GARBAGE % torch.iinfo(whole.dtype).max)


class PooledCapture(FakeCapture):
    """Notes operations, and in the end leaves everything as it was before."""

    def __init__(self, events: list[Any], graph: PooledGraph, pool: Any, stream: Any, pools: Pools) -> None:
        super().__init__(events, graph, pool, stream)
        self.pooled = graph
        if pool is not None:
            graph.peers = pools.setdefault(pool, WeakSet())
            graph.peers.add(graph)
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> Any:
        if PooledGraph.capturing:
            raise RuntimeError("CUDA error: a capture was begun inside a capture")
        PooledGraph.capturing = True
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        PooledGraph.capturing = False
        result = super().__exit__(*error)
        with torch.inference_mode():
            for tensor, kept in self.before.values():
                torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).copy_(kept)
        self.pooled.spoil()
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
        known = {storage(tensor) for tensor in given}
        if func._schema.is_mutable:
            for tensor in given:
                at = storage(tensor)
                if at not in self.pooled.own and at not in self.before:
                    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
                    self.before[at] = (tensor, whole.clone())
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and storage(tensor) not in known and storage(tensor) not in self.before:
                self.pooled.own.setdefault(storage(tensor), tensor)
        return result


class NotedStream(FakeStream):
    """A stream that notes for whom it has waited."""

    waits: list[tuple["NotedStream", "NotedStream"]]
    main: "NotedStream"

    def wait_stream(self, other: FakeStream) -> None:
        assert isinstance(other, NotedStream)
        NotedStream.waits.append((self, other))


def install(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Replace `torch.cuda`'s graphs and streams; gives what happened so far: streams entered, captures begun."""
    events = fake_cuda.install(monkeypatch)
    pools: Pools = {}
    NotedStream.waits, NotedStream.main = [], NotedStream()
    PooledGraph.capturing = False

    def capture(graph: PooledGraph, pool: Any = None, stream: Any = None) -> PooledCapture:
        return PooledCapture(events, graph, pool, stream, pools)

    names = {
        "CUDAGraph": PooledGraph,
        "graph": capture,
        "Stream": NotedStream,
        "current_stream": lambda *_: NotedStream.main,
        "is_current_stream_capturing": lambda: PooledGraph.capturing,
    }
    for name, value in names.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return events
