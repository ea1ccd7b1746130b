"""Readings of diagnostics as CUDA graphs: at a small batch, launching their kernels costs more than the forward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from unmask.adapt.diagnostics.base import Diagnostic, Reading
from unmask.core import Action, Path, Prediction, Trajectory, get_part, map_tensors, replace_tensors, tensors
from unmask.models import CudaGraph, GraphCache, build_graph

LARGE_READOUT = 1 << 22
"""Entries of the attention above which a reading is slow because of its arithmetic, not of its kernel launches."""
READING_GRAPHS = GraphCache(torch.device("cuda"), limit=32)
"""Recorded readings, by their diagnostics and the shapes of their inputs."""


def read_all(diagnostics: Sequence[Diagnostic], traj: Trajectory, action: Action) -> list[Reading]:
    """Read one state by several diagnostics; on a GPU they run side by side."""
    tokens_BL = traj.state.tokens_BL
    small = tokens_BL.numel() * tokens_BL.shape[1] <= LARGE_READOUT
    replayed = tokens_BL.is_cuda and small and traj.steps and all(diagnostic.cuda_graph for diagnostic in diagnostics)
    # A step that is a graph as a whole has its readings in it.
    if not replayed or torch.cuda.is_current_stream_capturing():
        return [diagnostic.read(traj, action) for diagnostic in diagnostics]
    graph = READING_GRAPHS.find(
        _build_cache_key(tuple(diagnostics), traj, action), lambda: build_reading_graph(diagnostics, traj, action)
    )
    if graph is None:
        # The first time for a shape, which is also the warm-up that recording asks for.
        return [diagnostic.read(traj, action) for diagnostic in diagnostics]
    return graph(traj, action)


@dataclass(frozen=True)
class ReadingGraph:
    """A graph of several readings, and the paths of its inputs in a trajectory and an action."""

    graph: CudaGraph[list[Reading]]
    paths: list[Path]

    def __call__(self, traj: Trajectory, action: Action) -> list[Reading]:
        inputs = [get_part((traj, action), path) for path in self.paths]
        readings = self.graph(*inputs)
        handed_on = {id(buffer): value for buffer, value in zip(self.graph.buffers, inputs, strict=True)}

        def copy_out(result: Tensor) -> Tensor:
            # The next replay overwrites the graph's memory. An input that is only handed on lies elsewhere already.
            return handed_on[id(result)] if id(result) in handed_on else result.clone()

        return [map_tensors(reading, copy_out) for reading in readings]


def build_reading_graph(diagnostics: Sequence[Diagnostic], traj: Trajectory, action: Action) -> ReadingGraph:
    """Record the readings of a state as a graph, whose inputs are only the tensors that the readings compute with."""
    steps = tuple(replace(step, prediction=_drop_large_parts(step.prediction)) for step in traj.steps)
    reduced = replace(traj, prediction=_drop_large_parts(traj.current_prediction), steps=steps)
    buffers = {path: value.clone() for path, value in tensors((reduced, action)).items()}
    touched = _TouchedTensors()

    def work() -> list[Reading]:
        # Each has values of its own: what a state keeps of its masks must not be shared between streams.
        values = (replace_tensors((reduced, action), buffers.values()) for _ in diagnostics)
        with touched:
            return _read_on_streams([partial(one.read, *given) for one, given in zip(diagnostics, values, strict=True)])

    graph = build_graph(work, traj.state.tokens_BL.device)
    # Inputs that a result only hands on must be among the buffers, too.
    touched.ids |= {id(value) for value in tensors(tuple(graph.result)).values()}
    used = {path: buffer for path, buffer in buffers.items() if id(buffer) in touched.ids}
    return ReadingGraph(replace(graph, buffers=list(used.values())), list(used))


def _read_on_streams(readers: Sequence[Callable[[], Reading]]) -> list[Reading]:
    """Run each reader on a CUDA stream of its own, between earlier and later work of the main stream."""
    main, readings = torch.cuda.current_stream(), []
    sides = [torch.cuda.Stream() for _ in readers]
    for reader, side in zip(readers, sides, strict=True):
        side.wait_stream(main)
        with torch.cuda.stream(side):
            readings.append(reader())
    for side in sides:
        main.wait_stream(side)
    return readings


def _drop_large_parts(prediction: Prediction) -> Prediction:
    """Return a prediction without the parts that no diagnostic reads, which would be copied for nothing."""
    return replace(prediction, posterior=None, hidden_BNH=None)


class _TouchedTensors(TorchFunctionMode):
    """Record the ids of all tensors that are computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[int] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ids |= {id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        return func(*args, **(kwargs or {}))


def _build_cache_key(diagnostics: tuple[Diagnostic, ...], traj: Trajectory, action: Action) -> tuple[object, ...]:
    """Return the key of a recorded graph: all that its kernels depend on, except numbers on the device."""
    state = traj.state
    return (
        diagnostics,
        state.tokens_BL.device,
        state.tokens_BL.shape,
        state.mask_id,
        action.remask_BL is None,
        action.tokens_BL is None,
        _describe_shapes(traj.current_prediction),
        *(_describe_shapes(step.prediction) for step in traj.steps),
    )


def _describe_shapes(prediction: Prediction) -> tuple[object, ...]:
    """Return the shapes of a prediction, and which of its optional parts it has."""
    optional = (prediction.drift_BN, prediction.displacement_BN, prediction.attention_BNN, prediction.visible_BN)
    known = tuple(value is not None for value in (*optional, prediction.given_BN))
    return prediction.vocab, prediction.wanted_BN.shape, prediction.clean.p_BNK.shape, known
