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
from unmask.core import copy_in

T = TypeVar("T")
REMEMBERED_KEYS = 256
"""Number of keys that a cache remembers as used before, or as refused."""


class NotGraphable(Exception):
    """Error for work that cannot be recorded as a CUDA graph; its text gives the reason."""


@dataclass(frozen=True, eq=False)
class CudaGraph(Generic[T]):
    """A recorded CUDA graph with its input buffers and its result, which every replay overwrites."""

    graph: Any
    result: T
    buffers: Sequence[Tensor] = ()

    def __call__(self, *inputs: Tensor) -> T:
        """Replay the graph on these inputs, one for each buffer."""
        copy_in(self.buffers, inputs)
        self.graph.replay()
        return self.result


class GraphPool:
    """GPU memory shared by several graphs: only the result of the latest replay may be read.

    Torch's handle of such memory is good for as long as a graph lives that was recorded with it.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._alive: WeakSet[CudaGraph[Any]] = WeakSet()

    @property
    def handle(self) -> Any:
        """Torch's handle of the shared memory; a new one if no graph uses the old one any more."""
        if not self._alive:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def add_graph(self, graph: CudaGraph[Any]) -> None:
        """Register a graph that was recorded in this memory and keeps it alive."""
        self._alive.add(graph)

    def abandon_memory(self) -> None:
        """Stop using the memory after a failed recording, so that the next graph gets new memory."""
        self._alive = WeakSet()


def build_graph(
    work: Callable[[], T],
    device: torch.device,
    *,
    buffers: Sequence[Tensor] = (),
    pool: GraphPool | None = None,
    rehearsals: int = 0,
) -> CudaGraph[T]:
    """Record `work` as a CUDA graph; it must read `buffers` and write to the same memory every time.

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
        with _pause_garbage_collector(device), torch.cuda.graph(graph, pool=handle, stream=stream):
            result = work()
    built = CudaGraph(graph, result, buffers)
    if pool is not None:
        pool.add_graph(built)
    return built


@contextmanager
def _pause_garbage_collector(device: torch.device) -> Iterator[None]:
    """Pause the garbage collector while recording, because freeing a graph would break the recording.

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
    """Cache of CUDA graphs by key: work runs plainly at first, is recorded the second time, then replayed.

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
        """Values by key (mostly graphs) that `find` made, the most recently used one last."""
        self.busy = Lock()
        """Lock of the decode whose rows are in the graphs' buffers; two decodes at once would mix their rows."""
        self._seen: OrderedDict[Hashable, bool] = OrderedDict()
        """Keys that were used before, and whether each was refused."""

    def run(self, key: Hashable, work: Callable[..., T], inputs: Sequence[Tensor] = (), *, name: str = "") -> T:
        """Return `work(*inputs)`, by replaying a graph if the key was used before.

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
        """Return the value of a key, and make it at the key's second use; None for new and for refused keys."""
        known, refused = key in self._seen, self._seen.get(key, False)
        self._remember_key(key, refused)
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
        """Stop recording for this key for good, with a warning if a text is given."""
        if warning:
            warn_once(warning)
        self._remember_key(key, True)
        self.kept.pop(key, None)
        self.pool.abandon_memory()

    def clear(self) -> None:
        """Forget all keys and graphs."""
        self._seen.clear()
        self.kept.clear()

    def make_nested_cache(self) -> "GraphCache":
        """Return a cache without a size limit whose graphs share this cache's memory."""
        return GraphCache(self.device, None, self.pool)

    def _remember_key(self, key: Hashable, refused: bool) -> None:
        """Note that a key was used, and forget the key that was used longest ago if there are too many."""
        self._seen[key] = refused
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED_KEYS:
            self._seen.popitem(last=False)


def first_error_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's type if the message is empty."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
