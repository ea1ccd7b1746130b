"""The figures of E1."""

from xml.etree import ElementTree

import pytest

from tests.helpers import made_findings
from tests.helpers.made_findings import SVG
from unmask.report.figures.opportunity import concentration_figure, gap_figure
from unmask.report.html import page
from unmask.report.study import study_report


def ticks_of(root):
    return {t.text: float(t.get("x")) for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "middle"}


def test_gaps_are_where_the_numbers_are(known):
    root = ElementTree.fromstring(gap_figure(known.opportunity, "small", 0))
    assert root.find(f"{SVG}title").text
    assert "fill, region: 0.7000 [0.7000, 0.7000]" in root.find(f"{SVG}desc").text
    assert root.get("aria-labelledby").split() == ["gap-0-title", "gap-0-desc"]
    groups = root.findall(f"{SVG}g")
    assert len(groups) == 9  # six cells and three means
    ticks = ticks_of(root)
    unit = (ticks["0.7"] - ticks["0"]) / 0.7
    dots = [float(dot.get("cx")) for dot in root.iter(f"{SVG}circle")]
    assert dots == pytest.approx([ticks["0"] + unit * x for x in (0.125, 0.0, 0.0625)], abs=0.06)


def test_a_loss_lies_left_of_zero(tmp_path):
    root = ElementTree.fromstring(gap_figure(made_findings.noisy(tmp_path).opportunity, "small", 0))
    ticks = ticks_of(root)
    unit = (ticks["0.6"] - ticks["0"]) / 0.6
    assert float(next(root.iter(f"{SVG}circle")).get("cx")) == pytest.approx(ticks["0"] - 0.05 * unit, abs=0.1)


def test_unreliable_ones_look_different(known):
    root = ElementTree.fromstring(gap_figure(known.opportunity, "small", 0))
    doubt = ["doubt" in g.get("class") for g in root.findall(f"{SVG}g")]
    # fill: score and region have gains; sort: none; means: score and region rest on fill.
    assert doubt == [False, False, True, True, True, True, False, False, True]


def test_curves(known):
    root = ElementTree.fromstring(concentration_figure(known.opportunity, "small", 0))
    heads = [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "head"]
    assert heads == ["score", "region"]  # commitment has nothing to share out
    thin = next(line for line in root.iter(f"{SVG}polyline") if "thin" in line.get("class"))
    points = [tuple(map(float, point.split(","))) for point in thin.get("points").split()]
    (left, bottom), (right, top) = points[0], points[-1]
    shares = [((x - left) / (right - left), (bottom - y) / (bottom - top)) for x, y in points]
    flat = [value for pair in shares for value in pair]
    assert flat == pytest.approx([0, 0, 0.05, 0.2, 0.1, 0.4, 0.2, 0.8, 0.5, 1, 1, 1], abs=0.002)


def test_no_curve_without_opportunity(tmp_path):
    findings = made_findings.hinted(tmp_path, 0)
    assert concentration_figure(findings.opportunity, "small", 0) == ""
    assert "C*(c)" not in page(study_report(findings)).split("<h2>Tables</h2>")[0]
    drawn = ElementTree.fromstring(gap_figure(findings.opportunity, "small", 0))
    dots = [float(d.get("cx")) for d in drawn.iter(f"{SVG}circle")]
    assert len(set(dots)) == 1
