"""Work recorded once as a CUDA graph and then replayed: one launch instead of thousands. Nothing else records graphs.

The same kernels run on the same numbers, so a replay is bitwise equal to the plain work.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Recording(Generic[T]):
    """A graph, the buffers that it reads its inputs from, and its result, which the next replay overwrites."""

    graph: Any
    result: T
    buffers: Sequence[Tensor] = ()

    def __call__(self, *values: Tensor) -> T:
        """The result for these values, one for each buffer."""
        copy_in(self.buffers, values)
        self.graph.replay()
        return self.result


class GraphMemory:
    """Memory that recordings share, so that only the latest one's result may be read.

    Torch's handle of it is good for as long as a graph lives that was recorded with it.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._alive: WeakSet[Recording[Any]] = WeakSet()

    @property
    def handle(self) -> Any:
        if not self._alive:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def keep(self, recording: Recording[Any]) -> None:
        """Its graph was recorded with the handle."""
        self._alive.add(recording)

    def leave(self) -> None:
        """What it holds belongs to a broken capture; the next one gets other memory."""
        self._alive = WeakSet()


def record(
    work: Callable[[], T],
    device: torch.device,
    *,
    buffers: Sequence[Tensor] = (),
    memory: GraphMemory | None = None,
    rehearsals: int = 0,
) -> Recording[T]:
    """Capture `work`, which reads `buffers` and writes to the same memory every time.

    It must have run before: compilation, autotuning and library handles cannot be captured. Who has not done so asks
    for `rehearsals`. It may not wait for the device, nor read from the host, nor draw random numbers.
    """
    with torch.cuda.device(device):
        stream = _rehearse(work, rehearsals) if rehearsals else None
        graph = torch.cuda.CUDAGraph()
        pool = None if memory is None else memory.handle
        with _undisturbed(device), torch.cuda.graph(graph, pool=pool, stream=stream):
            result = work()
    recording = Recording(graph, result, buffers)
    if memory is not None:
        memory.keep(recording)
    return recording


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """Nothing is collected while recording: a graph that is freed then breaks the one that is recorded.

    And a recording that fails leaves torch's generator of random numbers believe that it goes on: it gets a new state
    with the same numbers.
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


def _rehearse(work: Callable[[], object], times: int) -> Any:
    """Run it on a stream, to be recorded on the same one: nothing that it leaves behind then belongs to another."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    # What rehearsals have left in circles would stay for as long as the recording is made.
    gc.collect()
    return stream


def copy_in(buffers: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Each value into its buffer, with as few kernels as can be."""
    for targets, sources in _alike(buffers, values):
        torch._foreach_copy_(targets, sources)


def _alike(buffers: Sequence[Tensor], values: Sequence[Tensor]) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """Buffers and values that one kernel can copy together: of one type, laid out alike; the others one by one."""
    groups: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
    for at, (buffer, value) in enumerate(zip(buffers, values, strict=True)):
        together = buffer.stride() == value.stride()
        targets, sources = groups.setdefault(buffer.dtype if together else at, ([], []))
        targets.append(buffer)
        sources.append(value)
    return groups.values()
