"""Tables of reports: a frame with every number, and a line of text that says which columns go to files and pages."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf, isfinite
from typing import Any, NamedTuple

import pandas as pd

from unmask.stats import Estimate

NONE = "–"
"""Stands in place of a number that does not exist."""
ENDS = ("_low", "_high", "_undefined")
"""Columns beside one with an interval: its ends, and the resamples in which the number does not exist."""


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)


def format_number(spec: str) -> Callable[[Any], str]:
    """Make a format of numbers; per cent get a space before the sign."""
    return lambda value: NONE if _is_missing(value) else spec.format(value).replace("%", " %")


FORMATS: dict[str, Callable[[Any], str]] = {
    "text": lambda value: "" if _is_missing(value) else str(value),
    "word": lambda value: NONE if _is_missing(value) or value == "" else str(value),
    "number": format_number("{:.4f}"),
    "point": format_number("{:.4f}"),
    "tenth": format_number("{:.1f}"),
    "share": format_number("{:.1%}"),
    "share_point": format_number("{:.1%}"),
    "count": lambda value: NONE if _is_missing(value) else f"{int(value):,}",
    "seconds": format_number("{:,.1f}"),
    "percent": lambda value: f"{100 * value:g} %",
    "edge": lambda value: {-inf: "–∞", inf: "∞"}.get(value) or f"{value:.4g}",
    "flag": lambda value: "" if _is_missing(value) else "yes" if value else "no",
    "screen": lambda value: "passes" if value else "fails",
}
"""How a value looks to people. `point` and `share_point` leave out the interval, which files have."""
TEXTS, COUNTS, FLAGS = ("text", "word"), ("count",), ("flag", "screen")


class Column(NamedTuple):
    """One column: its name in files, where its values are, its head for people, and how they look."""

    key: str
    """Empty where only people see it."""
    source: str
    head: str | None
    """None where only files have it."""
    format: str
    interval: bool

    @property
    def align_left(self) -> bool:
        return self.format in TEXTS


@cache
def parse_columns(text: str) -> tuple[Column, ...]:
    """Read columns from `key<source=head:format±`, separated by ` | `.

    Without `key` only people see a column; without `=head` only files have it. `source` is the column of the frame and
    by default the key. The format is by default text. `±` stands for an interval.
    """
    columns = []
    for part in re.split(r"\s+\|\s+", text.strip()):
        place, equals, shown = part.partition("=")
        head, _, form = (
            (shown if equals else place).rpartition(":") if ":" in part else (shown if equals else place, "", "")
        )
        key, _, source = (place if equals else head).strip().partition("<")
        look = form.removesuffix("±") or ("number" if form else "text")
        columns.append(Column(key, source or key, head if equals else None, look, form.endswith("±")))
    keys = [column.key for column in columns if column.key]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"there is more than one column {', '.join(twice)}; each needs its own name")
    return tuple(columns)


@dataclass(frozen=True)
class Table:
    """One table of a report, which can be written as CSV, JSON records, Markdown or LaTeX."""

    name: str
    """Name of the files, without a suffix."""
    title: str
    note: str
    columns: str = field(repr=False)
    """Definition of the columns, in the syntax of `parse_columns`."""
    frame: pd.DataFrame = field(repr=False)
    empty: str = "None."
    """What people read where there are no rows."""
    folded: bool = False
    """Whether the page shows the table only after a click."""
    files_only: bool = False
    """Whether the table is left out of pages because it is too long."""

    @property
    def visible_columns(self) -> list[Column]:
        """Columns that people see."""
        return [column for column in parse_columns(self.columns) if column.head is not None]

    @property
    def file_frame(self) -> pd.DataFrame:
        """Columns of the CSV file, under their names there; None is a missing value."""
        values: dict[str, list[Any]] = {}
        for column in parse_columns(self.columns):
            if column.key:
                values[column.key] = _file_values(self.frame, column.source, column.format)
                for end in ENDS if column.interval else ():
                    form = "count" if end == "_undefined" else "number"
                    # Where a number was never asked for, no resample lacks it.
                    values[column.key + end] = _file_values(self.frame, column.source + end, form)
        return pd.DataFrame(values, dtype=object)

    @property
    def cells(self) -> list[list[str]]:
        """Formatted cells that people see, row by row."""
        return [
            list(row)
            for row in zip(*(_format_cells(self.frame, column) for column in self.visible_columns), strict=True)
        ]

    def to_csv(self) -> str:
        """Return every value with all digits; an empty cell is a missing value."""
        flags = {True: "true", False: "false"}
        columns = {
            name: [flags[x] if isinstance(x, bool) else x for x in values] for name, values in self.file_frame.items()
        }
        # Objects: a column of counts with a missing one would become floats, and 12 be written as 12.0.
        return pd.DataFrame(columns, dtype=object).to_csv(index=False, lineterminator="\n")

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows for JSON: an estimate is a mapping, and neither NaN nor infinity is left."""
        columns = [column for column in parse_columns(self.columns) if column.key]
        records = []
        for row in self.file_frame.to_dict("records"):
            record: dict[str, Any] = {}
            for column in columns:
                value = to_plain(row[column.key])
                if column.interval and row[f"{column.key}_undefined"] is not None:
                    ends = {end[1:]: to_plain(row[column.key + end]) for end in ENDS}
                    value = {"value": value, **ends}
                record[column.key] = value
            records.append(record)
        return records

    def to_markdown(self) -> str:
        """Return the table as Markdown; a table without rows has its heads alone."""
        heads = [column.head or "" for column in self.visible_columns]
        return markdown_grid(heads, [column.align_left for column in self.visible_columns], self.cells)

    def to_latex(self) -> str:
        """Return the table as a LaTeX `tabular` with rules of booktabs; title and note are comments above it."""
        sides = "".join("l" if column.align_left else "r" for column in self.visible_columns)
        rows = [_latex_row(cells) for cells in self.cells]
        if not rows:
            rows = [rf"\multicolumn{{{len(self.visible_columns)}}}{{l}}{{{escape_latex(self.empty)}}} \\"]
        comments = [f"% {line}" for line in (*self.title.splitlines(), *self.note.splitlines())]
        head = [
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            _latex_row([c.head or "" for c in self.visible_columns]),
            r"\midrule",
        ]
        return "\n".join([*comments, *head, *rows, r"\bottomrule", r"\end{tabular}", ""])


