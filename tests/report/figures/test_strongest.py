"""One figure of the strongest axis for all models and tasks."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.helpers.made_findings import SVG
from unmask.report.figures.strongest import COLOURS, strongest, strongest_figure


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
    chosen = {key: (cell.axis, cell.overall.delta.value) for key, cell in strongest(two).items()}
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
    root = ElementTree.fromstring(strongest_figure(two))
    described = root.find(f"{SVG}desc").text
    assert "fill, small: region: 0.7000" in described
    assert "fill, other: score: 0.1250" in described
    drawn = [(g.get("class").split()[0], g.get("style")) for g in root.findall(f"{SVG}g")]
    small, other = (f"--own: {colour}" for colour in COLOURS[:2])
    assert drawn == [("axis-region", small), ("axis-score", other), ("axis-score", small), ("axis-score", other)]
    shapes = [[child.tag.removeprefix(SVG) for child in g][-1] for g in root.findall(f"{SVG}g")]
    assert shapes == ["polygon", "circle", "circle", "circle"]


def test_one_pair_alone_has_no_figure(known):
    alone = replace(known.opportunity, cells=tuple(c for c in known.opportunity.cells if c.task == "fill"))
    assert strongest_figure(alone) == ""


def test_one_axis_alone_has_no_figure(diagnosed):
    assert strongest_figure(diagnosed.opportunity) == ""


def test_it_comes_first_in_the_report(known_report):
    assert known_report.sections[0].title == "Strongest axes"
    assert "strongest-title" in known_report.sections[0].figures[0].svg
