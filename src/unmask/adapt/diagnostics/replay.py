"""Readings replayed as CUDA graphs: at a small batch hundreds of launches would cost more than the forward."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from unmask.adapt.diagnostics.base import Diagnostic, Reading
from unmask.core import Action, Path, Prediction, Recording, Step, Trajectory, map_tensors, part, record, tensors

T = TypeVar("T")
_LIMIT = 32
"""Recordings and shapes remembered."""
_LARGE = 1 << 22
"""Entries of the attention read-out above which a reading is bound by its arithmetic, not by launches."""


def read(diagnostic: Diagnostic, traj: Trajectory, action: Action) -> Reading:
    """`diagnostic.read(traj, action)`; on a GPU, from the second time for a shape on, by replaying a recording."""
    return read_all([diagnostic], traj, action)[0]


def read_all(diagnostics: Sequence[Diagnostic], traj: Trajectory, action: Action) -> list[Reading]:
    """Readings of one state by several diagnostics, which on a GPU run side by side."""
    tokens_BL = traj.state.tokens_BL
    small = tokens_BL.numel() * tokens_BL.shape[1] <= _LARGE
    replayed = tokens_BL.is_cuda and small and traj.steps and all(diagnostic.cuda_graph for diagnostic in diagnostics)
    # A step that is recorded as a whole records its readings with it.
    if not replayed or torch.cuda.is_current_stream_capturing():
        return [diagnostic.read(traj, action) for diagnostic in diagnostics]
    sized = tuple(diagnostics)
    key = _key(sized, traj, action)
    recorded = _RECORDED.get(key)
    if recorded is None and key in _RECORDED:
        recorded = _record(sized, traj, action)
    _RECORDED[key] = recorded
    _RECORDED.move_to_end(key)
    if len(_RECORDED) > _LIMIT:
        _RECORDED.popitem(last=False)
    if recorded is None:
        # Also the warm-up that capturing asks for.
        return [diagnostic.read(traj, action) for diagnostic in sized]
    return recorded(traj, action)


@dataclass(frozen=True)
class _RecordedReading:
    """Readings side by side in one recording, and where it finds what it reads."""

    recording: Recording[list[Reading]]
    paths: list[Path]

    def __call__(self, traj: Trajectory, action: Action) -> list[Reading]:
        values = [part((traj, action), path) for path in self.paths]
        readings = self.recording(*values)
        given = {id(buffer): value for buffer, value in zip(self.recording.buffers, values, strict=True)}

        def kept(result: Tensor) -> Tensor:
            """Out of the recording's memory: what was only handed on is there already."""
            return given[id(result)] if id(result) in given else result.clone()

        return [map_tensors(reading, kept) for reading in readings]


_RECORDED: OrderedDict[tuple[object, ...], _RecordedReading | None] = OrderedDict()
"""None for shapes that were seen once."""


def _record(diagnostics: Sequence[Diagnostic], traj: Trajectory, action: Action) -> _RecordedReading:
    light = replace(traj, prediction=_light(traj.current_prediction), steps=tuple(map(_light_step, traj.steps)))
    buffers = {path: value.clone() for path, value in tensors((light, action)).items()}
    touched = _Touched()

    def work() -> list[Reading]:
        # Each has values of its own: what a state keeps of its masks must not be shared between streams.
        values = (_made_of(buffers.values(), (light, action)) for _ in diagnostics)
        with touched:
            return _side_by_side([partial(one.read, *given) for one, given in zip(diagnostics, values, strict=True)])

    recording = record(work, traj.state.tokens_BL.device)
    # What a result only hands on must be among the values too.
    touched.ids |= {id(value) for value in tensors(tuple(recording.result)).values()}
    used = {path: buffer for path, buffer in buffers.items() if id(buffer) in touched.ids}
    return _RecordedReading(replace(recording, buffers=list(used.values())), list(used))


def _side_by_side(readers: Sequence[Callable[[], Reading]]) -> list[Reading]:
    """Each on a stream of its own, between what came before and what comes after."""
    main, readings = torch.cuda.current_stream(), []
    sides = [torch.cuda.Stream() for _ in readers]
    for reader, side in zip(readers, sides, strict=True):
        side.wait_stream(main)
        with torch.cuda.stream(side):
            readings.append(reader())
    for side in sides:
        main.wait_stream(side)
    return readings


def _made_of(tensors: Iterable[Tensor], value: T) -> T:
    """The same value with other tensors, in the order of its leaves."""
    fresh = iter(tensors)
    return map_tensors(value, lambda _: next(fresh))


def _light(prediction: Prediction) -> Prediction:
    """Without what no diagnostic may read: it would be copied for nothing."""
    return replace(prediction, posterior=None, hidden_BNH=None)


def _light_step(step: Step) -> Step:
    return replace(step, prediction=_light(step.prediction))


class _Touched(TorchFunctionMode):
    """Notes which tensors are computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[int] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ids |= {id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        return func(*args, **(kwargs or {}))


def _key(diagnostics: tuple[Diagnostic, ...], traj: Trajectory, action: Action) -> tuple[object, ...]:
    """All that readings depend on, except numbers on the device."""
    state = traj.state
    return (
        diagnostics,
        state.tokens_BL.device,
        state.tokens_BL.shape,
        state.mask_id,
        action.remask_BL is None,
        action.tokens_BL is None,
        _shape(traj.current_prediction),
        *(_shape(step.prediction) for step in traj.steps),
    )


def _shape(prediction: Prediction) -> tuple[object, ...]:
    optional = (prediction.drift_BN, prediction.displacement_BN, prediction.attention_BNN, prediction.visible_BN)
    known = tuple(value is not None for value in (*optional, prediction.given_BN))
    return prediction.vocab, prediction.wanted_BN.shape, prediction.clean.p_BNK.shape, known
