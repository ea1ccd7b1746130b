"""Rows of values made of tensors: select them, join them, cut canvases, and lay a whole value out in one buffer.

A value is a tensor, a frozen dataclass, a tuple or a mapping of values; everything else in it is carried along
unchanged. Every tensor has the batch as its first axis, unless its class says otherwise (`BatchValue`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import prod
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Path = tuple[Any, ...]
"""Names of fields, keys and indices that lead into a value."""

_ALIGNMENT = 16
"""Bytes that the start of every tensor in a `Layout` is a multiple of, enough for any dtype."""


class BatchValue:
    """Base of the frozen dataclasses that hold rows: how to select and join them, and a `repr` of a few lines.

    Subclasses override `select` and `join` where going field by field would be wrong.
    """

    def __repr__(self) -> str:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        texts = (f"{name}={_short_text(part)}" for name, part in parts.items() if part is not None)
        return f"{type(self).__name__}({', '.join(texts)})"

    def select(self, rows_U: Tensor) -> Self:
        """Keep the given rows, in the given order; a row may be given more than once."""
        return replace(self, **{f.name: select(getattr(self, f.name), rows_U) for f in fields(self)})  # type: ignore[type-var, arg-type]

    def join(self, others: Sequence[Self]) -> Self:
        """Put the rows of other values of the same type behind these."""
        values = [self, *others]
        return replace(self, **{f.name: concat([getattr(v, f.name) for v in values]) for f in fields(self)})  # type: ignore[type-var, arg-type]


def select(value: T, rows_U: Tensor) -> T:
    """Keep the given rows of a value, in the given order."""
    return _rebuild([value], lambda parts: parts[0][rows_U], lambda values: values[0].select(rows_U))


def concat(values: Sequence[T]) -> T:
    """Join the rows of values that have the same fields and keys. What is no tensor is taken from the first."""
    return _rebuild(values, torch.cat, lambda values: values[0].join(values[1:]))


def map_tensors(value: T, change: Callable[[Tensor], Tensor]) -> T:
    """Apply a function to every tensor of a value, in the order of `tensors`."""
    return _rebuild([value], lambda parts: change(parts[0]))


def _rebuild(
    values: Sequence[Any],
    change: Callable[[list[Tensor]], Tensor],
    by_class: "Callable[[list[Any]], Any] | None" = None,
) -> Any:
    """Build one value from several of the same form; `by_class` builds each `BatchValue` instead of its fields."""
    first, values = values[0], list(values)
    if isinstance(first, Tensor):
        return change(values)
    if isinstance(first, Mapping):
        return {key: _rebuild([v[key] for v in values], change, by_class) for key in first}
    if isinstance(first, tuple):
        return tuple(_rebuild(column, change, by_class) for column in zip(*values, strict=True))
    if by_class is not None and isinstance(first, BatchValue):
        return by_class(values)
    if is_dataclass(first) and not isinstance(first, type):
        parts = {f.name: _rebuild([getattr(v, f.name) for v in values], change, by_class) for f in fields(first)}
        return replace(first, **parts)
    return first


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield everything in a value that is not made of further parts, with its path, in a fixed order."""
    if isinstance(value, Mapping):
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, tuple):
        parts = enumerate(value)
    elif is_dataclass(value) and not isinstance(value, type):
        parts = ((f.name, getattr(value, f.name)) for f in fields(value))
    else:
        yield path, value
        return
    for name, part in parts:
        yield from leaves(part, (*path, name))


def tensors(value: Any) -> dict[Path, Tensor]:
    """Every tensor of a value under its path, in a fixed order."""
    return {path: part for path, part in leaves(value) if isinstance(part, Tensor)}


def replace_tensors(form: T, tensors: Iterable[Tensor]) -> T:
    """Put other tensors into a value, in the order of `tensors(form)`."""
    # Both walk through the value in one order, so the n-th tensor meets its own place.
    fresh = iter(tensors)
    return map_tensors(form, lambda _: next(fresh))


def part(value: Any, path: Path) -> Any:
    """Follow a path into a value."""
    for step in path:
        value = value[step] if isinstance(value, tuple | Mapping) else getattr(value, step)
    return value


