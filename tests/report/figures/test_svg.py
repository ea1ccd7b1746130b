"""What figures are drawn with."""

import pytest

from unmask.axes import STUDY_AXES
from unmask.report.figures import svg
from unmask.report.figures.svg import AxisScale, label, marker


def test_every_axis_has_a_shape_of_its_own():
    shapes = {axis: marker(axis, 0, 0) for axis in (*STUDY_AXES, "mean")}
    assert len(set(shapes.values())) == len(STUDY_AXES) + 1
    assert shapes[STUDY_AXES[0]].startswith("<circle")


def test_shapes_follow_the_place_in_the_list(monkeypatch):
    """A new axis needs no new line here; where shapes run out they begin anew."""
    before = [marker(axis, 1, 2) for axis in STUDY_AXES]
    monkeypatch.setattr(svg, "STUDY_AXES", tuple("abcdef"))
    assert [marker(axis, 1, 2) for axis in "abcdef"] == [*before, before[0]]


def test_a_scale_holds_zero_and_ends_on_ticks():
    scale = AxisScale.spanning([-0.3, float("nan"), 0.1], 100, 200)
    assert min(scale.ticks) <= -0.3
    assert max(scale.ticks) >= 0.1
    assert 0.0 in scale.ticks
    assert (scale(scale.ticks[0]), scale(scale.ticks[-1])) == (100, pytest.approx(200))


def test_text_is_escaped():
    assert "a &lt; b" in label(0, 0, "a < b", "")
