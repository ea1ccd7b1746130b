"""Utility against forwards."""

import xml.etree.ElementTree as ET

from matplotlib.figure import Figure

from tests.helpers.made_demo import ROWS, rows
from unmask.report.demo import figure
from unmask.report.demo.summary import summarise


def test_none_covers_another_or_a_point():
    crowd = [row for k in range(14) for row in rows(f"policy number {k}", "llada", (0.5 + k / 500, 0.5), 4.0 + k / 50)]
    summaries = summarise([*ROWS, *crowd])
    fig = Figure((11.6, 6.2), dpi=100)
    ax = fig.subplots()
    figure._trade_off(ax, summaries)
    fig.draw_without_rendering()
    figure._place_labels(ax, summaries)
    boxes = [t.get_window_extent() for t in ax.texts if t.get_text()]
    assert len(boxes) == len(summaries)
    for at, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:at])
    frame = ax.get_window_extent()
    assert all(frame.x0 <= b.x0 and b.x1 <= frame.x1 and frame.y0 <= b.y0 and b.y1 <= frame.y1 for b in boxes)


def test_every_policy_is_named_and_the_words_name_the_best():
    summaries = summarise(ROWS)
    drawn = figure.trade_off_svg(summaries)
    assert all(label in drawn for label in ("slow &amp; sure", "slower", "quick", "dice", "everything at once"))
    words = figure.trade_off_words(summaries)
    assert "quick 0.60 with 2.0; slow & sure 0.80 with 4.0" in words
    assert "slower" not in words


def test_a_name_is_never_a_formula_and_never_breaks_the_picture():
    hostile = "$\\frac{\x00\x1b"
    drawn = figure.trade_off_svg(summarise([*ROWS, *rows(hostile, "llada", (0.3, 0.3), 3.0)]))
    ET.fromstring(drawn)
    assert "$\\frac{??" in drawn
