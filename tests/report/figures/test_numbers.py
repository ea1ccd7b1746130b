"""The numbers of a figure as CSV."""

import csv

from tests.helpers import made_reports
from unmask.report.figures.chart import ChartLine, HeatMap, Lines, ReportFigure
from unmask.report.figures.numbers import figure_csv
from unmask.stats import Estimate


def rows(*panels):
    return list(csv.DictReader(figure_csv(ReportFigure("x", "X", panels)).splitlines()))


def test_dots():
    assert rows(made_reports.whiskers()) == [
        {"panel": "", "series": "sweet", "at": "apple <b>", "value": "0.5", "low": "0.25", "high": "0.75"},
        {"panel": "", "series": "sour", "at": "lemon %{x}", "value": "-0.125", "low": "-0.5", "high": ""},
    ]


def test_curves_by_place_or_by_name():
    first, second = rows(made_reports.lines())
    assert (first["panel"], second["at"], second["high"]) == ("Taste <i>", "1.0", "0.75")
    named = Lines("", "", "", [ChartLine("a", (0.08, 0.92), (1.0, 2.0), "--ink")], ticks=["early", "late"])
    assert [row["at"] for row in rows(named)] == ["early", "late"]


def test_maps_have_what_is_known():
    chart = HeatMap("m", ("t",), ("a", "b"), [[Estimate(0.1, 0.0, 0.2), None]], [[("t, a",), ()]])
    assert [(row["series"], row["at"], row["value"]) for row in rows(chart)] == [("a", "t", "0.1")]
