"""One figure of the strongest axis for all models and tasks."""

from dataclasses import replace

import pytest

from unmask.report.figures.chart import MODELS
from unmask.report.figures.strongest import strongest, strongest_figures


@pytest.fixture
def two(known):
    """The same numbers of a second model, whose region axis has nothing to gain."""
    opportunity = known.opportunity
    other = [replace(c, model="other") for c in opportunity.cells if (c.task, c.axis) != ("fill", "region")]
    study = opportunity.manifest["study"]
    models = [*study["models"], study["models"][0] | {"name": "other"}]
    manifest = opportunity.manifest | {"study": study | {"models": models}}
    return replace(opportunity, cells=(*opportunity.cells, *other), manifest=manifest)


def test_is_the_axis_with_the_largest_gap(two):
    """See `TRUTH` of the made study; of equal ones the first."""
    chosen = {key: (cell.axis, cell.overall["delta"].value) for key, cell in strongest(two).items()}
    assert chosen == {
        ("small", "fill"): ("region", pytest.approx(0.7)),
        ("small", "sort"): ("score", 0.0),
        ("other", "fill"): ("score", pytest.approx(0.125)),
        ("other", "sort"): ("score", 0.0),
    }


def test_the_revision_extension_is_not_chosen_from(dream):
    cells = strongest(dream.opportunity).values()
    assert "commitment" in {cell.axis for cell in dream.opportunity.cells}
    assert "commitment" not in {cell.axis for cell in cells}


def test_shape_is_the_axis_and_colour_the_model(two):
    (figure,) = strongest_figures(two)
    (chart,) = figure.panels
    assert [name for name, _ in chart.rows] == ["fill", "sort"]
    dots = [dot for _, row in chart.rows for dot in row]
    assert [dot.series for dot in dots] == ["small", "other"] * 2
    assert [dot.colour for dot in dots] == list(MODELS[:2]) * 2
    assert [dot.shape for dot in dots] == ["square", "circle", "circle", "circle"]
    assert [dot.value.value for dot in dots] == pytest.approx([0.7, 0.125, 0.0, 0.0])
    assert chart.shapes == {"score": "circle", "region": "square"}
    assert dots[0].about[:2] == ("small, fill: region", "n: 20 prompts, 80 states")


def test_one_pair_alone_has_no_figure(known):
    alone = replace(known.opportunity, cells=tuple(c for c in known.opportunity.cells if c.task == "fill"))
    assert not list(strongest_figures(alone))


def test_one_axis_alone_has_no_figure(diagnosed):
    assert not list(strongest_figures(diagnosed.opportunity))


def test_it_comes_first_in_the_report(known_report):
    assert known_report.sections[0].part == "E1"
    assert known_report.sections[0].figures[0].name == "e1-all"
