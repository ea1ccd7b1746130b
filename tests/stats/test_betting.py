"""Bounds for means, by bets: against the definition, for coverage, and at the edges."""

import math

import numpy as np
import pytest

from unmask.stats.betting import BETS, as_difference, capital, from_differences, least_margin, lower_bound, p_value
from unmask.stats.errors import NotEnough

DISTRIBUTIONS = {
    "coin": lambda rng, size: (rng.random(size) < 0.3).astype(float),
    "rare": lambda rng, size: (rng.random(size) < 0.03).astype(float),
    "differences": lambda rng, size: rng.choice([0.0, 0.5, 1.0], p=[0.1, 0.85, 0.05], size=size),
    "uniform": lambda rng, size: rng.random(size),
}
MEANS = {"coin": 0.3, "rare": 0.03, "differences": 0.475, "uniform": 0.5}


def by_definition(x, null):
    """One number and one bet after the other."""
    grown = []
    for n in range(1, len(x) + 1):
        total = 0.0
        for bet in range(1, BETS + 1):
            money = 1.0
            for one in x[:n]:
                money *= 1 + bet / BETS / null * (one - null)
            total += money / BETS
        grown.append(total)
    return grown


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_capital_is_what_the_bets_give(kind):
    x = DISTRIBUTIONS[kind](np.random.default_rng(1), 25)
    for null in (0.05, 0.4, 0.95, 1.0):
        assert capital(x, null) == pytest.approx(by_definition(x, null), rel=1e-9, abs=1e-300)
        assert p_value(x, null) == pytest.approx(min(1, 1 / max(by_definition(x, null))))


def test_the_bound_is_the_last_mean_that_is_rejected():
    x = DISTRIBUTIONS["uniform"](np.random.default_rng(2), 20)
    rejected = [m for m in np.arange(1, 100) / 100 if max(by_definition(x, m)) >= 20]
    assert rejected[-1] <= lower_bound(x, 0.05) < rejected[-1] + 0.01


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_coverage(kind):
    """A bound at level 0.1 is wrong in a tenth of all samples at most; at whatever moment one looks."""
    rng = np.random.default_rng(3)
    x_RN = DISTRIBUTIONS[kind](rng, (600, 50))
    wrong = sum(p_value(x_N, MEANS[kind]) <= 0.1 for x_N in x_RN)
    # 60 are allowed; the binomial's standard deviation is 7.3.
    assert wrong <= 78
    assert sum(lower_bound(x_N, 0.1) > MEANS[kind] for x_N in x_RN[:60]) <= 12


def test_it_has_power_where_hoeffdings_bound_has_none():
    """Fifty pairs of answers, a fifth better, a twentieth worse: more than the margin of 0.05 is excluded mostly."""
    rng = np.random.default_rng(4)
    difference_RN = rng.choice([1.0, -1.0, 0.0], p=[0.2, 0.05, 0.75], size=(200, 50))
    shown = sum(p_value(from_differences(x), from_differences(-0.05)) <= 0.05 for x in difference_RN)
    assert shown >= 110
    hoeffding = 2 * math.sqrt(math.log(20) / (2 * 50))
    assert sum(x.mean() - hoeffding > -0.05 for x in difference_RN) <= 10


def test_monotone():
    rng = np.random.default_rng(5)
    x = rng.random(30)
    assert (np.diff([capital(x, m).max() for m in np.linspace(0.01, 1, 60)]) <= 0).all()
    assert lower_bound(x, 0.01) < lower_bound(x, 0.05) < lower_bound(x, 0.5)
    assert lower_bound(x, 0.05) < lower_bound(np.minimum(x + 0.1, 1), 0.05)
    assert lower_bound(x, 0.05) < x.mean()
    # One more number never takes back what was shown before.
    bounds = [lower_bound(x[:n], 0.05) for n in range(1, 31)]
    assert bounds == sorted(bounds)


def test_a_single_number():
    assert capital([1.0], 0.5) == pytest.approx([np.mean([1 + c / 20 for c in range(1, 21)])])
    assert 0 < lower_bound([1.0], 0.05) < 0.05
    assert lower_bound([0.0], 0.05) == pytest.approx(0, abs=1e-15)


def test_numbers_that_are_all_the_same():
    for value in (0.2, 0.5, 1.0):
        bounds = [lower_bound(np.full(n, value), 0.05) for n in (1, 10, 100, 1000)]
        assert bounds == sorted(bounds)
        assert value * 0.99 < bounds[-1] < value
    assert lower_bound(np.zeros(100), 0.05) == pytest.approx(0, abs=1e-15)
    assert capital(np.zeros(100), 0.5)[-1] < 0.01
    # Large capitals stay comparable.
    assert p_value(np.ones(100_000), 0.01) == 0


def test_the_least_margin():
    assert least_margin(50, 0.05) == pytest.approx(-as_difference(lower_bound(np.full(50, 0.5), 0.05)))
    assert 0.06 < least_margin(50, 0.05) < 0.1
    assert least_margin(200, 0.05) < least_margin(100, 0.05) < 0.05
    assert least_margin(0, 0.05) == math.inf


@pytest.mark.parametrize("x", [[1.1], [-0.1], [math.nan], [0.5, math.inf]])
def test_numbers_out_of_range_are_refused(x):
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        capital(x, 0.5)


def test_settings_out_of_range_are_refused():
    with pytest.raises(NotEnough, match="there are 0 numbers"):
        lower_bound([], 0.05)
    with pytest.raises(ValueError, match="null is 0"):
        capital([0.5], 0)
    with pytest.raises(ValueError, match="risk is 1"):
        lower_bound([0.5], 1)
