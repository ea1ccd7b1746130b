"""How values look."""

from math import inf

import pytest

from unmask.report.formats import NONE, count, counted, edge, number, percent, point, share, share_point, yes_no
from unmask.stats import Estimate

NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(0.12345, 0.1, 0.2), "0.1235 [0.1000, 0.2000]"),
        (Estimate(NAN, NAN, NAN), NONE),
        (Estimate(0.5, NAN, NAN), "0.5000"),
        (NAN, NONE),
        (None, NONE),
        (0.0, "0.0000"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_shares():
    assert share(Estimate(0.125, 0.0, 1.0)) == "12.5 % [0.0 %, 100.0 %]"
    assert percent(0.05) == "5 %"


def test_points_have_no_interval():
    assert point(Estimate(0.12345, 0.1, 0.2)) == "0.1235"
    assert share_point(Estimate(0.125, 0.0, 1.0)) == "12.5 %"


def test_the_rest():
    assert (count(12345), count(None)) == ("12,345", NONE)
    assert (counted(1, "answer"), counted(2, "answer")) == ("1 answer", "2 answers")
    assert (edge(-inf), edge(inf), edge(0.123456)) == ("–∞", "∞", "0.1235")
    assert (yes_no(True), yes_no(False), yes_no(None)) == ("yes", "no", "")
