"""A table as a value: columns, each of which knows how to read an item and how to write what it read, and the items."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeVar

from unmask.stats import Estimate

Value = str | int | float | Estimate | None
Format = Callable[[Value], str]

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


@dataclass(frozen=True)
class Column(Generic[Item_contra]):
    """Head, value and look of a column in one place, so that they cannot get out of step."""

    key: str | None
    """In files; None for a column that only people see."""
    head: str | None
    """For people; None for a column that only files have."""
    get: Callable[[Item_contra], Value]
    show: Format = str
    left: bool = False
    wide: bool = False
    """An estimate: in CSV also `key_low`, `key_high` and `key_undefined`."""


def attribute(
    key: str, head: str | None, show: Format = str, *, path: str = "", left: bool = False, wide: bool = False
) -> Column[Any]:
    """The column of an attribute; `path` where that is not called as the column is, with dots where it lies deeper."""
    return Column(key, head, attrgetter(path or key), show, left, wide)


@dataclass(frozen=True)
class Sheet(Generic[Item]):
    """One table."""

    name: str
    """Of its files."""
    title: str
    note: str
    columns: tuple[Column[Item], ...]
    items: Sequence[Item]
    """One for each row."""
    folded: bool = False
    """Long, and seldom read: the page hides it until asked."""
    aside: bool = False
    """Too long for a page: only in files of its own."""
    empty: str = ""
    """What to say where there are no rows."""
    rows: tuple[tuple[Value, ...], ...] = field(init=False)
    """The values of all columns."""
    shown: tuple[tuple[str, ...], ...] = field(init=False)
    """The cells that people see, formatted."""

    def __post_init__(self) -> None:
        keys = [column.key for column in self.columns if column.key is not None]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise ValueError(f"the table {self.name} has more than one column {', '.join(twice)}; each needs its name")
        rows = tuple(tuple(column.get(item) for column in self.columns) for item in self.items)
        shown = tuple(
            tuple(c.show(value) for c, value in zip(self.columns, row, strict=True) if c.head is not None)
            for row in rows
        )
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "shown", shown)

    @property
    def heads(self) -> tuple[Column[Item], ...]:
        """The columns that people see."""
        return tuple(column for column in self.columns if column.head is not None)


AnySheet = Sheet[Any]
