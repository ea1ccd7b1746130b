"""Figures for a paper."""

import re
from xml.etree import ElementTree

import pytest

from tests.helpers import made_reports
from unmask.report.figures.chart import HeatMap, ReportFigure
from unmask.report.figures.printed import IMAGES, printed
from unmask.stats import Estimate

STARTS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG"}


def heat():
    values = [[Estimate(0.5, 0.25, 0.75), None]]
    return HeatMap("", ("t $x$",), ("a", "b"), values, [[("t, a",), ()]])


@pytest.mark.parametrize("image", IMAGES)
def test_every_kind_of_file_is_the_same_each_time(image):
    figure = ReportFigure("x", "X", (made_reports.lines(), heat()))
    made = printed(figure, image)
    assert made.startswith(STARTS[image])
    assert made == printed(figure, image)


def test_what_is_drawn_is_as_wide_as_the_paper():
    text = printed(ReportFigure("x", "X", (made_reports.whiskers(),)), "svg").decode()
    root = ElementTree.fromstring(text)
    assert root.get("width") == "396pt"  # 5.5 inches
    assert "#0072b2" in text.lower()  # --score on white
    comments = re.findall(r"<!-- (.*?) -->", text)
    assert {"apple &lt;b&gt;", "lemon %{x}", "Δ_taste"} <= {
        c.replace("<", "&lt;").replace(">", "&gt;") for c in comments
    }


@pytest.mark.slow
def test_every_figure_of_a_report(whole_report):
    kinds = {type(figure.panels[0]): figure for figure in whole_report.figures}
    assert len(kinds) == 3
    for figure in kinds.values():
        assert printed(figure).startswith(b"%PDF-")
