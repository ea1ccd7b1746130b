"""Figures as plotly takes them."""

import json
from dataclasses import replace
from math import nan

from tests.helpers import made_reports
from unmask.report.figures.chart import ChartLine, HeatMap, Lines, Whiskers
from unmask.report.figures.interactive import panel
from unmask.stats import Estimate

MADE_BY = ("eat --all <now>",)


def test_dots_with_intervals():
    drawn = panel(made_reports.whiskers(), MADE_BY)
    sweet, sour = drawn["data"]
    assert (sweet["x"], sweet["error_x"]["array"], sweet["error_x"]["arrayminus"]) == ([0.5], [0.25], [0.25])
    assert sour["error_x"]["array"] == [None]  # has no upper end
    assert (sweet["marker"]["symbol"], sour["marker"]["symbol"]) == (["circle"], ["square-open"])
    assert drawn["layout"]["yaxis"]["tickvals"] == sweet["y"] + sour["y"]


def test_the_scale_holds_zero_and_all_intervals():
    low, high = panel(made_reports.whiskers(), MADE_BY)["layout"]["xaxis"]["range"]
    assert low < -0.5
    assert 0.75 < high < 0.85
    above = Whiskers([("a", [replace(made_reports.whiskers().rows[0][1][0], value=Estimate(0.5, 0.4, 0.6))])], "")
    low, high = panel(above, MADE_BY)["layout"]["xaxis"]["range"]
    assert low < 0 < 0.6 < high


def test_shapes_are_explained_in_the_legend():
    *_, key = panel(replace(made_reports.whiskers(), shapes={"sweet <axis>": "diamond"}), MADE_BY)["data"]
    assert (key["name"], key["marker"]["symbol"], key["x"]) == ("sweet &lt;axis&gt;", "diamond", [None])


def test_pointing_shows_n_interval_and_command():
    sweet, _ = panel(made_reports.whiskers(), MADE_BY)["data"]
    hover = "apple &lt;b&gt;<br>0.5000 [0.2500, 0.7500]<br>n: 3 mouths<br>eat --all &lt;now&gt;"
    assert sweet["hovertext"] == [hover]


def test_text_is_no_markup_and_no_template():
    odd = "%{x} <b>&"
    chart = Lines(odd, odd, odd, [ChartLine(odd, (0.0,), (1.0,), "--ink", about=(odd,))], levels={odd: 1.0}, remark=odd)
    drawn = panel(chart, (odd,))
    texts = json.dumps([drawn["data"], drawn["layout"]])
    assert "<b>" not in texts
    assert odd not in texts
    assert texts.count("%{x") == 1  # its own place for a value


def test_bands_and_curves():
    band, curve = panel(made_reports.lines(), MADE_BY)["data"]
    assert band["x"] == [0.0, 1.0, 1.0, 0.0]
    assert band["y"] == [0.0, 0.75, 0.25, 0.0]
    assert band["fillcolor"] == "--score/14"
    assert curve["y"] == [0.0, 0.5]
    assert "n: 3 mouths" in curve["hovertemplate"]
    assert "eat --all &lt;now&gt;" in curve["hovertemplate"]


def test_a_curve_with_marks_has_whiskers():
    line = ChartLine("a", (0.0, 1.0), (0.5, nan), "--ink", (0.25, nan), (1.0, nan), shape="circle", about=("a", "n: 2"))
    (drawn,) = panel(Lines("", "", "", [line], ticks=["x", "y"]), MADE_BY)["data"]
    assert drawn["error_y"]["array"] == [0.5, None]
    assert drawn["hovertext"][0] == "a<br>0.5000 [0.2500, 1.0000]<br>n: 2<br>eat --all &lt;now&gt;"


def test_a_map():
    chart = HeatMap("", ("t",), ("a", "b"), [[Estimate(0.5, 0.25, 0.75), None]], [[("t, a", "n: 3"), ()]])
    (drawn,) = panel(chart, MADE_BY)["data"]
    assert drawn["z"] == [[0.5, None]]
    assert drawn["hovertext"] == [["t, a<br>0.5000 [0.2500, 0.7500]<br>n: 3<br>eat --all &lt;now&gt;", ""]]
    assert (drawn["zmin"], drawn["zmax"]) == (-0.5, 0.5)


def test_every_figure_is_plain_json(whole_report):
    for figure in whole_report.figures:
        json.dumps([panel(chart, MADE_BY) for chart in figure.panels], allow_nan=False)
