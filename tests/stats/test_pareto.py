"""Fronts against their definition, pair by pair."""

import numpy as np
import pytest

from unmask.stats.bootstrap import mean_interval
from unmask.stats.pareto import pareto_front, sure_front


def test_is_what_no_other_beats():
    """Every pair compared in words, ties included: numbers out of five make many."""
    draw = np.random.default_rng(3)
    for _ in range(200):
        quality, cost = draw.integers(5, size=(2, 7)).astype(float)
        expected = [
            not any(
                quality[b] >= quality[a] and cost[b] <= cost[a] and (quality[b] > quality[a] or cost[b] < cost[a])
                for b in range(7)
            )
            for a in range(7)
        ]
        assert pareto_front(quality, cost).tolist() == expected


def test_twins_are_both_there_and_what_has_no_number_is_not():
    assert pareto_front([1.0, 1.0, np.nan, 2.0], [3.0, 3.0, 1.0, np.nan]).tolist() == [True, True, False, False]


def test_sure_is_better_than_everything_as_cheap():
    draw = np.random.default_rng(0)
    base_P = draw.random(60)
    table_PA = np.stack([base_P, base_P + 0.3, base_P + 0.3 + 0.001 * draw.standard_normal(60) * 50, base_P + 1], 1)
    cost_A = [1.0, 2.0, 3.0, 4.0]
    sure = sure_front([table_PA], cost_A, [True] * 4, seed=5, resamples=300)
    for own in range(4):
        beaten = [
            mean_interval(table_PA[:, own] - table_PA[:, other], seed=5, resamples=300).low > 0
            for other in range(4)
            if other != own and cost_A[other] <= cost_A[own]
        ]
        assert sure[own] == all(beaten)
    assert sure.tolist() == [True, True, False, True]
    assert sure_front([table_PA], cost_A, [False, True, False, False], seed=5, resamples=50).tolist() == [
        False,
        True,
        False,
        False,
    ]


def test_at_one_cost_nobody_is_sure_of_a_tie():
    assert not sure_front([np.ones((5, 2))], [1.0, 1.0], [True, True], seed=0, resamples=20).any()


def test_refusals():
    with pytest.raises(ValueError, match="one number each"):
        pareto_front([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="one number per policy"):
        pareto_front([[1.0]], [1.0])
