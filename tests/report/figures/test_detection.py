"""The figures of diagnosed settings."""

from xml.etree import ElementTree

import numpy as np
import pytest

from tests.helpers.made_findings import SVG
from unmask.report.figures.detection import setting_figure


def setting(diagnosed, task):
    (cell,) = [c for c in diagnosed.detection.cells if c.task == task]
    return cell


def test_bins_and_tau(diagnosed):
    one = setting(diagnosed, "find")
    root = ElementTree.fromstring(setting_figure(one, "x"))
    assert "AUROC" in root.find(f"{SVG}desc").text
    ticks = {
        t.text: float(t.get("y"))
        for t in root.iter(f"{SVG}text")
        if t.get("text-anchor") == "end" and float(t.get("x")) < 100
    }
    unit = (ticks["0.4"] - ticks["0"]) / 0.4
    titled = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]
    predicted = [g for g in titled if g.find(f"{SVG}title").text.startswith("predicted")]
    middles = [
        np.mean([float(p.split(",")[1]) for p in g.find(f"{SVG}polygon").get("points").split()]) for g in predicted
    ]
    wanted = [ticks["0"] + unit * g for g in one.raw.calibration.detector.g_B]
    assert middles == pytest.approx(wanted, abs=0.2)
    (line,) = [e for e in root.iter(f"{SVG}line") if e.get("class") == "tau"]
    assert float(line.get("y1")) == pytest.approx(ticks["0"] + unit * one.raw.calibration.tau.value, abs=0.1)


def test_lift_by_coverage(diagnosed):
    one = setting(diagnosed, "find")
    root = ElementTree.fromstring(setting_figure(one, "x"))
    (thick,) = [e for e in root.iter(f"{SVG}polyline") if "thick" in e.get("class")]
    points = [tuple(map(float, p.split(","))) for p in thick.get("points").split()]
    curve = one.raw.utility.detection.curve
    (left, bottom), (right, top) = points[0], points[-1]
    assert [(x - left) / (right - left) for x, _ in points[1:]] == pytest.approx(list(curve.coverage_C), abs=0.002)
    heights = [(bottom - y) / (bottom - top) * curve.lift_C[-1] for _, y in points[1:]]
    assert heights == pytest.approx(list(curve.lift_C), abs=0.001)
    assert [e.get("class") for e in root.iter(f"{SVG}polyline")] == ["even", "curve thin", "curve thick"]


def test_without_any_signal(diagnosed):
    text = setting_figure(setting(diagnosed, "mute"), "x")
    assert "no validation state has a signal" in text
    assert "the gate never opens" in text
    assert "nan" not in text
