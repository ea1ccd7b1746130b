"""Forward passes of shapes seen before, replayed as CUDA graphs: one launch instead of a thousand."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unmask.core.graphs import Recording, record
from unmask.denoisers.readout import Output, run
from unmask.denoisers.remarks import say_once
from unmask.denoisers.transformer import Layer, Transformer


class Graphs:
    """Runs a network's layers; from the second pass of a shape on, by replaying a recording of them.

    A replay's result lives in the recording's memory until the next call: read it at once.
    """

    def __init__(self, model: Transformer, limit: int = 16):
        self.model, self.limit = model, limit
        self._seen: set[tuple[object, ...]] = set()
        self._recorded: OrderedDict[tuple[object, ...], Recording[Output]] = OrderedDict()
        self._refused: set[tuple[object, ...]] = set()
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, tokens_BN: Tensor, position_BN: Tensor, bias: Tensor, *, watch: Sequence[int] = ()) -> Output:
        key, values = (tokens_BN.shape, bias.shape, tuple(watch)), (tokens_BN, position_BN, bias)
        if key not in self._recorded and not self._keep(key, values):
            return run(self.model, *values, watch=watch)
        self._recorded.move_to_end(key)
        return self._recorded[key](*values)

    def _keep(self, key: tuple[Any, ...], values: tuple[Tensor, ...]) -> bool:
        """Record a shape at its second pass; where that fails, say so and let it be."""
        if key not in self._seen:
            # The first pass is also the warm-up that capturing asks for: handles, autotuning, compilation.
            self._seen.add(key)
            return False
        if key in self._refused:
            return False
        try:
            self._recorded[key] = self._record(values, key[-1])
        except RuntimeError as error:
            # A driver without graphs, or too little memory: what this pool holds belongs to a broken capture.
            self._refused.add(key)
            self._pool = torch.cuda.graph_pool_handle()
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            say_once(f"passes over {tuple(values[0].shape)} slots run one by one, not as a recorded graph: {reason}")
            return False
        if len(self._recorded) > self.limit:
            self._recorded.popitem(last=False)
        return True

    def _record(self, values: tuple[Tensor, ...], watch: Sequence[int]) -> Recording[Output]:
        inputs = tuple(value.clone(memory_format=torch.contiguous_format) for value in values)
        work = partial(run, self.model, *inputs, watch=watch)
        return record(work, values[0].device, buffers=inputs, pool=self._pool)


_HALVES = ("project", "finish")


def compile_layers(model: Transformer) -> None:
    """Fuse the small operations of every layer; one compilation serves all layers and shapes."""
    # Fused kernels would keep intermediate results in float32; rounding them as the plain operations do keeps the
    # numbers as close to the plain path's as reductions in another order allow.
    options: dict[str, Any] = {"emulate_precision_casts": True}
    compiled: dict[str, Callable[..., Any]] = {
        name: torch.compile(getattr(Layer, name), dynamic=True, options=options) for name in _HALVES
    }
    for layer in model.layers:
        for name, function in compiled.items():
            setattr(layer, name, function.__get__(layer))


def uncompile_layers(model: Transformer) -> None:
    """The layers as they are written."""
    for layer in model.layers:
        for name in _HALVES:
            layer.__dict__.pop(name, None)
