"""What the demonstration leaves for people: a page, and every row of the comparison as CSV."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from unmask.lab.demo import DemoRow
from unmask.report import csv, files
from unmask.report.demo.page import DemoResults, page
from unmask.report.sheet import Column, Sheet, Value


@dataclass(frozen=True)
class DemoFiles:
    """Where the parts are."""

    page: Path
    rows: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.page, self.rows)


def write(results: DemoResults, out: str | Path) -> DemoFiles:
    """Write report.html and problems.csv into a folder."""
    place = files.folder(out)
    # The page last: where plotly is missing, it is the only thing that is not written.
    rows = files.write(place / "problems.csv", table_csv(results.comparison.rows).encode())
    return DemoFiles(page=files.write(place / "report.html", page(results).encode()), rows=rows)


def table_csv(rows: Sequence[DemoRow]) -> str:
    """Every row with all digits; an empty cell where there is no number."""
    names = [*(f.name for f in fields(DemoRow)), "tokens_per_forward"]
    return csv.table_csv(Sheet("problems", "", "", tuple(Column(name, None, _value(name)) for name in names), rows))


def _value(name: str) -> Callable[[DemoRow], Value]:
    def get(row: DemoRow) -> Value:
        value: Value = getattr(row, name)
        return str(value) if isinstance(value, bool) else value

    return get
