"""The figures of E4."""

from dataclasses import replace

from tests.helpers import made_findings
from tests.helpers.made_findings import GAINS
from unmask.lab.analysis.readings import ProtocolReading, ReadingMean
from unmask.report.figures.chart import MEAN_SHAPE
from unmask.report.figures.end_to_end import gain_figures, readings_figures
from unmask.report.tables.shared import MEAN
from unmask.stats import Estimate


def test_gains_are_the_numbers(whole):
    (figure,) = gain_figures(whole.opportunity, whole.end_to_end)
    rows = dict(figure.panels[0].rows)
    assert {task: dots[0].value for task, dots in rows.items()} == {**GAINS, MEAN: Estimate(-0.01, -0.04, 0.02)}
    # find and guess rest on enough prompts, same and mute do not.
    assert [dots[0].doubt for dots in rows.values()] == [False, False, True, True, False]
    assert rows[MEAN][0].shape == MEAN_SHAPE
    assert rows["find"][0].about == ("find: region", "n: 40 prompts, 20 won, 4 lost, 16 the same")
    assert any("the gate never opens" in line for line in rows["mute"][0].about)


def test_only_chosen_axes(dream):
    (figure,) = gain_figures(dream.opportunity, dream.end_to_end.of(extension=False))
    assert {dot.series for _, dots in figure.panels[0].rows for dot in dots} == {"region"}


def test_readings_side_by_side():
    assert not list(readings_figures(made_findings.decoded()))
    gain = Estimate(0.01, -0.02, 0.04, n=80)
    readings = [
        ReadingMean(
            ProtocolReading(anchor, changed, {"region": "region"}), "small", {"find": "region"}, 1, {},
            {("selective", "fixed"): gain}, 0.25, 1, 0,
        )
        for anchor, changed in (("ours", ""), ("ours", "mean"), ("literal", ""))
    ]  # fmt: skip
    (figure,) = readings_figures(replace(made_findings.decoded(), readings=tuple(readings)))
    rows = dict(figure.panels[0].rows)
    assert list(rows) == ["ours, as it is", "ours, but for mean", "literal, as it is"]
    assert rows["ours, but for mean"][0].value is gain
    assert "n: 80 prompts, 1 task; 1 gates may open, coverage 25.0 %" in rows["ours, as it is"][0].about
