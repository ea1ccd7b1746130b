"""The report on a comparison of policies: a page, a figure, a table in Markdown and every row as CSV."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from unmask.lab.demo import DemoComparison, DemoRow
from unmask.report import csv, files
from unmask.report.demo.figure import figure
from unmask.report.demo.page import page
from unmask.report.demo.summary import DemoSummary, summarise, summary_columns
from unmask.report.markdown import grid_markdown
from unmask.report.sheet import Column, Sheet, Value

__all__ = ["DemoFiles", "DemoSummary", "summarise", "write"]


@dataclass(frozen=True)
class DemoFiles:
    """Where the parts of a report are."""

    page: Path
    figure: Path
    table: Path
    rows: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.page, self.figure, self.table, self.rows)


def write(comparison: DemoComparison, out: str | Path) -> DemoFiles:
    """Write demo.html, demo.png, demo.md and demo.csv into a folder."""
    place = files.folder(out)
    png = figure(comparison)
    return DemoFiles(
        page=files.write(place / "demo.html", page(comparison, png).encode()),
        figure=files.write(place / "demo.png", png),
        table=files.write(place / "demo.md", markdown(comparison).encode()),
        rows=files.write(place / "demo.csv", table_csv(comparison.rows).encode()),
    )


def table_csv(rows: Sequence[DemoRow]) -> str:
    """Every row with all digits; an empty cell where there is no number."""
    names = [*(f.name for f in fields(DemoRow)), "tokens_per_forward"]
    return csv.table_csv(Sheet("demo", "", "", tuple(Column(name, None, _value(name)) for name in names), rows))


def _value(name: str) -> Callable[[DemoRow], Value]:
    def get(row: DemoRow) -> Value:
        value: Value = getattr(row, name)
        return str(value) if isinstance(value, bool) else value

    return get


def markdown(comparison: DemoComparison) -> str:
    """The summary as a table, best utility first."""
    summaries = summarise(comparison.rows)
    columns = (Column("policy", "policy", _label, left=True), *summary_columns(summaries[0].by_family))
    table = grid_markdown(Sheet("summary", "", "", columns, summaries))
    problems, seeds = len({row.problem for row in comparison.rows}), comparison.config["seeds"]
    return (
        f"# Unmasking policies on {problems} problems with known answers\n\n"
        f"{table}\n\n"
        "Utility: P(answer) / P(most probable answer), given the prompt; expected over all prompts of a problem and "
        "averaged over the problems. It is exact for policies that draw no random numbers; for the others it is the "
        f"mean of {seeds} seeds, with the standard error of that mean. A star marks policies that no other one here "
        "beats in utility without more forwards. `demo.csv` has every problem, `demo.html` the configuration.\n"
    )


def _label(summary: DemoSummary) -> str:
    name = f"*{summary.label}*" if summary.baseline else summary.label
    return f"{name}{' ★' * summary.frontier}"
