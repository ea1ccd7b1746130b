"""Concentration: who is ranked, what is summed, and ties at the cut."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmask.stats import concentration, cross_fit, top_sums
from unmask.stats.reversal import opportunity

thirds = st.integers(0, 3).map(lambda k: k / 3)


class TestTopSums:
    def test_by_hand(self):
        found = top_sums([3, 1, 2, 0], [0.5, 0.25, -1.0, 4.0], [0.25, 0.5, 0.75, 1.0])
        np.testing.assert_allclose(found, [[0.5, -0.5, -0.25, 3.75]])

    def test_ties_at_the_cut_share_it(self):
        """The first state is certain; the second place goes to one of three, on average (1 + 2 + 6) / 3."""
        np.testing.assert_allclose(top_sums([5, 1, 1, 1], [10, 1, 2, 6], [0.5]), [[13]])

    def test_part_of_a_state_counts_in_part(self):
        np.testing.assert_allclose(top_sums([2, 1], [8, 4], [0.05, 0.75]), [[0.8, 10]])

    def test_nan_ranks_last(self):
        np.testing.assert_allclose(top_sums([np.nan, -5], [1, 2], [0.5, 1]), [[2, 3]])

    def test_of_no_state(self):
        np.testing.assert_array_equal(top_sums([], [], [0.5]), [[0]])

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), min_size=1, max_size=5), st.data())
    def test_is_the_mean_over_all_ways_to_break_ties(self, states, data):
        score, value = np.array(states, float).T
        k = data.draw(st.integers(1, len(states)))
        orders = [o for o in itertools.permutations(range(len(states))) if (np.diff(score[list(o)]) <= 0).all()]
        truth = np.mean([value[list(o)][:k].sum() for o in orders])
        assert top_sums(score, value, [k / len(states)])[0, 0] == pytest.approx(truth, abs=1e-9)

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=6))
    def test_a_weight_is_so_many_copies(self, states):
        score, value, weight = np.array(states).T
        assume(weight.sum() > 0)
        coverages = (0.1, 0.4, 1.0)
        copies = top_sums(np.repeat(score, weight), np.repeat(value, weight), coverages)
        np.testing.assert_allclose(top_sums(score, value, coverages, weight[None]), copies, atol=1e-9)

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: top_sums([1, 2], [1], [0.5]), "one score and one value"),
            (lambda: top_sums([1], [1], [0.5], [[1, 2]]), "a column for each"),
            (lambda: top_sums([1], [1], [0]), "above 0 and at most 1"),
            (lambda: top_sums([1], [1], [5]), "such as 0.1"),
            (lambda: top_sums([1], [np.nan], [0.5]), "leave those states out"),
        ],
    )
    def test_refusals(self, call, words):
        with pytest.raises(ValueError, match=words):
            call()


class TestConcentration:
    def test_by_hand(self):
        """Fold 0 ranks gains 0.5, 0.25, -0.5, 0; fold 1 ranks 0.5, 0.5 and a tie of 0, 0. All of it: 1.25."""
        q_SAR = np.array(
            [
                [[0, 0, 0, 0], [1, 1, 1, 0], [0.5, 0.5, 1, 1]],
                [[0.5, 0.5, 0.5, 0.5], [1, 0.5, 0, 0], [0, 0, 0.5, 0.5]],
                [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5], [0.25, 0.75, 0.75, 0.25]],
                [[0, 0, 0, 0], [np.nan] * 4, [np.nan, 0.5, 0.25, 0.25]],
            ]
        )
        found = concentration(cross_fit(q_SAR, 0), (0.25, 0.5, 0.75, 1.0))
        # Above 1 where what is left out was a loss.
        assert found == pytest.approx({0.25: 1 / 1.25, 0.5: 1.75 / 1.25, 0.75: 1.25 / 1.25, 1.0: 1.0})

    def test_ten_states_one_with_everything(self):
        q_SAR = np.zeros((10, 2, 4))
        q_SAR[3, 1] = 1.0
        assert concentration(cross_fit(q_SAR, 0)) == {0.05: 0.5, 0.1: 1.0, 0.2: 1.0, 0.5: 1.0, 1.0: 1.0}

    def test_no_opportunity_has_no_share(self):
        assert all(np.isnan(x) for x in concentration(cross_fit(np.ones((4, 2, 4)), 0)).values())

    def test_a_loss_overall_has_no_share(self):
        q_SAR = np.array([[[0.5, 0.5], [1.0, 0.0]]])
        assert np.isnan(concentration(cross_fit(q_SAR, 0))[1.0])

    @given(arrays(np.float64, (8, 3), elements=thirds))
    def test_without_noise_as_defined(self, q_SA):
        g_S = np.sort(opportunity(q_SA, 0))[::-1]
        assume(g_S.sum() > 0)
        found = concentration(cross_fit(np.repeat(q_SA[:, :, None], 4, 2), 0), (0.25, 0.5, 0.75, 1.0))
        truth = g_S.cumsum()[[1, 3, 5, 7]] / g_S.sum()
        np.testing.assert_allclose(list(found.values()), truth, atol=1e-9)
        assert found[1.0] == 1
        assert (np.diff(list(found.values())) >= -1e-12).all()
        # The top c of states holds at least its share.
        assert all(share >= c - 1e-9 for c, share in found.items())
