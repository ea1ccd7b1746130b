"""Whether a stored state is one that this run could have left: keys, shapes, types and ranges, before it is used."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from unmask.train.journal import Point

KEYS = frozenset({"step", "model", "optimizers", "sum", "count", "seconds", "points", "scores", "validation"})


def check_state(
    state: Any, step: int, steps: int, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """ValueError, with the reason, for what a run of `steps` steps does not leave after `step` of them."""
    _need(isinstance(state, dict), "it holds no table")
    _need(set(state) == KEYS, f"its keys are {sorted(map(str, state))}, not {sorted(KEYS)}")
    _need(_whole(state["step"]) and 0 < state["step"] < steps, f"its step is {state['step']!r}, not 1 to {steps - 1}")
    _need(state["step"] == step, f"its step is {state['step']}, its name says {step}")
    _need(_whole(state["count"]) and 0 <= state["count"] <= step, f"it counts {state['count']!r} losses")
    _need(_number(state["seconds"]) and state["seconds"] >= 0, f"it took {state['seconds']!r} seconds")
    _check_tensor("the sum of losses", state["sum"], torch.zeros(()))
    _check_record(state, step)
    parameters = dict(model.state_dict())
    _check_tensors("the model", state["model"], parameters)
    kept = state["optimizers"]
    ok = isinstance(kept, list) and len(kept) == len(optimizers)
    _need(ok, f"it has not the memory of {len(optimizers)} optimizers")
    for memory, optimizer in zip(kept, optimizers, strict=True):
        _check_memory(memory, optimizer, step)


def _check_record(state: Mapping[str, Any], step: int) -> None:
    points, names = state["points"], {part.name for part in fields(Point)}
    ok = isinstance(points, list) and all(isinstance(p, dict) and set(p) == names for p in points)
    _need(ok, "its curve has lines of another kind")
    numbers = [
        value for point in points for name, value in point.items() if not (name == "validation" and value is None)
    ]
    _need(all(map(_number, numbers)), "its curve has a value that is no number")
    counted = [0, *(point["step"] for point in points)]
    _need(counted == sorted(set(counted)) and counted[-1] <= step, "its curve's steps are out of order")
    ok = isinstance(state["validation"], dict) and all(map(_number, state["validation"].values()))
    _need(ok, "its validation losses are no numbers")
    ok = isinstance(state["scores"], list) and all(map(_is_score, state["scores"]))
    _need(ok, "its scores are not steps, tasks and numbers")


def _check_memory(memory: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """AdamW remembers two means and its steps, Muon a momentum, both in the shape of the parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    _need(isinstance(memory, dict) and set(memory) == set(range(len(parameters))), "an optimizer's memory has gaps")
    adam = isinstance(optimizer, torch.optim.AdamW)
    for n, parameter in enumerate(parameters):
        expected = dict.fromkeys(("exp_avg", "exp_avg_sq") if adam else ("momentum",), parameter)
        rest = dict(memory[n]) if isinstance(memory[n], dict) else {}
        counted = rest.pop("step", None) if adam else step
        _need(counted is not None and float(counted) == step, f"an optimizer took {counted} steps, not {step}")
        _check_tensors(f"an optimizer's memory of parameter {n}", rest, expected)
        _need(not adam or bool((rest["exp_avg_sq"] >= 0).all()), f"a mean square of parameter {n} is below 0")


def _check_tensors(what: str, tensors: Any, expected: Mapping[str, Tensor]) -> None:
    _need(isinstance(tensors, Mapping) and set(tensors) == set(expected), f"{what} has other names")
    for name, tensor in expected.items():
        _check_tensor(f"{name!r} of {what}", tensors[name], tensor)


def _check_tensor(what: str, tensor: Any, like: Tensor) -> None:
    _need(isinstance(tensor, Tensor), f"{what} is no tensor")
    _need(tensor.shape == like.shape, f"{what} has shape {list(tensor.shape)}, not {list(like.shape)}")
    _need(tensor.dtype == like.dtype, f"{what} is stored as {tensor.dtype}, not {like.dtype}")
    _need(bool(tensor.isfinite().all()), f"{what} has values that are no numbers")


def _is_score(line: Any) -> bool:
    return isinstance(line, list | tuple) and len(line) == 3 and _whole(line[0]) and _number(line[2])


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _need(ok: bool, why: str) -> None:
    if not ok:
        raise ValueError(why)
