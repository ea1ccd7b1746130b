"""Figures of a study: what they show, in every kind of file."""

import subprocess
import sys

import pytest

from unmask.report.figures import study_figures


@pytest.fixture(scope="module")
def figures(whole):
    return {figure.name: figure for group in study_figures(whole).values() for figure in group}


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
    drawn = figures["e1-gap-0"].to_svg()
    assert all(name in drawn for name in ("unique-list-commit", "mean over tasks", "score", "cardinality"))
    assert "mine: region" in figures["e3-lift-0"].to_svg()
    assert ": commitment" not in figures["e3-lift-1"].to_svg().partition("</style>")[2]
    assert ": commitment" in figures["e3-lift-revision-0"].to_svg().partition("</style>")[2]


def test_a_study_without_diagnostics_has_fewer(known):
    groups = study_figures(known)
    assert [len(groups[name]) for name in ("diagnostics", "revision", "arms", "readings")] == [0, 0, 0, 0]
    assert [figure.name for figure in groups["opportunity"]] == ["e1-all", "e1-gap-0", "e1-stages-0"]


@pytest.mark.parametrize(("image", "start"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_kinds_of_files(figures, tmp_path, image, start):
    path = figures["e1-all"].save(tmp_path / f"all.{image}")
    assert path.read_bytes().startswith(start)


def test_the_page_has_the_colours_of_its_theme(figures):
    drawn = figures["e1-gap-0"].to_svg()
    assert "var(--score)" in drawn
    assert "prefers-color-scheme: dark" in drawn


def test_importing_the_report_leaves_the_backend_alone():
    """A notebook draws with a backend of its own."""
    code = (
        "import matplotlib; matplotlib.use('svg'); import unmask.report.study, unmask.report.trade_off, "
        "unmask.report.demo.page; assert matplotlib.get_backend() == 'svg'"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
