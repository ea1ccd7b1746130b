"""AUROC and Spearman as SciPy has them, the best-ranked share of states, fronts, and Wilson's interval."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from unmask.stats import auroc, pareto_front, spearman, sum_top_states, wilson_interval

pairs = st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 3)), min_size=2, max_size=12)


class TestAuroc:
    @given(pairs)
    def test_as_scipy_has_it(self, states):
        score, value = np.array(states, float).T
        positive = value > 1
        assume(0 < positive.sum() < len(positive))
        u = scipy_stats.mannwhitneyu(score[positive], score[~positive]).statistic
        assert auroc(score, positive)[0] == pytest.approx(u / (positive.sum() * (~positive).sum()))

    @pytest.mark.parametrize("positive", [[True, True], [False, False]])
    def test_one_class_has_none(self, positive):
        assert np.isnan(auroc([1, 2], positive)[0])

    def test_nan_is_the_smallest(self):
        assert auroc([np.nan, -9, -9], [True, False, False])[0] == 0

    def test_scores_that_differ_by_rounding_only_tie(self):
        """Two bins of a detector with the same mean, summed in two orders, are no order of states."""
        assert auroc([0.3, 0.1 + 0.2], [False, True])[0] == 0.5
        assert auroc([0.3, 0.3 + 1e-8], [False, True])[0] == 1


class TestSpearman:
    @given(pairs)
    def test_as_scipy_has_it(self, states):
        score, value = np.array(states, float).T
        assume(np.ptp(score) > 0)
        assume(np.ptp(value) > 0)
        assert spearman(score, value)[0] == pytest.approx(scipy_stats.spearmanr(score, value).statistic)

    @pytest.mark.parametrize(("score", "value"), [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0, 0, 0]), ([1], [2])])
    def test_of_a_constant_there_is_none(self, score, value):
        assert np.isnan(spearman(score, value)[0])

    def test_rounding_is_no_order(self):
        assert np.isnan(spearman([1, 2, 3], [0.3, 0.1 + 0.2, 0.3])[0])
        assert np.isnan(spearman([0.3, 0.1 + 0.2, 0.3], [1, 2, 3])[0])

    def test_nan_is_the_smallest(self):
        assert spearman([np.nan, 1, 2], [0, 1, 2])[0] == pytest.approx(1)


class TestGroups:
    def test_only_states_of_a_group_are_compared(self):
        rng = np.random.default_rng(4)
        score, positive = rng.integers(0, 5, 40).astype(float), rng.random(40) < 0.4
        group, weight = rng.integers(0, 3, 40), rng.integers(0, 3, (2, 40))
        for row in range(2):
            wins = pairs = 0.0
            for i in np.flatnonzero(positive):
                for j in np.flatnonzero(~positive & (group == group[i])):
                    both = weight[row, i] * weight[row, j]
                    wins += both * ((score[i] > score[j]) + (score[i] == score[j]) / 2)
                    pairs += both
            assert auroc(score, positive, weight, group)[row] == pytest.approx(wins / pairs)


@pytest.mark.parametrize("measure", [auroc, spearman])
@given(states=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 3)), min_size=2, max_size=8))
def test_a_weight_is_so_many_copies(measure, states):
    score, value, weight = np.array(states).T
    assume(weight.sum() > 0)
    copies = measure(np.repeat(score, weight), np.repeat(value, weight))
    np.testing.assert_allclose(measure(score, value, [weight]), copies)
    np.testing.assert_allclose(measure(score, value, [weight, weight * 2])[1], copies[0])


class TestTopSums:
    def test_nan_ranks_last(self):
        np.testing.assert_allclose(sum_top_states([np.nan, -5], [1, 2], [0.5, 1]), [[2, 3]])

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), min_size=1, max_size=5), st.data())
    def test_is_the_mean_over_all_ways_to_break_ties(self, states, data):
        score, value = np.array(states, float).T
        k = data.draw(st.integers(1, len(states)))
        orders = [o for o in itertools.permutations(range(len(states))) if (np.diff(score[list(o)]) <= 0).all()]
        truth = np.mean([value[list(o)][:k].sum() for o in orders])
        assert sum_top_states(score, value, [k / len(states)])[0, 0] == pytest.approx(truth, abs=1e-9)

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=6))
    def test_a_weight_is_so_many_copies(self, states):
        score, value, weight = np.array(states).T
        assume(weight.sum() > 0)
        coverages = (0.1, 0.4, 1.0)
        copies = sum_top_states(np.repeat(score, weight), np.repeat(value, weight), coverages)
        np.testing.assert_allclose(sum_top_states(score, value, coverages, weight[None]), copies, atol=1e-9)

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: sum_top_states([1], [1], [0]), "above 0 and at most 1"),
            (lambda: sum_top_states([1], [1], [5]), "such as 0.1"),
            (lambda: sum_top_states([1], [np.nan], [0.5]), "leave those states out"),
        ],
    )
    def test_refusals(self, call, words):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: auroc([], []), "no state to rank"),
        (lambda: spearman([1, 2], [1, np.nan]), "leave those states out"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# The Pareto front


def test_the_front_is_what_no_other_beats():
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


# Wilson's interval


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
    found = wilson_interval(right, n)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    assert (found.value, found.n) == (right / n, n)


@pytest.mark.parametrize("n", [1, 7, 164, 1319])
def test_ends_stay_in_order_and_mirror(n):
    for right in range(n + 1):
        found, other = wilson_interval(right, n), wilson_interval(n - right, n)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low == pytest.approx(1 - other.high, abs=1e-12)
    assert wilson_interval(0, n).low == 0
    assert wilson_interval(n, n).high == 1


def test_covers_what_it_says():
    """Exact binomial probabilities: on average over shares the interval holds the truth 95 times in a hundred."""
    n, shares = 164, [k / 200 for k in range(1, 200)]
    inside = [
        sum(
            math.comb(n, right) * p**right * (1 - p) ** (n - right)
            for right in range(n + 1)
            if wilson_interval(right, n).low <= p <= wilson_interval(right, n).high
        )
        for p in shares
    ]
    assert sum(inside) / len(inside) == pytest.approx(0.95, abs=0.005)
    assert min(inside) > 0.88


def test_nothing_counted():
    found = wilson_interval(0, 0)
    assert found.n == 0
    assert math.isnan(found.value)
    assert math.isnan(found.low)
    for wrong in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="must be from 0 to n"):
            wilson_interval(*wrong)