def same_form(one: object, other: object) -> bool:
    """Whether two values have the same tensors, of the same shapes and types."""
    ours, theirs = ({path: (part.shape, part.dtype) for path, part in tensors(v).items()} for v in (one, other))
    return ours == theirs


def axis_letters(path: Path) -> str:
    """The capitals that a tensor's name ends in, one per axis: "BLJ" for `score_BLJ`; empty for other names."""
    letters = str(path[-1]).rpartition("_")[2]
    return letters if letters.isupper() else ""


def cut_canvas(value: T, length: int) -> T:
    """Drop the positions of a value from `length` on, along the axes L and N of its tensors."""
    cut = []
    for path, tensor in tensors(value).items():
        for axis, letter in enumerate(axis_letters(path)):
            if letter in "LN" and tensor.shape[axis] > length:
                tensor = tensor.narrow(axis, 0, length)
        cut.append(tensor)
    return replace_tensors(value, cut)


def pad_canvas(value: T, length: int, wide: int) -> T:
    """Put zeros behind a canvas of `length` positions until it has `wide`, along the axes L and N.

    Slots that stand behind the canvas stay behind it.
    """
    padded = []
    for path, tensor in tensors(value).items():
        axes = axis_letters(path)
        for axis, letter in enumerate(axes if len(axes) == tensor.ndim else ""):
            # A slot of N may lie behind the canvas (shadows, probes): zeros go between the two.
            if letter in "LN" and wide > length:
                canvas, behind = tensor.tensor_split([length], axis)
                zeros = tensor.new_zeros([*tensor.shape[:axis], wide - length, *tensor.shape[axis + 1 :]])
                tensor = torch.cat((canvas, zeros, behind), axis)
        padded.append(tensor)
    return replace_tensors(value, padded)


@dataclass(frozen=True)
class Layout(Generic[T]):
    """Where the tensors of values of one form lie in a buffer of bytes.

    One copy of the buffer then keeps them all, and they stay at the same addresses, as CUDA graphs need them to.
    """

    form: T
    """A value of that form, with tensors on the meta device."""
    starts: tuple[int, ...]
    size: int
    """Bytes of the buffer."""

    @classmethod
    def of(cls, value: T) -> "Layout[T]":
        starts, size = [], 0
        for tensor in tensors(value).values():
            starts.append(size)
            # Rounded up, since a view of another type must begin at a multiple of its own size.
            size += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        form = map_tensors(value, lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))
        return cls(form, tuple(starts), size)

    def fits(self, value: object) -> bool:
        """Whether a value has that form: the same tensors, of the same shapes and types."""
        return same_form(self.form, value)

    def read(self, buffer: Tensor) -> T:
        """The value in a buffer. Its tensors are views of it."""
        return replace_tensors(self.form, self._views(buffer))

    def write(self, buffer: Tensor, value: T) -> None:
        """Copy a value into a buffer."""
        copy_in(self._views(buffer), list(tensors(value).values()))

    def _views(self, buffer: Tensor) -> list[Tensor]:
        views = []
        for start, form in zip(self.starts, tensors(self.form).values(), strict=True):
            size = prod(form.shape) * form.element_size()
            views.append(buffer[start : start + size].view(form.dtype).view(form.shape))
        return views


def copy_in(buffers: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy each value into its buffer, with as few kernels as possible.

    One kernel copies all pairs of one dtype whose strides agree; every other pair takes a kernel of its own.
    """
    groups: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
    for number, (buffer, value) in enumerate(zip(buffers, values, strict=True)):
        together = buffer.stride() == value.stride()
        targets, sources = groups.setdefault(buffer.dtype if together else number, ([], []))
        targets.append(buffer)
        sources.append(value)
    for targets, sources in groups.values():
        torch._foreach_copy_(targets, sources)


def _short_text(value: Any) -> str:
    """A part of a `repr`: tensors by type and shape, short ones by their numbers, further values by their type."""
    if isinstance(value, Tensor):
        short = value.ndim == 1 and len(value) <= 8
        return repr(value.tolist()) if short else f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return f"<{len(value)} of {type(value[0]).__name__}>"
    return f"<{type(value).__name__}>" if is_dataclass(value) else f"{value!r:.80}"
