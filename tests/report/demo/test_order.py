"""When each position got its token."""

from dataclasses import replace

from tests.helpers.made_demo import COMPARISON, REVEALS
from unmask.report.demo.order import order_svg, order_words

LABELS = ["slower", "quick", "slow & sure", "dice"]


def test_a_row_for_each_policy_in_the_order_of_the_table():
    drawn = order_svg(COMPARISON, LABELS)
    places = [drawn.index(label.replace("&", "&amp;")) for label in LABELS]
    assert places == sorted(places)
    assert all(f">{reveal.utility:.2f}<" in drawn for reveal in REVEALS)
    assert drawn.count("↺") == 2


def test_it_is_drawn_from_the_steps():
    other = replace(COMPARISON, reveals=(replace(REVEALS[0], step=(0, 4, 3, 2, 1)), *REVEALS[1:]))
    assert order_svg(other, LABELS) != order_svg(COMPARISON, LABELS)
    assert "4 policies" in order_words(COMPARISON)
    assert COMPARISON.example in order_words(COMPARISON)
