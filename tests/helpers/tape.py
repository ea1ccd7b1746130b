"""A recorder that works on a CPU: tensor operations are noted once and then repeated on the same memory.

As with a CUDA graph, Python runs while recording only; a replay repeats the operations, whatever the host would decide
now. And as there, nothing may be read back or brought from the host, and no shape may depend on values: such work is
refused with a `HostRead`.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unmask.core import Denoiser, DenoiserAround, Logits, Needs, View
from unmask.past import NotRecorded
from unmask.recorded import Perform, RecordedSteps


class HostRead(RuntimeError):
    """Work that waits for the device, copies from the host, or makes shapes of values."""


_OPERATIONS = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "equal",
    "allclose",
    "nonzero",
    "nonzero_numpy",
    "argwhere",
    "masked_select",
    "unique_consecutive",
    "unique_dim",
    "_unique",
    "_unique2",
    "bincount",
    "lift_fresh",
    "lift",
    "_pin_memory",
}
_METHODS = {"tolist", "numpy", "item", "__bool__", "__int__", "__float__", "__index__", "__array__", "__iter__", "cpu"}
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class HostFree(TorchFunctionMode):
    """Refuses the methods that a CPU answers without any operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _METHODS:
            raise HostRead(func.__name__)
        return func(*args, **(kwargs or {}))


class Tape(TorchDispatchMode):
    """Notes operations while it is entered, and refuses those that no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._check(func, args, kwargs)
        result = func(*args, **kwargs)
        given = {_place(part) for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)}
        results = [part for part in tree_leaves(result) if isinstance(part, Tensor)]
        fresh = [part for part in results if _place(part) not in given]
        if fresh or _writes(func):
            self.calls.append((func, args, kwargs, fresh))
        return result

    def replay(self) -> None:
        with torch.inference_mode():
            for func, args, kwargs, fresh in self.calls:
                given = {_place(part) for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)}
                results = [part for part in tree_leaves(func(*args, **kwargs)) if isinstance(part, Tensor)]
                again = [part for part in results if _place(part) not in given]
                for part, value in zip(fresh, again, strict=True):
                    part.copy_(value)

    def _check(self, func: Any, args: Any, kwargs: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        if name in _OPERATIONS or (name == "where" and len(args) == 1):
            raise HostRead(name)
        if name == "repeat_interleave" and len(args) > 1 and isinstance(args[1], Tensor):
            raise HostRead(name)
        if name in _INDEXED:
            for index in tree_leaves(args[1]):
                if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
                    raise HostRead(f"{name} by flags")


def _place(part: Tensor) -> int:
    return part.untyped_storage().data_ptr()


def _writes(func: Any) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


class TapeRecorder:
    """Records on a tape, and counts what it does."""

    def __init__(self, replays: bool = True, fails: str = "") -> None:
        self.replays, self.fails = replays, fails
        self.kept: dict[Hashable, RecordedSteps] = {}
        self.refused: dict[Hashable, str] = {}
        self.done = {"at once": 0, "recorded": 0, "replayed": 0}

    def within(self, denoiser: Any) -> Denoiser:
        if isinstance(denoiser, Recorded):
            return Packing(denoiser.denoiser)
        return replace(denoiser, recorder=None)

    def find(self, key: Hashable, make: Callable[[Perform], RecordedSteps]) -> RecordedSteps | None:
        if key in self.refused:
            return None
        if key not in self.kept:
            self.kept[key] = make(self._perform())
        return self.kept[key]

    def refuse(self, key: Hashable, why: str) -> None:
        self.refused[key] = why
        self.kept.pop(key, None)

    def _perform(self) -> Perform:
        tapes: dict[Hashable, Tape | None] = {}

        def perform(key: Hashable, work: Callable[[], None]) -> None:
            tape = tapes.get(key)
            if not self.replays or key not in tapes:
                tapes[key] = None
                self.done["at once"] += 1
                work()
            elif tape is None:
                if self.fails:
                    raise NotRecorded(self.fails)
                tapes[key] = Tape()
                self.done["recorded"] += 1
                # The tape's own run does the work; a graph's would not, and be replayed.
                with HostFree(), tapes[key]:
                    work()
            else:
                self.done["replayed"] += 1
                tape.replay()

        return perform


class Recorded(DenoiserAround):
    """Any denoiser, with a recorder: its passes run at once, since they need not be made of tensor operations."""

    def __init__(self, denoiser: Denoiser, recorder: TapeRecorder):
        self.denoiser, self.recorder = denoiser, recorder

    def __call__(self, view: View, needs: Needs) -> Logits:
        return self.denoiser(view, needs)


class Packing(DenoiserAround):
    """Answers for the packed slots of a view, as a network does."""

    def __init__(self, denoiser: Denoiser):
        self.denoiser = denoiser

    def __call__(self, view: View, needs: Needs) -> Logits:
        packed = view.packed
        assert packed is not None
        logits = self.denoiser(replace(view, wanted_BN=packed.wanted_BN, packed=None), needs)
        row_R = packed.row_BN.flatten()[packed.index_R]
        hidden_RH = None if logits.hidden_RH is None else logits.hidden_RH[row_R]
        return replace(
            logits, logits_RV=logits.logits_RV[row_R], wanted_BN=view.wanted_BN, hidden_RH=hidden_RH, counted=packed
        )
