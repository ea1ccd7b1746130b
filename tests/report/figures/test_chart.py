"""Figures as values."""

from unmask.axes import AXES, POLICY, STUDY_AXES
from unmask.report.figures import chart
from unmask.report.figures.chart import INK, MEAN_SHAPE, colour_of, shape_of


def test_every_axis_has_a_shape_and_a_colour_of_its_own():
    for of in (shape_of, colour_of):
        assert len({of(axis) for axis in (*STUDY_AXES, "mean")}) == len(STUDY_AXES) + 1
    assert [colour_of(axis) for axis in AXES] == [f"--{axis}" for axis in AXES]
    assert colour_of(POLICY) == "--methods"
    assert (shape_of("mean"), colour_of("mean")) == (MEAN_SHAPE, INK)


def test_shapes_follow_the_place_in_the_list(monkeypatch):
    """A new axis needs no new line here; where shapes run out they begin anew."""
    before = [shape_of(axis) for axis in STUDY_AXES]
    monkeypatch.setattr(chart, "STUDY_AXES", tuple("abcdef"))
    assert [shape_of(axis) for axis in "abcdef"] == [*before, before[0]]
