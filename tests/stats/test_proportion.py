"""Wilson's interval against numbers from elsewhere, and by counting."""

import math

import pytest

from unmask.stats.proportion import wilson


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [
        # Newcombe 1998, Table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_intervals(right, n, low, high):
    found = wilson(right, n)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    assert (found.value, found.n) == (right / n, n)


@pytest.mark.parametrize("n", [1, 7, 164, 1319])
def test_ends_stay_in_order_and_mirror(n):
    for right in range(n + 1):
        found, other = wilson(right, n), wilson(n - right, n)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low == pytest.approx(1 - other.high, abs=1e-12)
    assert wilson(0, n).low == 0
    assert wilson(n, n).high == 1


def test_covers_what_it_says():
    """Exact binomial probabilities: on average over shares the interval holds the truth 95 times in a hundred."""
    n, shares = 164, [k / 200 for k in range(1, 200)]
    inside = [
        sum(
            math.comb(n, right) * p**right * (1 - p) ** (n - right)
            for right in range(n + 1)
            if wilson(right, n).low <= p <= wilson(right, n).high
        )
        for p in shares
    ]
    assert sum(inside) / len(inside) == pytest.approx(0.95, abs=0.005)
    assert min(inside) > 0.88


def test_nothing_counted():
    found = wilson(0, 0)
    assert found.n == 0
    assert math.isnan(found.value)
    assert math.isnan(found.low)
    for wrong in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="must be from 0 to n"):
            wilson(*wrong)
