"""The report on a comparison of policies: a page, a figure, a table in Markdown and every row as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from unmask.lab.demo import DemoComparison, DemoRow
from unmask.report import files
from unmask.report.demo.figure import figure
from unmask.report.demo.page import page
from unmask.report.demo.summary import DemoSummary, summarise

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
    names = [f.name for f in fields(DemoRow)] + ["tokens_per_forward"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([getattr(row, name) for name in names] for row in rows)
    return text.getvalue()


def markdown(comparison: DemoComparison) -> str:
    """The summary as a table, best utility first."""
    summaries = summarise(comparison.rows)
    families = list(summaries[0].by_family)
    head = ["policy", "utility", "s.e.", "forwards", "tokens/forward", *families, "computed"]
    lines = [head, ["---", *["---:"] * (len(head) - 2), "---"]]
    lines += [_cells(summary, summary.by_family) for summary in summaries]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    problems, seeds = len({row.problem for row in comparison.rows}), comparison.config["seeds"]
    return (
        f"# Unmasking policies on {problems} problems with known answers\n\n"
        f"{table}\n\n"
        "Utility: P(answer) / P(most probable answer), given the prompt; expected over all prompts of a problem and "
        "averaged over the problems. It is exact for policies that draw no random numbers; for the others it is the "
        f"mean of {seeds} seeds, with the standard error of that mean. A star marks policies that no other one here "
        "beats in utility without more forwards. `demo.csv` has every problem, `demo.html` the configuration.\n"
    )


def _cells(summary: DemoSummary, by_family: Mapping[str, float]) -> list[str]:
    star = " ★" if summary.frontier else ""
    name = f"*{summary.label}*" if summary.baseline else summary.label
    return [
        f"{name}{star}",
        f"{summary.utility:.3f}",
        "" if summary.deterministic else f"{summary.stderr:.3f}",
        summary.show_forwards,
        summary.show_speed,
        *(f"{value:.3f}" for value in by_family.values()),
        summary.computed,
    ]
