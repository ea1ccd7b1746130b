"""The figure of E4."""

from math import nan
from xml.etree import ElementTree

import pytest

from tests.helpers import made_findings
from tests.helpers.made_findings import GAINS, SVG
from unmask.lab.analysis.end_to_end import EndToEndFindings
from unmask.report.figures.end_to_end import end_to_end_figure
from unmask.report.html import page
from unmask.stats import Estimate


def test_dots_are_where_the_numbers_are():
    root = ElementTree.fromstring(end_to_end_figure(made_findings.decoded(), "small", "x"))
    assert "find, region: 0.0500 [0.0200, 0.0800]" in root.find(f"{SVG}desc").text
    groups = root.findall(f"{SVG}g")
    assert [g.get("class").split()[0] for g in groups] == ["axis-region"] * 4 + ["axis-mean"]
    # find and guess rest on enough prompts, same and mute do not.
    assert ["doubt" in g.get("class") for g in groups] == [False, False, True, True, False]
    ticks = {t.text: float(t.get("x")) for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "middle"}
    unit = (ticks["0"] - ticks["-0.2"]) / 0.2
    for group, gain in zip(groups, [*GAINS.values(), Estimate(-0.01, -0.04, 0.02)], strict=True):
        points = [float(p.split(",")[0]) for p in group.find(f"{SVG}polygon").get("points").split()]
        line = group.find(f"{SVG}line")
        ends = [float(line.get("x1")), (min(points) + max(points)) / 2, float(line.get("x2"))]
        assert ends == pytest.approx([ticks["0"] + unit * x for x in (gain.low, gain.value, gain.high)], abs=0.2)


def test_a_number_that_does_not_exist_has_no_dot():
    lost = made_findings.cell("find", gain=Estimate(nan, nan, nan))
    text = end_to_end_figure(EndToEndFindings((lost,), (), (), ()), "small", "x")
    assert "nan" not in text
    assert "polygon" not in text


def test_only_chosen_axes(dream, dream_report):
    assert "axis-score" not in end_to_end_figure(made_findings.decoded(), "small", "x")
    assert "axis-commitment" not in end_to_end_figure(dream.end_to_end, "small", "x")
    assert page(dream_report).count('aria-labelledby="end-to-end-') == 1
