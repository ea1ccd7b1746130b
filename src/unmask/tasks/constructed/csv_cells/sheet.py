"""A table with one cell to hide, and how most kinds of table are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unmask.tasks.draw import Draw
from unmask.tasks.words import (
    ANIMALS,
    COLOURS,
    EVENTS,
    FIRST,
    FOODS,
    GOODS,
    JOBS,
    MATERIALS,
    PLANTS,
    SITES,
    SURNAMES,
    TEAMS,
    THINGS,
    code,
    distinct,
    invented,
    place_name,
)


@dataclass(frozen=True)
class CsvSheet:
    """A full table, which cell to hide, and why it can be found."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    hole: tuple[int, int]
    rule: str
    plain: bool = False
    """Whether the rows show the rule so well that it may be left unsaid."""


def row_count(draw: Draw, level: int) -> int:
    """How many rows a table has."""
    return draw.between(*((3, 4), (4, 5), (5, 6), (6, 7))[level - 1])


_LABELS: tuple[tuple[str, Sequence[str]], ...] = (
    ("item", THINGS),
    ("food", FOODS),
    ("name", FIRST),
    ("animal", ANIMALS),
    ("plant", PLANTS),
    ("place", SITES),
    ("colour", COLOURS),
    ("team", TEAMS),
    ("surname", SURNAMES),
    ("material", MATERIALS),
    ("event", EVENTS),
    ("job", JOBS),
    ("goods", GOODS),
)

_MADE: tuple[tuple[str, Callable[[Draw], str]], ...] = (("code", code), ("town", place_name), ("brand", invented))


def labels(draw: Draw, n: int) -> tuple[str, list[str]]:
    """A first column that tells the rows apart: its header and n different cells."""
    if draw.chance(0.2):
        header, make = draw.choice(_MADE)
        return header, distinct(draw, make, n)
    header, words = draw.choice(_LABELS)
    return header, distinct(draw, words, n)


def labelled(draw: Draw, level: int) -> tuple[int, str, list[str]]:
    """How many rows a table has, and the header and cells of its first column."""
    n = row_count(draw, level)
    return n, *labels(draw, n)


def hide_cell(
    draw: Draw, columns: Mapping[str, Sequence[object]], hide: str, rule: str, plain: bool = False, first: int = 0
) -> CsvSheet:
    """A sheet of these columns with one cell of column `hide` to find, in any row from `first` on."""
    header = tuple(columns)
    rows = tuple(tuple(str(cell) for cell in row) for row in zip(*columns.values(), strict=True))
    at = draw.between(first, len(rows) - 1)
    return CsvSheet(header, rows, (at, header.index(hide)), rule, plain)