def _file_values(frame: pd.DataFrame, source: str, form: str) -> list[Any]:
    """Convert a column to plain Python values, so that files have 12 and not 12.0, true and not True."""
    convert: Callable[[Any], Any] = (
        int if form in COUNTS else bool if form in FLAGS else str if form in TEXTS else float
    )
    values = frame[source].tolist() if source in frame else [None] * len(frame)
    return [None if _is_missing(value) else convert(value) for value in values]


def _format_cells(frame: pd.DataFrame, column: Column) -> list[str]:
    values = _file_values(frame, column.source, column.format)
    show = FORMATS[column.format]
    if not column.interval or column.format.endswith("point"):
        return [show(value) for value in values]
    ends = (_file_values(frame, column.source + end, "number") for end in ENDS[:2])
    return [
        f"{show(value)} [{show(low)}, {show(high)}]" if low is not None and isfinite(low) else show(value)
        for value, low, high in zip(values, *ends, strict=True)
    ]


def markdown_grid(heads: Sequence[str], left: Sequence[bool], rows: Sequence[Sequence[str]]) -> str:
    """Return heads and cells as a Markdown table; `left` says which columns are aligned left."""
    sides = ["---" if is_left else "---:" for is_left in left]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in (heads, sides, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def count_noun(items: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: 1 answer, 2 answers; 1 batch, 2 batches."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{items} {noun}{'' if items == 1 else plural}"


def to_plain(value: Any) -> Any:
    """Convert a value to plain JSON types: NaN and infinity become None, an estimate becomes a mapping."""
    if isinstance(value, Estimate):
        return {
            **{end: to_plain(getattr(value, end)) for end in ("value", "low", "high")},
            "undefined": value.undefined,
        }
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def to_json(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# LaTeX

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
}
_SIGNS = {
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "⇄": r"$\rightleftharpoons$",
    "∞": r"$\infty$",
    "Δ": r"$\Delta$",
    "τ": r"$\tau$",
}
"""Characters that fonts of LaTeX do not have under their own names."""
_ESCAPES = str.maketrans(_SPECIAL | _SIGNS)
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX; a hyphen before a number becomes a minus."""
    return _MINUS.sub("$-$", " ".join(text.split()).translate(_ESCAPES))


def _latex_row(cells: list[str]) -> str:
    line = " & ".join(map(escape_latex, cells))
    # After the end of the row before, a bracket would be its space and a star its kind.
    return f"{'{}' if line.startswith(('[', '*')) else ''}{line} \\\\"
