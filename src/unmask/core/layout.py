"""All tensors of a value in one piece of memory: one copy keeps them all, and they stay where they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar

import torch
from torch import Tensor

from unmask.core.graphs import copy_in
from unmask.core.rows import Path, map_tensors, tensors

T = TypeVar("T")
_ROUND = 16
"""Bytes that every tensor's place is a multiple of."""


@dataclass(frozen=True)
class Layout(Generic[T]):
    """Where the tensors of values of one form lie."""

    form: T
    """A value of that form whose tensors hold nothing."""
    paths: tuple[Path, ...]
    starts: tuple[int, ...]
    size: int
    """Bytes of a piece of memory."""

    @classmethod
    def of(cls, value: T) -> "Layout[T]":
        parts = tensors(value)
        starts, size = [], 0
        for part in parts.values():
            starts.append(size)
            size += -(-part.numel() * part.element_size() // _ROUND) * _ROUND
        return cls(map_tensors(value, _empty), tuple(parts), tuple(starts), size)

    def fits(self, value: object) -> bool:
        """Whether a value has that form: the same tensors, of the same shapes and types."""
        return same_form(self.form, value)

    def read(self, memory: Tensor) -> T:
        """The value in a piece of memory: its tensors are parts of that."""
        return replace_tensors(self.form, self._parts(memory))

    def write(self, memory: Tensor, value: T) -> None:
        """Copy a value there."""
        copy_in(self._parts(memory), list(tensors(value).values()))

    def _parts(self, memory: Tensor) -> list[Tensor]:
        forms = tensors(self.form).values()
        return [_part(memory, start, form) for start, form in zip(self.starts, forms, strict=True)]


def same_form(one: object, other: object) -> bool:
    """Whether two values have the same tensors, of the same shapes and types."""
    ours, theirs = tensors(one), tensors(other)
    return ours.keys() == theirs.keys() and all(
        part.shape == theirs[path].shape and part.dtype == theirs[path].dtype for path, part in ours.items()
    )


def replace_tensors(form: T, tensors: Iterable[Tensor]) -> T:
    """The same value with other tensors, in the order of its leaves."""
    fresh = iter(tensors)
    return map_tensors(form, lambda _: next(fresh))


def cut_canvas(value: T, length: int) -> T:
    """A value on so many positions of its canvases: what is behind them is cut off, along the axes L and N."""
    return replace_tensors(value, [_cut(part, axes_of(path), length) for path, part in tensors(value).items()])


def axes_of(path: Path) -> str:
    """The letters that a tensor's name ends in: one for each axis, as the names of all fields and notes have them."""
    letters = str(path[-1]).rpartition("_")[2]
    return letters if letters.isupper() else ""


def _cut(part: Tensor, axes: str, length: int) -> Tensor:
    for axis, letter in enumerate(axes):
        if letter in "LN" and part.shape[axis] > length:
            part = part.narrow(axis, 0, length)
    return part


def _empty(part: Tensor) -> Tensor:
    return torch.empty(part.shape, dtype=part.dtype, device="meta")


def _part(memory: Tensor, start: int, form: Tensor) -> Tensor:
    size = prod(form.shape) * form.element_size()
    shape: Sequence[int] = form.shape
    return memory[start : start + size].view(form.dtype).view(shape)
