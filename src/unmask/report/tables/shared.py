"""What the tables of a study have in common: signs and their legend, and columns that many of them have."""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol

from unmask.lab.analysis.opportunity import Missing
from unmask.report.formats import NONE, count, share
from unmask.report.sheet import AnySheet, Column, Format, Item, Sheet, attribute
from unmask.stats import FEWEST, STAGES

UNRELIABLE, PARTIAL = "†", "‡"
LEGEND = {
    UNRELIABLE: f"fewer than {FEWEST} prompts have a state with a gain: do not rely on the interval, which is then too "
    "short as a rule. Where the number is 0, no state gained; rare gains may have been missed.",
    PARTIAL: "some prompts are not finished, of those that choose the fixed action or of those it is measured on.",
    NONE: "does not exist or is not known; never 0.",
}
FEW = f"fewer than {FEWEST} prompts with a gain"
MEAN = "mean over tasks"

STAGE_NAMES = tuple(
    f"masked {100 * (STAGES - 1 - k) // STAGES}–{100 * (STAGES - k) // STAGES} %" for k in range(STAGES)
)
"""By the masked share of the answer, beginning with the start."""


class Measured(Protocol):
    """Numbers that know whether their intervals may be relied on."""

    @property
    def unreliable(self) -> str: ...


def mark(measured: Measured, partial: str = "") -> str:
    """Signs of the legend."""
    return UNRELIABLE * bool(measured.unreliable) + PARTIAL * bool(partial)


def named(*keys: str, path: str = "") -> tuple[Column[Any], ...]:
    """Columns of names, such as model, task and axis; `path` leads to what has them."""
    return tuple(attribute(key, key, path=path + key, left=True) for key in keys)


CELL = named("model", "task", "axis")


class Diagnosed(Protocol):
    """What is said about a diagnostic of an axis."""

    @property
    def axis(self) -> str: ...

    @property
    def diagnostic(self) -> str: ...


def diagnosed(rows: Iterable[Diagnosed], *keys: str, path: str = "") -> tuple[Column[Any], ...]:
    """Columns of names with the axis last, and who diagnosed it where somebody is not called as the axis."""
    if all(row.diagnostic in ("", row.axis) for row in rows):
        return named(*keys, "axis", path=path)
    # `diagnostic` is the name of an arm.
    return (*named(*keys, "axis", path=path), attribute("by", "diagnosed by", path=f"{path}diagnostic", left=True))


def notes(measured: Callable[[Item], Measured], partial: Callable[[Item], str]) -> tuple[Column[Item], ...]:
    """How far the numbers of a row may be relied on: signs for people, reasons in files."""
    return (
        Column(None, "note", lambda item: mark(measured(item), partial(item)), left=True),
        Column("unreliable", None, lambda item: measured(item).unreliable),
        Column("partial", None, partial),
    )


def measure(key: str, head: str | None, show: Format, *, path: str, name: str = "", at: object = "") -> Column[Any]:
    """The column of an estimate; `path` leads to the measures, `name` where it is not called as the column is."""
    read = attrgetter(path)
    return Column(key, head, lambda item: read(item)[name or key, at], show, wide=True)


def positive_rate(path: str) -> Column[Any]:
    return measure("positive_rate", "positive states", share, path=path)


def counts(*keys: str, path: str = "") -> tuple[Column[Any], ...]:
    """Columns of counts whose heads are their names."""
    return tuple(attribute(key, key, count, path=path + key) for key in keys)


def missing_sheet(name: str, title: str, note: str, missing: Sequence[Missing], empty: str) -> AnySheet:
    """What has no numbers, and why."""
    return Sheet(name, title, note, (*diagnosed(missing, "model", "task"), *named("reason")), missing, empty=empty)
