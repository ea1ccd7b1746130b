"""GPU work that is recorded once as a CUDA graph and then replayed: one launch instead of a thousand.

Forward passes, whole decoding steps, the passes of block caches and the readings of diagnostics all use `GraphCache`.
A replay starts the same kernels on the same addresses, so its result is bitwise equal to the plain work.
"""

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor

from unmask.base.errors import warn_once
from unmask.core import copy_into_buffers

T = TypeVar("T")
REMEMBERED_KEYS = 256
"""Number of keys of which a cache remembers that they came before, or were refused."""


class NotGraphable(Exception):
    """Work that cannot be recorded as a CUDA graph; the text says why."""


@dataclass(frozen=True, eq=False)
class CudaGraph(Generic[T]):
    """A recorded graph, the buffers that it reads its inputs from, and its result, which the next replay overwrites."""

    graph: Any
    result: T
    buffers: Sequence[Tensor] = ()

    def __call__(self, *inputs: Tensor) -> T:
        """Replay the graph on these inputs, one for each buffer."""
        copy_into_buffers(self.buffers, inputs)
        self.graph.replay()
        return self.result


class GraphPool:
    """Memory that several graphs share, so that only the result of the latest replay may be read.

    Torch's handle of such memory is good for as long as a graph lives that was recorded with it.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._alive: WeakSet[CudaGraph[Any]] = WeakSet()

    @property
    def handle(self) -> Any:
        """Torch's handle of the memory, a new one where no graph uses the old one any more."""
        if not self._alive:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def add(self, graph: CudaGraph[Any]) -> None:
        """Count a graph that was recorded with the handle among those that keep it alive."""
        self._alive.add(graph)

    def abandon(self) -> None:
        """Give the memory up, because a recording in it failed half-way; the next graph gets other memory."""
        self._alive = WeakSet()


def build_graph(
    work: Callable[[], T],
    device: torch.device,
    *,
    buffers: Sequence[Tensor] = (),
    pool: GraphPool | None = None,
    rehearsals: int = 0,
) -> CudaGraph[T]:
    """Record `work`, which reads `buffers` and writes to the same memory every time.

    It must have run before, because compilation, autotuning and library handles cannot be recorded; else ask for
    `rehearsals`. It may not wait for the device, read from the host, or draw random numbers.
    """
    with torch.cuda.device(device):
        stream = None
        if rehearsals:
            # On a new stream, on which the graph is then recorded: nothing left behind belongs to another one.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(rehearsals):
                    work()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            # What rehearsals have left in reference cycles would otherwise stay for as long as the recording is made.
            gc.collect()
        graph = torch.cuda.CUDAGraph()
        handle = None if pool is None else pool.handle
        with _without_interruptions(device), torch.cuda.graph(graph, pool=handle, stream=stream):
            result = work()
    built = CudaGraph(graph, result, buffers)
    if pool is not None:
        pool.add(built)
    return built


@contextmanager
def _without_interruptions(device: torch.device) -> Iterator[None]:
    """Keep the garbage collector off while recording: a graph that is freed then breaks the one being recorded.

    A recording that fails also leaves torch's generator of random numbers in the belief that it goes on, so the
    generator then gets a new state with the same numbers.
    """
    generators = torch.cuda.default_generators
    generator = generators[torch.cuda.current_device()] if generators and device.type == "cuda" else None
    state = None if generator is None else generator.get_state()
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    except BaseException:
        if generator is not None and state is not None:
            fresh = torch.Generator(device)
            fresh.set_state(state)
            generator.graphsafe_set_state(fresh.graphsafe_get_state())
        raise
    finally:
        if collects:
            gc.enable()


class GraphCache:
    """Runs work by key: plainly the first time, recorded as a graph the second time, replayed from then on.

    A key that comes once costs no recording. The graphs used last are kept. Those of one cache share their memory: read
    the result of a replay before the next one.
    """

    def __init__(
        self,
        device: torch.device,
        limit: int | None = 16,
        pool: GraphPool | None = None,
        *,
        slots_multiple: int = 1,
    ):
        self.device, self.limit = device, limit
        self.pool = pool or GraphPool()
        self.slots_multiple = slots_multiple
        """Canvases of graphed steps are padded to a multiple of so many slots: many lengths then share a graph."""
        self.kept: OrderedDict[Hashable, Any] = OrderedDict()
        """Graphs, or other values that `find` made, the one used last at the end."""
        self.busy = Lock()
        """Held by a decode while its rows are in buffers that graphs of this cache read: two would mix their rows."""
        self._seen: OrderedDict[Hashable, bool] = OrderedDict()
        """Keys that came before, and whether they were refused."""

    def run(self, key: Hashable, work: Callable[..., T], inputs: Sequence[Tensor] = (), *, name: str = "") -> T:
        """Return `work(*inputs)`, from a graph where the key came before.

        Work that cannot be recorded raises `NotGraphable`; if it has a name, it runs plainly instead, with a warning.
        """

        def record() -> CudaGraph[T]:
            # Cloned: the graph reads these addresses for as long as it lives, and callers reuse their tensors.
            buffers = tuple(value.clone(memory_format=torch.contiguous_format) for value in inputs)
            return build_graph(lambda: work(*buffers), self.device, buffers=buffers, pool=self.pool)

        try:
            graph = self.find(key, record)
        except RuntimeError as error:
            # A driver without graphs, too little memory, or work that waits for the device after all.
            reason = first_error_line(error)
            self.refuse(key, f"{name} run one by one, not as a recorded graph: {reason}" if name else "")
            if not name:
                raise NotGraphable(reason) from error
            graph = None
        return work(*inputs) if graph is None else graph(*inputs)

    def find(self, key: Hashable, make: Callable[[], T]) -> T | None:
        """Return the value of a key, made when it comes the second time; None for new and for refused keys."""
        known, refused = key in self._seen, self._seen.get(key, False)
        self._note_key(key, refused)
        if key not in self.kept:
            # Recording costs several passes and memory for good, so a shape that comes once is only run.
            if not known or refused:
                return None
            self.kept[key] = make()
        self.kept.move_to_end(key)
        if self.limit is not None and len(self.kept) > self.limit:
            self.kept.popitem(last=False)
        value: T = self.kept[key]
        return value

    def refuse(self, key: Hashable, warning: str = "") -> None:
        """Never again record anything for this key, and say so once."""
        if warning:
            warn_once(warning)
        self._note_key(key, True)
        self.kept.pop(key, None)
        self.pool.abandon()

    def clear(self) -> None:
        """Forget all keys and graphs."""
        self._seen.clear()
        self.kept.clear()

    def nested_cache(self) -> "GraphCache":
        """Return an unlimited cache that shares this one's memory, for graphs that belong to one value of it."""
        return GraphCache(self.device, None, self.pool)

    def _note_key(self, key: Hashable, refused: bool) -> None:
        self._seen[key] = refused
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED_KEYS:
            self._seen.popitem(last=False)


def first_error_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
