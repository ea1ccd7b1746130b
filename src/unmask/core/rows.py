"""Row selection for frozen batch values: every tensor in them has the batch as its first axis."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Path = tuple[Any, ...]
"""Names of fields, keys and indices that lead into a value."""


def select(value: T, rows_U: Tensor) -> T:
    """The same value with only the given rows, in the given order."""
    return _mapped(value, lambda tensor: tensor[rows_U], lambda inner: inner.select(rows_U))


class Shown:
    """A value whose `repr` fits on a few lines: tensors by type and shape, short ones by their numbers."""

    def __repr__(self) -> str:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        shown = (f"{name}={_brief(part)}" for name, part in parts.items() if part is not None)
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: Any) -> str:
    if isinstance(value, Tensor):
        if value.ndim == 1 and len(value) <= _FEW:
            return repr(value.tolist())
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return f"<{len(value)} of {type(value[0]).__name__}>"
    if is_dataclass(value):
        return f"<{type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= _WIDE else f"{text[:_WIDE]}..."


_FEW, _WIDE = 8, 80


class Selectable(Shown):
    """A value that knows better than field by field how to keep some of its rows."""

    def select(self, rows_U: Tensor) -> Any:
        raise TypeError(f"{type(self).__name__} must define select")

    def join(self, others: "Sequence[Any]") -> Any:
        """This value's rows and then those of the others, of the same type."""
        values = [self, *others]
        return replace(self, **{f.name: _concat([getattr(v, f.name) for v in values]) for f in fields(self)})  # type: ignore[type-var, arg-type]


def concat(values: list[T]) -> T:
    """One value with the rows of all, in order."""
    return _concat(values)


def _concat(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(values)
    if isinstance(first, Mapping):
        return {k: _concat([v[k] for v in values]) for k in first}
    if isinstance(first, Selectable):
        return first.join(values[1:])
    if isinstance(first, tuple):
        return tuple(_concat(list(column)) for column in zip(*values, strict=True))
    if is_dataclass(first) and not isinstance(first, type):
        return replace(first, **{f.name: _concat([getattr(v, f.name) for v in values]) for f in fields(first)})
    return first


def tensors(value: object) -> dict[Path, Tensor]:
    """Every tensor in a value under its path, in a fixed order."""
    return dict(_leaves(value, ()))


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, tuple):
        for at, inner in enumerate(value):
            yield from _leaves(inner, (*path, at))
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _leaves(getattr(value, f.name), (*path, f.name))


def part(value: Any, path: Path) -> Any:
    """What stands at a path."""
    for step in path:
        value = value[step] if type(value) in (tuple, dict) else getattr(value, step)
    return value


def map_tensors(value: T, change: Callable[[Tensor], Tensor]) -> T:
    """The same value with every tensor changed, in the order of `leaves`."""
    return _mapped(value, change)


def _mapped(value: Any, change: Callable[[Tensor], Tensor], own: "Callable[[Selectable], Any] | None" = None) -> Any:
    """`own` is for values that know better than field by field."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {k: _mapped(v, change, own) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_mapped(v, change, own) for v in value)
    if own is not None and isinstance(value, Selectable):
        return own(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _mapped(getattr(value, f.name), change, own) for f in fields(value)})
    return value
