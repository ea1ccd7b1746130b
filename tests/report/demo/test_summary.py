"""A line per policy out of a row per policy and problem."""

from math import sqrt

import pytest

from tests.helpers.made_demo import ROWS, rows
from unmask.lab.demo import AT_ONCE, MODE
from unmask.report.demo.summary import summarise


def test_order():
    labels = [s.label for s in summarise(ROWS)]
    assert labels == [MODE, "slow & sure", "slower", "quick", "dice", AT_ONCE]


def test_means():
    by_label = {s.label: s for s in summarise(ROWS)}
    sure = by_label["slow & sure"]
    assert sure.utility == pytest.approx(0.8)
    assert sure.by_family == {"dense": 0.9, "far": 0.7}
    assert (sure.forwards, sure.tokens_per_forward, sure.computed) == (4.0, 1.0, "exactly")
    assert by_label[MODE].forwards is None
    assert by_label[MODE].show_speed == ""


def test_standard_error_of_a_mean_of_independent_means():
    dice = next(s for s in summarise(ROWS) if s.label == "dice")
    assert dice.stderr == pytest.approx(sqrt(2 * 0.03**2) / 2)
    assert dice.computed == "4 seeds"


def test_frontier():
    assert {s.label for s in summarise(ROWS) if s.frontier} == {AT_ONCE, "quick", "slow & sure"}


def test_equals_share_the_frontier():
    twins = rows("one", "llada", (0.5, 0.5), 2.0) + rows("two", "dream", (0.5, 0.5 + 1e-12), 2.0)
    assert all(s.frontier for s in summarise(twins))
