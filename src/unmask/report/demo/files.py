"""What the demonstration leaves for people: a page, and every row of the comparison as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from unmask.lab.demo import DemoRow
from unmask.report import files
from unmask.report.demo.page import DemoResults, page


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
    values = [[getattr(row, name) for name in names] for row in rows]
    # Objects: a column of counts with a missing one would become floats.
    return pd.DataFrame(values, columns=names, dtype=object).to_csv(index=False, lineterminator="\n")
