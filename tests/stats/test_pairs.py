"""Pairs of actions: pairwise reversal value and bidirectional mass."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmask.stats import bidirectional, cross_fit, gap, over, pairwise_gap, pairwise_reversal

NAN = np.nan
thirds = st.integers(0, 3).map(lambda k: k / 3)
plain = arrays(np.float64, (6, 3), elements=thirds)
noisy = arrays(np.float64, (6, 3, 4), elements=st.one_of(thirds, st.just(NAN)))


def repeat(q_SA):
    return cross_fit(np.repeat(np.asarray(q_SA)[:, :, None], 4, 2), 0)


class TestByHand:
    def test_without_noise(self):
        """Action 0 wins 1 and 0.5, action 1 wins 0.8, over four states."""
        fit = repeat([[1.0, 0.0], [1.0, 0.5], [0.0, 0.8], [0.6, 0.6]])
        np.testing.assert_allclose(over(fit), [[0, 0.375], [0.2, 0]])
        found = bidirectional(fit)
        assert (found.mass, found.pair) == (pytest.approx(0.2), (0, 1))
        np.testing.assert_allclose(pairwise_reversal(fit), [[0, 0.2], [0.2, 0]])
        # If validation had preferred action 1, choosing by state would gain what action 0 wins.
        np.testing.assert_allclose(pairwise_reversal(fit, [0.4, 0.5]), [[0, 0.375], [0.375, 0]])

    def test_sign_from_one_fold_and_size_from_the_other(self):
        """D = Q_0 - Q_1 is +1, +0.5 in the first state and +0.25, -0.5 in the second."""
        q_SAR = np.array([[[1, 1, 0.5, 0.5], [0, 0, 0, 0]], [[0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0.5]]])
        fit = cross_fit(q_SAR, 0)
        # State 0: (0.5 + 1) / 2. State 1: fold 0 says +, and the other pays -0.5; fold 1 says -, and pays -0.25.
        np.testing.assert_allclose(over(fit), [[0, (0.75 - 0.25) / 2], [(0 - 0.125) / 2, 0]])
        found = bidirectional(fit)
        assert (found.mass, found.pair) == (0.0, None)
        assert found.mass_AA[0, 1] == pytest.approx(-0.0625)

    def test_the_pair_that_attains_it(self):
        q_SA = [[0.0, 0.5, 1.0], [0.0, 0.5, 0.0], [0.0, 0.5, 0.5]]
        found = bidirectional(repeat(q_SA))
        assert (found.mass, found.pair) == (pytest.approx(0.5 / 3), (1, 2))

    def test_of_tied_pairs_the_first(self):
        found = bidirectional(repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]))
        assert (found.mass, found.pair) == (0.5, (0, 1))

    def test_only_states_that_have_both(self):
        q_SAR = np.repeat(np.array([[1.0, 0.0, NAN], [0.0, 1.0, NAN], [NAN, 0.0, 0.5]])[:, :, None], 2, 2)
        fit = cross_fit(q_SAR, 1)
        np.testing.assert_allclose(over(fit), [[0, 0.5, NAN], [0.5, 0, 0], [NAN, 0.5, 0]])
        assert bidirectional(fit).pair == (0, 1)
        assert np.isnan(pairwise_reversal(fit)[0, 2])

    def test_one_action_has_no_pair(self):
        found = bidirectional(repeat([[0.5], [0.25]]))
        assert (found.mass, found.pair) == (0.0, None)

    def test_no_utility_at_all(self):
        found = bidirectional(cross_fit(np.full((2, 2, 4), NAN), 0))
        assert np.isnan(found.mass)
        assert found.pair is None


@given(plain)
def test_without_noise_each_pair_obeys_the_theorem(q_SA):
    """`eq:pairwise_adaptation_gap`, both forms; and B is the largest of them."""
    fit = repeat(q_SA)
    found, mass_AA = pairwise_reversal(fit), bidirectional(fit).mass_AA
    for a, b in itertools.combinations(range(3), 2):
        truth = pairwise_gap(q_SA[:, a] - q_SA[:, b])
        assert found[a, b] == found[b, a] == pytest.approx(truth, abs=1e-9)
        assert mass_AA[a, b] == pytest.approx(truth, abs=1e-9)
    assert bidirectional(fit).mass == pytest.approx(found.max(), abs=1e-9)


@given(noisy)
def test_a_pair_is_a_table_of_two_actions(q_SAR):
    fit = cross_fit(q_SAR, 0)
    found = pairwise_reversal(fit, [0.9, 0.5, 0.7])
    for better, worse in ((0, 1), (0, 2), (2, 1)):
        both = np.isfinite(fit.q_FSA[0][:, [better, worse]]).all(1)
        if both.any():
            alone = gap(cross_fit(q_SAR[both][:, [better, worse]], 0)).delta
            assert found[better, worse] == pytest.approx(alone, abs=1e-9)
        else:
            assert np.isnan(found[better, worse])


@given(noisy)
def test_the_names_of_actions_do_not_matter(q_SAR):
    one, two = bidirectional(cross_fit(q_SAR, 0)), bidirectional(cross_fit(q_SAR[:, ::-1], 2))
    assert one.mass == pytest.approx(two.mass, abs=1e-9, nan_ok=True)
    np.testing.assert_allclose(one.mass_AA, two.mass_AA[::-1, ::-1], atol=1e-9)


def test_means_of_another_table_are_refused():
    with pytest.raises(ValueError, match="each of 2 actions"):
        pairwise_reversal(repeat([[0.5, 0.5]]), [0.1, 0.2, 0.3])
