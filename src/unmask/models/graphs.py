"""Forward passes of shapes seen before, replayed as CUDA graphs: one launch instead of a thousand."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from unmask.base.errors import warn_once
from unmask.core import GraphMemory, Recording, record
from unmask.models.network import LayersOutput, run_layers
from unmask.models.transformer import PLAIN, Transformer

T = TypeVar("T")
Key = tuple[object, ...]


class Replays:
    """Work by its shape: run the first time, recorded the second, replayed from then on.

    A replay's result lives in the recording's memory until the next call: read it at once.
    """

    def __init__(self, model: Transformer, limit: int = 16, memory: GraphMemory | None = None):
        self.model, self.limit = model, limit
        self.recorded: OrderedDict[Key, Recording[Any]] = OrderedDict()
        self.memory = memory or GraphMemory()
        self._seen: set[Key] = set()
        self._refused: set[Key] = set()

    def __call__(self, key: Key, work: Callable[..., T], values: Sequence[Tensor], about: str) -> T:
        """What `work` gives for these values; `about` says in words which work it is."""
        if key not in self._seen:
            # The first pass is also the warm-up that capturing asks for: handles, autotuning, compilation.
            self._seen.add(key)
            return self._first(work, values)
        if key not in self.recorded and not self._keep(key, work, values, about):
            return work(*values)
        self.recorded.move_to_end(key)
        result: T = self.recorded[key](*values)
        return result

    def _first(self, work: Callable[..., T], values: Sequence[Tensor]) -> T:
        """What the kernels cannot do shows here, in the first pass of a shape."""
        try:
            return work(*values)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if self.model.ops is PLAIN:
                raise
            warn_once(f"the engine is graph, not fused: the kernels do not run ({_reason(error)})")
            self.model.use(PLAIN)
            self.recorded.clear()
            return work(*values)

    def _keep(self, key: Key, work: Callable[..., Any], values: Sequence[Tensor], about: str) -> bool:
        """Record a shape; where that fails, say so and let it be."""
        if key in self._refused:
            return False
        try:
            buffers = tuple(value.clone(memory_format=torch.contiguous_format) for value in values)
            recorded = record(partial(work, *buffers), self.model.device, buffers=buffers, memory=self.memory)
            self.recorded[key] = recorded
        except RuntimeError as error:
            # A driver without graphs, or too little memory.
            self._refused.add(key)
            self.memory.leave()
            warn_once(f"{about} run one by one, not as a recorded graph: {_reason(error)}")
            return False
        if len(self.recorded) > self.limit:
            self.recorded.popitem(last=False)
        return True


class Graphs:
    """Runs a network's layers; from the second pass of a shape on, by replaying a recording of them."""

    def __init__(self, model: Transformer, limit: int = 16):
        self.model, self.replays = model, Replays(model, limit)
        self.idle: list[Any] = []
        """Buffers of block caches between two decodes, with the recordings that read them."""

    def __call__(
        self,
        tokens_BN: Tensor,
        position_BN: Tensor,
        bias: Tensor,
        *,
        watch: Sequence[int] = (),
    ) -> LayersOutput:
        values = (tokens_BN, position_BN, bias)
        key = (*(value.shape for value in values), tuple(watch))
        work = partial(run_layers, self.model, watch=watch)
        return self.replays(key, work, values, f"passes over {tuple(tokens_BN.shape)} slots")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
