"""Recorded steps on a CPU: the operations of a step are noted once and then repeated on the same memory.

As with a CUDA graph, Python runs while recording only: a replay repeats the operations, whatever the host would decide
now. And as there, nothing may be read back or brought from the host, and no shape may depend on values: such work is
refused with a `HostRead`.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from tests.helpers.fake_cuda import FakeCapture, FakeGraph
from unmask.core import Denoiser, DenoiserWrapper, ModelInput, ModelOutput, Needs
from unmask.models import GraphCache, NotGraphable


class HostRead(RuntimeError):
    """Work that waits for the device, copies from the host, or makes shapes of values."""


_READING = {"_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero", "nonzero_numpy", "argwhere"}
_SHAPING = {"masked_select", "unique_consecutive", "unique_dim", "_unique", "_unique2", "bincount", "histc"}
_BRINGING = {"lift_fresh", "lift", "_pin_memory"}
"""Tensors made of what the host has: on a GPU each is a copy from memory that is gone when the graph is replayed."""
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
_METHODS = {"tolist", "numpy", "item", "__bool__", "__int__", "__float__", "__index__", "__array__", "cpu", "to_list"}
"""What a CPU answers without any operation."""


class HostFree(TorchFunctionMode):
    """Refuses the methods that read a tensor on the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _METHODS:
            raise HostRead(func.__name__)
        return func(*args, **(kwargs or {}))


class Tape(FakeCapture):
    """Notes operations while it is entered, and refuses those that no graph can hold."""

    def __init__(self) -> None:
        super().__init__([], FakeGraph())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        forbidden = name in _READING | _SHAPING | _BRINGING or (name == "where" and len(args) == 1)
        forbidden |= name == "repeat_interleave" and isinstance(args[-1], Tensor)
        if name in _INDEXED:
            indices = [part for part in tree_leaves(args[1]) if isinstance(part, Tensor)]
            forbidden |= any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        if forbidden:
            raise HostRead(name)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def replay(self) -> None:
        with torch.inference_mode():
            self.graph.replay()


class TapeRecorder(GraphCache):
    """Records on tapes, and counts what it does; or does all work at once, every time.

    A GPU does work at once the first time, which also prepares what cannot be recorded; without `rehearses` that has to
    be there from a plain run.
    """

    def __init__(self, replays: bool = True, rehearses: bool = True, fails: str = "", slots_multiple: int = 1) -> None:
        super().__init__(torch.device("cpu"), None, slots_multiple=slots_multiple)
        self.replays, self.rehearses, self.fails = replays, rehearses, fails
        self.refused: dict[Hashable, str] = {}
        self.count = {"at once": 0, "recorded": 0, "replayed": 0}

    def find(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Make what belongs to a key when it comes the first time."""
        if key not in self.kept and key not in self.refused:
            self.kept[key] = make()
        return self.kept.get(key)

    def refuse(self, key: Hashable, warning: str = "") -> None:
        self.refused[key] = warning
        self.kept.pop(key, None)

    def make_nested_cache(self) -> "Tapes":
        return Tapes(self)


class Tapes(GraphCache):
    """The tapes of one set of rows."""

    def __init__(self, recorder: TapeRecorder):
        super().__init__(recorder.device, None)
        self.recorder = recorder

    def run(self, key: Hashable, work: Callable[..., Any], inputs: Any = (), *, name: str = "") -> Any:
        recorder, tape = self.recorder, self.kept.get(key)
        if tape is not None:
            recorder.count["replayed"] += 1
            return tape.replay()
        if not recorder.replays or (key not in self.kept and recorder.rehearses):
            recorder.count["at once"] += 1
            self.kept[key] = None
            return work()
        if recorder.fails:
            raise NotGraphable(recorder.fails)
        recorder.count["recorded"] += 1
        self.kept[key] = tape = Tape()
        # This does the work, too; a graph would have to be replayed for that.
        with HostFree(), tape:
            return work()


class Recorded(DenoiserWrapper):
    """Any denoiser with graphed steps: as a part of a step that is not replayed, it need not be made of operations."""

    variant = None

    def __init__(self, denoiser: Denoiser, step_graphs: TapeRecorder):
        self.denoiser, self.step_graphs = denoiser, step_graphs

    def step_denoiser(self, rows: int, slots: int) -> "Packing":
        return Packing(self.denoiser)

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        return self.denoiser(inputs, needs)


class Packing(DenoiserWrapper):
    """Answers for the packed slots of a view, as a network does."""

    def __init__(self, denoiser: Denoiser):
        self.denoiser = denoiser

    def plan_pass(self, state: Any, rows_B: Tensor) -> None:
        """Nothing but its sizes decides about the shapes of a pass."""

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        packed = inputs.packed
        assert packed is not None
        output = self.denoiser(replace(inputs, packed=None), needs)
        if not len(output.logits_RV):
            none_RV = output.logits_RV.new_zeros(len(packed.index_R), self.vocabulary.size)
            return replace(output, logits_RV=none_RV, counted=packed)
        row_R = packed.row_BN.flatten()[packed.index_R].clamp(min=0)
        hidden_RH = None if output.hidden_RH is None else output.hidden_RH[row_R]
        return replace(output, logits_RV=output.logits_RV[row_R], hidden_RH=hidden_RH, counted=packed)
