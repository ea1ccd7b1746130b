"""The figures of diagnosed settings."""

import numpy as np
import pytest

from unmask.report.figures.detection import setting_gallery
from unmask.report.tables.detection import held_out_bins
from unmask.stats import COVERAGES
from unmask.stats.measures import CURVE


def setting(diagnosed, task):
    (cell,) = [c for c in diagnosed.detection.cells if c.task == task]
    gallery = setting_gallery(diagnosed.opportunity, diagnosed.detection)
    (figure,) = [f for f in gallery.figures if f.choice == f"small: region on {task}"]
    return cell, *figure.panels


def test_bins_and_tau(diagnosed):
    cell, calibration, *_ = setting(diagnosed, "find")
    predicted, held_out = calibration.lines
    assert list(predicted.y) == pytest.approx(list(cell.raw.calibration.detector.g_B))
    assert list(held_out.y) == pytest.approx([g for _, g in held_out_bins(cell.raw)], nan_ok=True)
    assert (predicted.doubt, held_out.doubt) == (False, True)
    assert calibration.levels == {"τ": cell.raw.calibration.tau.value}
    assert any(line.startswith("AUROC ") for line in predicted.about)
    assert "n: 40 prompts, 160 states" in predicted.about


def test_lift_by_coverage_with_bands(diagnosed):
    cell, _, lifts, _ = setting(diagnosed, "find")
    measures = cell.raw.measures
    ranked = [measures["ranked_lift", c] for c in CURVE]
    drawn = {line.name: line for line in lifts.lines}
    detector = drawn["detector"]
    assert list(detector.x) == [0.0, *CURVE]
    for ours, theirs in (("y", "value"), ("low", "low"), ("high", "high")):
        assert list(getattr(detector, ours)) == [0.0, *(getattr(one, theirs) for one in ranked)]
    # Random states gain in proportion to how many they are.
    assert list(drawn["random states"].y) == [c * measures["lift", "always"].value for c in (0.0, *CURVE)]
    assert list(drawn["oracle gate"].y) == [0.0, *(measures["oracle_lift", c].value for c in CURVE)]
    random, oracle = drawn["random states: 95 %"], drawn["oracle gate: 95 %"]
    assert list(random.x) == [0.0, *COVERAGES]
    assert list(random.high) == [0.0, *(measures["random_lift", c].high for c in COVERAGES)]
    assert list(oracle.low) == [0.0, *(measures["oracle_lift", c].low for c in COVERAGES)]


def test_utility_along_the_run(diagnosed):
    cell, *_, along = setting(diagnosed, "find")
    frame = cell.raw.frame
    arms = {line.name: line for line in along.lines}
    assert list(arms) == ["fixed", "always", "selective", "oracle"]
    assert list(arms["fixed"].x) == [1.0, 2.0, 3.0, 4.0]
    assert np.mean(arms["fixed"].y) == pytest.approx(frame["fixed"].mean())
    assert np.mean(arms["oracle"].y) == pytest.approx((frame["fixed"] + frame["oracle"]).mean())


def test_without_any_signal(diagnosed):
    _, calibration, *_ = setting(diagnosed, "mute")
    assert calibration.remark == "no validation state has a signal"
    assert calibration.title == "Calibration; the gate never opens"
    assert calibration.levels == {}
