"""Operations on values made of tensors: select and join rows, cut canvases, store a whole value in one buffer.

A value is a tensor, or a frozen dataclass, tuple or mapping of values. Anything else inside is passed on unchanged. The
first axis of every tensor is the batch, unless the class of the value overrides `select` and `join` (`BatchValue`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import prod
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Path = tuple[Any, ...]
"""Names of fields, keys and indices that lead to a part of a value."""

_ALIGNMENT = 16
"""Every tensor of a `Layout` starts at a multiple of so many bytes, which is enough for any dtype."""


class BatchValue:
    """Base of frozen dataclasses that hold the rows of a batch. Has a short `repr`: shapes instead of numbers.

    Subclasses override `select` and `join` if working field by field would be wrong.
    """

    def __repr__(self) -> str:
        texts = []
        for field in fields(self):  # type: ignore[arg-type]
            part = getattr(self, field.name)
            if part is None:
                continue
            if isinstance(part, Tensor):
                short = part.ndim == 1 and len(part) <= 8
                text = repr(part.tolist()) if short else f"{str(part.dtype).removeprefix('torch.')}{list(part.shape)}"
            elif isinstance(part, Mapping):
                text = "{" + ", ".join(sorted(map(str, part))) + "}"
            elif isinstance(part, tuple) and part and is_dataclass(part[0]):
                text = f"<{len(part)} of {type(part[0]).__name__}>"
            else:
                text = f"<{type(part).__name__}>" if is_dataclass(part) else f"{part!r:.80}"
            texts.append(f"{field.name}={text}")
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
    """Join the rows of values that have the same fields and keys. Parts without tensors are taken from the first."""
    return _rebuild(values, torch.cat, lambda values: values[0].join(values[1:]))


def map_tensors(value: T, change: Callable[[Tensor], Tensor]) -> T:
    """Apply a function to every tensor of a value, in the order of `tensors`."""
    return _rebuild([value], lambda parts: change(parts[0]))


def _rebuild(
    values: Sequence[Any],
    change: Callable[[list[Tensor]], Tensor],
    by_class: "Callable[[list[Any]], Any] | None" = None,
) -> Any:
    """Build one value from several of the same form, tensor by tensor; `by_class` builds the `BatchValue`s in it."""
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
    """Yield every part of a value that has no parts of its own, with its path, in a fixed order."""
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
    """Return the tensors of a value by path, in a fixed order."""
    return {path: part for path, part in leaves(value) if isinstance(part, Tensor)}


def replace_tensors(form: T, tensors: Iterable[Tensor]) -> T:
    """Return a value with other tensors, given in the order of `tensors(form)`."""
    fresh = iter(tensors)
    return map_tensors(form, lambda _: next(fresh))


def get_part(value: Any, path: Path) -> Any:
    """Return the part of a value that a path leads to."""
    for step in path:
        value = value[step] if isinstance(value, tuple | Mapping) else getattr(value, step)
    return value


def has_same_form(one: object, other: object) -> bool:
    """Whether two values have the same tensors, of the same shapes and types."""
    ours, theirs = ({path: (part.shape, part.dtype) for path, part in tensors(v).items()} for v in (one, other))
    return ours == theirs


def axis_letters(path: Path) -> str:
    """Return the axis letters at the end of a tensor's name: "BLJ" for `score_BLJ`, empty for a name without any."""
    letters = str(path[-1]).rpartition("_")[2]
    return letters if letters.isupper() else ""


def cut_canvas(value: T, length: int) -> T:
    """Cut the axes L and N of a value's tensors to `length`."""
    return _change_canvas_axes(value, lambda tensor, axis: tensor.narrow(axis, 0, min(length, tensor.shape[axis])))


def pad_canvas(value: T, length: int, wide: int) -> T:
    """Lengthen a canvas of `length` positions to `wide` with zeros, along the axes L and N of a value's tensors."""

    def pad(tensor: Tensor, axis: int) -> Tensor:
        # Slots of N may follow the canvas (shadows, probes). Zeros go between them and the canvas.
        canvas, behind = tensor.tensor_split([length], axis)
        zeros = tensor.new_zeros([*tensor.shape[:axis], wide - length, *tensor.shape[axis + 1 :]])
        return torch.cat((canvas, zeros, behind), axis)

    return _change_canvas_axes(value, pad) if wide > length else value


def _change_canvas_axes(value: T, change: Callable[[Tensor, int], Tensor]) -> T:
    """Apply a function to every axis L or N of a value's tensors."""
    changed = []
    for path, tensor in tensors(value).items():
        axes = axis_letters(path)
        for axis, letter in enumerate(axes if len(axes) == tensor.ndim else ""):
            if letter in "LN":
                tensor = change(tensor, axis)
        changed.append(tensor)
    return replace_tensors(value, changed)


@dataclass(frozen=True)
class Layout(Generic[T]):
    """Places of a value's tensors in one buffer of bytes.

    One copy of the buffer copies the whole value, and its tensors keep their addresses, which CUDA graphs need.
    """

    form: T
    """A value with tensors of the right shapes and types, on the meta device."""
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

    def read(self, buffer: Tensor) -> T:
        """Return the value in a buffer. Its tensors are views of the buffer."""
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
    """Copy each value into its buffer, with one kernel for all pairs that have equal strides and one dtype."""
    # `_foreach_copy_` is one kernel only for tensors of one dtype whose strides agree pair by pair.
    groups: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
    for number, (buffer, value) in enumerate(zip(buffers, values, strict=True)):
        together = buffer.stride() == value.stride()
        targets, sources = groups.setdefault(buffer.dtype if together else number, ([], []))
        targets.append(buffer)
        sources.append(value)
    for targets, sources in groups.values():
        torch._foreach_copy_(targets, sources)
