"""AUROC and Spearman: as SciPy has them, with ties, with weights."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from unmask.stats import auroc, spearman
from unmask.stats.ranking import by_signal

pairs = st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 3)), min_size=2, max_size=12)


class TestAuroc:
    def test_by_hand(self):
        """Of six pairs three are right and one is tied."""
        assert auroc([3, 1, 2, 2, 0], [True, True, False, True, False])[0] == pytest.approx(4.5 / 6)

    def test_wrong_sign(self):
        score, positive = np.array([0.1, 0.5, 0.2, 0.9]), [False, True, False, True]
        assert auroc(score, positive)[0] == 1
        assert auroc(-score, positive)[0] == 0

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

    def test_a_constant_score_is_chance(self):
        assert auroc([1, 1, 1], [True, False, False])[0] == 0.5

    def test_nan_is_the_smallest(self):
        assert auroc([np.nan, -9, -9], [True, False, False])[0] == 0

    def test_small_scores_are_not_rounded(self):
        assert auroc([1e-12, 2e-12], [False, True])[0] == 1


class TestSpearman:
    @given(pairs)
    def test_as_scipy_has_it(self, states):
        score, value = np.array(states, float).T
        assume(np.ptp(score) > 0)
        assume(np.ptp(value) > 0)
        assert spearman(score, value)[0] == pytest.approx(scipy_stats.spearmanr(score, value).statistic)

    def test_wrong_sign(self):
        assert spearman([1, 2, 3], [0.1, 0.2, 0.9])[0] == pytest.approx(1)
        assert spearman([3, 2, 1], [0.1, 0.2, 0.9])[0] == pytest.approx(-1)

    @pytest.mark.parametrize(("score", "value"), [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0, 0, 0]), ([1], [2])])
    def test_of_a_constant_there_is_none(self, score, value):
        assert np.isnan(spearman(score, value)[0])

    def test_rounding_of_values_is_no_order(self):
        assert np.isnan(spearman([1, 2, 3], [0.3, 0.1 + 0.2, 0.3])[0])

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

    def test_a_score_that_knows_the_group_alone_knows_nothing(self):
        group = np.repeat([0, 1], 10)
        positive = np.concatenate([np.arange(10) < 2, np.arange(10) < 8])
        assert auroc(group, positive)[0] > 0.7
        assert auroc(group, positive, None, group)[0] == 0.5

    def test_groups_of_one_class_say_nothing(self):
        assert np.isnan(auroc([1, 2, 3], [True, False, False], None, [0, 1, 1])[0])
        with pytest.raises(ValueError, match="group_S"):
            auroc([1, 2], [True, False], None, [0])


@pytest.mark.parametrize("measure", [auroc, spearman])
@given(states=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 3)), min_size=2, max_size=8))
def test_a_weight_is_so_many_copies(measure, states):
    score, value, weight = np.array(states).T
    assume(weight.sum() > 0)
    copies = measure(np.repeat(score, weight), np.repeat(value, weight))
    np.testing.assert_allclose(measure(score, value, [weight]), copies)
    np.testing.assert_allclose(measure(score, value, [weight, weight * 2])[1], copies[0])


class TestBySignal:
    def test_ties_only(self):
        place = by_signal([0.5, 0.1, 0.5, np.nan, 0.1], [1.0, 9.0, 2.0, np.nan, 8.0])
        assert np.argsort(-place[~np.isnan(place)]).tolist() == [2, 0, 1, 3]
        assert np.isnan(place[3])

    def test_equal_signals_stay_tied(self):
        place = by_signal([0.5, 0.5], [1.0, 1.0])
        assert place[0] == place[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: auroc([], []), "one or more"),
        (lambda: auroc([1, 2], [True]), "one score and one value"),
        (lambda: auroc([1, 2], [0.5, 1]), "other than true and false"),
        (lambda: spearman([1, 2], [1, np.nan]), "leave those states out"),
        (lambda: spearman([1, 2], [1, 2], [[1]]), "a column for each"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()
