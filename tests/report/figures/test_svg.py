"""What figures are drawn with."""

import pytest

from unmask.axes import AXES
from unmask.report.figures import svg
from unmask.report.figures.svg import AxisScale, label, marker


def test_every_axis_has_a_shape_of_its_own():
    shapes = {axis: marker(axis, 0, 0) for axis in (*AXES, "mean")}
    assert len(set(shapes.values())) == len(AXES) + 1
    assert shapes[next(iter(AXES))].startswith("<circle")


def test_shapes_follow_the_place_in_the_list(monkeypatch):
    """A new axis needs no new line here; where shapes run out they begin anew."""
    before = [marker(axis, 1, 2) for axis in AXES]
    monkeypatch.setattr(svg, "AXES", ("a", "b", "c", "d", "e"))
    assert [marker(axis, 1, 2) for axis in "abcde"] == [*before, before[0]]


def test_a_scale_holds_zero_and_ends_on_ticks():
    scale = AxisScale.spanning([-0.3, float("nan"), 0.1], 100, 200)
    assert min(scale.ticks) <= -0.3
    assert max(scale.ticks) >= 0.1
    assert 0.0 in scale.ticks
    assert (scale(scale.ticks[0]), scale(scale.ticks[-1])) == (100, pytest.approx(200))


def test_text_is_escaped():
    assert "a &lt; b" in label(0, 0, "a < b", "")
