"""Finished runs of different rows as one: what was decoded in parts reads as if it had been decoded together."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, require
from unmask.core.rows import concat, map_tensors, select, tensors
from unmask.core.trajectory import Step, Trajectory


def join_runs(parts: Sequence[Trajectory], rows: Sequence[Sequence[int]]) -> Trajectory:
    """One run of all rows; `rows` says for each part where its rows belong, every place once.

    Canvases are padded to the longest. Steps of the same number are one step; where a method kept something in one part
    and not in another they stay two, each with its own rows. Configurations are the caller's to merge.
    """
    _check_rows(parts, rows)
    place = [torch.tensor(own, dtype=torch.long) for own in rows]
    wide = max(part.state.tokens_BL.shape[1] for part in parts)
    ends = [replace(part, state=part.state.pad_to(wide), steps=(), prediction=None, config=None) for part in parts]
    kinds = {_kind(end) for end in ends}
    require(len(kinds) == 1, "runs", len(kinds), "runs of one model with one proposal", "merge those of one call")
    # Each names its own rows from 0: from here on they have the places that they get.
    whole = concat([replace(end, rows_B=own) for end, own in zip(ends, place, strict=True)])
    numbered = [[_renamed(_widened(s, wide), own) for s in part.steps] for part, own in zip(parts, place, strict=True)]
    longest = max(len(steps) for steps in numbered)
    steps = [step for at in range(longest) for step in _joined([own[at] for own in numbered if at < len(own)])]
    return replace(whole.select(whole.rows_B.argsort()), steps=tuple(steps))


def _check_rows(parts: Sequence[Trajectory], rows: Sequence[Sequence[int]]) -> None:
    fits = bool(parts) and [part.state.batch for part in parts] == [len(own) for own in rows]
    found = sorted(place for own in rows for place in own)
    if not fits or found != list(range(len(found))):
        raise ConfigError(
            f"rows are {[list(own) for own in rows]!s:.80}; allowed: for each run the place of every row, from 0, none "
            "twice; say where the rows belong"
        )


def _renamed(step: Step, place_B: Tensor) -> Step:
    return replace(step, rows_B=place_B[step.rows_B])


def _joined(steps: Sequence[Step]) -> list[Step]:
    """Steps of one number as few as can be, each with its rows in order."""
    alike: dict[Any, list[Step]] = {}
    for step in steps:
        alike.setdefault(_kind(step), []).append(step)
    together = [concat(of_kind) for of_kind in alike.values()]
    return [select(step, step.rows_B.argsort()) for step in together]


def _kind(value: Any) -> Any:
    """What two values must share to be one: their tensors but for the rows, and all that is no tensor."""
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape[1:])
    if isinstance(value, Mapping):
        return tuple((key, _kind(inner)) for key, inner in value.items())
    if isinstance(value, tuple):
        return tuple(map(_kind, value))
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(_kind(getattr(value, f.name)) for f in fields(value))
    return value


def _widened(step: Step, wide: int) -> Step:
    """The same rows on a canvas of `wide` positions."""
    own = step.state.tokens_BL.shape[1]
    names = iter([str(path[-1]) for path in tensors(step)])
    padded = map_tensors(step, lambda tensor: _padded(tensor, next(names), own, wide - own))
    return replace(padded, state=step.state.pad_to(wide))


def _padded(tensor: Tensor, name: str, own: int, extra: int) -> Tensor:
    """Zeros on the new positions of every axis of the canvas, by the letters of its name.

    Slots that stand behind the canvas stay behind it.
    """
    letters = name.rpartition("_")[2]
    for axis, letter in enumerate(letters if len(letters) == tensor.ndim else ""):
        if letter in "LN" and extra:
            new = tensor.new_zeros([*tensor.shape[:axis], extra, *tensor.shape[axis + 1 :]])
            behind = tensor.narrow(axis, own, tensor.shape[axis] - own)
            tensor = torch.cat((tensor.narrow(axis, 0, own), new, behind), axis)
    return tensor
