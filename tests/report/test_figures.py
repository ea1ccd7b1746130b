"""Figures of a study: what they show, in every kind of file."""

import base64
import re

import pytest

from unmask.report.figures import study_figures


@pytest.fixture(scope="module")
def figures(whole):
    return {figure.name: figure for group in study_figures(whole).values() for figure in group}


def svg_of(figure):
    return base64.b64decode(re.findall('base64,([^"]+)', figure.to_html())[0]).decode()


def test_every_section_has_its_figures(figures):
    kinds = {name.rstrip("0123456789-") for name in figures}
    assert kinds == {
        "e1-all",
        "e1-gap",
        "e1-stages",
        "e1-concentration",
        "e3-lift",
        "e3-calibration",
        "e3-along",
        "e3-lift-revision",
        "e3-calibration-revision",
        "e3-along-revision",
        "e4-gain",
        "e4-readings-figure",
    }


def test_tasks_and_axes_are_named(figures):
    drawn = svg_of(figures["e1-gap-0"])
    assert all(name in drawn for name in ("unique-list-commit", "mean over tasks", "score", "cardinality"))
    assert "mine: region" in svg_of(figures["e3-lift-0"])
    assert ": commitment" not in svg_of(figures["e3-lift-1"]).partition("</style>")[2]
    assert ": commitment" in svg_of(figures["e3-lift-revision-0"]).partition("</style>")[2]
