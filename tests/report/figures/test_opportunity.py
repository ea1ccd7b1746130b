"""The figures of E1."""

import pytest

from tests.helpers import made_findings
from unmask.report.figures.opportunity import concentration_gallery, gap_gallery, heat_gallery, stage_gallery
from unmask.report.study import study_report
from unmask.report.tables.shared import MEAN
from unmask.stats import COVERAGES


def only(gallery):
    (figure,) = gallery.figures
    return figure.panels


def test_gaps_are_the_numbers(known):
    (chart,) = only(gap_gallery(known.opportunity))
    assert [(name, len(dots)) for name, dots in chart.rows] == [("fill", 3), ("sort", 3), (MEAN, 3)]
    values = [dot.value for _, dots in chart.rows for dot in dots]
    means = [mean.overall["delta"] for mean in known.opportunity.means]
    assert values == [*(cell.overall["delta"] for cell in known.opportunity.cells), *means]
    first = chart.rows[0][1][1]
    assert (first.series, first.shape, first.colour) == ("region", "square", "--region")
    assert first.about == ("fill, region", "n: 20 prompts, 80 states", "fixed action: full")


def test_unreliable_and_partial_ones_say_so(known, broken):
    (chart,) = only(gap_gallery(known.opportunity))
    # fill: score and region have gains; sort: none; means: score and region rest on fill.
    doubt = [dot.doubt for _, dots in chart.rows for dot in dots]
    assert doubt == [False, False, True, True, True, True, False, False, True]
    assert any(line.startswith("not to be relied on: ") for line in chart.rows[0][1][2].about)
    # sort has no evaluation prompts yet, so that the mean is one of fill alone.
    rows = gap_gallery(broken.opportunity).figures[0].panels[0].rows
    assert [name for name, _ in rows] == ["fill"]


def test_a_map_has_every_task_and_axis(known):
    (chart,) = only(heat_gallery(known.opportunity))
    assert (chart.rows, chart.columns) == (("fill", "sort"), ("score", "region", "commitment"))
    cells = {(c.task, c.axis): c.overall["delta"] for c in known.opportunity.cells}
    assert [list(row) for row in chart.values] == [[cells[t, a] for a in chart.columns] for t in chart.rows]


def test_stages(known):
    gallery = stage_gallery(known.opportunity)
    assert [figure.choice for figure in gallery.figures] == [MEAN, "fill", "sort"]
    (chart,) = gallery.figures[1].panels
    assert chart.ticks == ["75–100 %", "50–75 %", "25–50 %", "0–25 %"]
    for line, cell in zip(chart.lines, (c for c in known.opportunity.cells if c.task == "fill"), strict=True):
        assert line.name == cell.axis
        stages = cell.stages
        assert [round(x) for x in line.x] == list(stages)
        assert list(line.y) == [stages[k]["delta"].value for k in stages]
        assert list(line.low) == [stages[k]["delta"].low for k in stages]


def test_lorenz_curves(known):
    panels = only(concentration_gallery(known.opportunity))
    assert [panel.title for panel in panels] == ["score", "region"]  # commitment has nothing to share out
    even, thin, *_ = panels[0].lines
    assert (even.x, even.y) == ((0.0, 1.0), (0.0, 1.0))
    assert thin.x == (0.0, *COVERAGES)
    assert list(thin.y) == pytest.approx([0, 0.2, 0.4, 0.8, 1, 1], abs=0.002)
    assert thin.about[1].startswith("top 10 % of states hold 40.0 %")


def test_no_curve_without_opportunity(tmp_path):
    findings = made_findings.hinted(tmp_path, 0)
    assert not concentration_gallery(findings.opportunity).figures
    shown = {figure.name for section in study_report(findings).sections for figure in section.figures}
    assert "e1-concentration" not in shown
    assert "e1-gap" in shown
