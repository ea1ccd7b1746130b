"""The numbers of a figure as CSV: every value with all digits, whatever the figure rounds."""

import csv
import io
from collections.abc import Iterator
from math import isnan

from unmask.report.figures.chart import Chart, HeatMap, ReportFigure, Whiskers

_HEADS = ("panel", "series", "at", "value", "low", "high")
_Row = tuple[str, str, str | float, float, float, float]


def figure_csv(figure: ReportFigure) -> str:
    """A row for each number that is drawn."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADS)
    for chart in figure.panels:
        for row in _rows(chart):
            writer.writerow(["" if isinstance(x, float) and isnan(x) else x for x in row])
    return text.getvalue()


def _rows(chart: Chart) -> Iterator[_Row]:
    if isinstance(chart, Whiskers):
        for name, dots in chart.rows:
            for dot in dots:
                yield chart.title, dot.series, name, dot.value.value, dot.value.low, dot.value.high
    elif isinstance(chart, HeatMap):
        for name, values in zip(chart.rows, chart.values, strict=True):
            for column, value in zip(chart.columns, values, strict=True):
                if value is not None:
                    yield chart.title, column, name, value.value, value.low, value.high
    else:
        for line in chart.lines:
            ends = zip(line.low, line.high, strict=True) if line.low else ((float("nan"),) * 2 for _ in line.x)
            for x, y, (low, high) in zip(line.x, line.y, ends, strict=True):
                # Points beside a named place are moved apart only to be seen.
                at = chart.ticks[round(x)] if chart.ticks else x
                yield chart.title, line.name, at, y, low, high
