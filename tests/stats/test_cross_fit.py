"""Cross-fitted opportunity and the fixed action: tables worked out by hand, and what holds for any table."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.helpers.cases import each_case
from tests.helpers.cross_fit_table import BY_HAND
from unmask.stats import NotEnough, opportunity
from unmask.stats.protocol import choose_fixed, choose_fixed_by_runs, cross_fit, masked_share

NAN = np.nan
thirds = st.integers(0, 3).map(lambda k: k / 3)


def tables(missing=False, rollouts=4):
    """Small tables of thirds, so that ties and rounding in the last bit occur."""
    value = st.one_of(thirds, st.just(NAN)) if missing else thirds
    return st.tuples(st.integers(1, 6), st.integers(1, 4)).flatmap(
        lambda shape: arrays(np.float64, (*shape, rollouts), elements=value)
    )


class TestByHand:
    fit = cross_fit(BY_HAND, 0)

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("chosen_FS", [[1, 1, 0, -1, 2], [2, 0, 0, -1, 2]]),
            ("seen_FS", [[1, 0.25, 0, NAN, 0.5], [1, 0, 0, NAN, 0.25]]),
            # The other fold grades.
            ("g_FS", [[0.5, -0.5, 0, NAN, 0.25], [0.5, 0, 0, NAN, 0.5]]),
            ("g_S", [0.5, -0.25, 0, NAN, 0.375]),
            # All rollouts are used twice.
            ("naive_S", [0.75, 0, 0, NAN, 1 / 3]),
            ("used_S", [True, True, True, False, True]),
            ("noisy_S", [True, True, True, False, True]),
        ],
    )
    def test_columns(self, name, expected):
        np.testing.assert_allclose(getattr(self.fit, name), expected)
        assert self.fit.crossfitted

    def test_mean_opportunity(self):
        assert self.fit.delta == pytest.approx(0.625 / 4)
        assert np.isnan(cross_fit(np.full((2, 2, 4), NAN), 0).delta)

    def test_the_fixed_utility_is_of_the_same_states_and_folds(self):
        """The second state has no utility in its second fold, so it has no part in the mean either."""
        fit = cross_fit([[[1, 1, 0, NAN]], [[1, 1, NAN, NAN]]], 0)
        assert fit.used_S.tolist() == [True, False]
        assert fit.fixed_utility == 0.5
        assert np.isnan(cross_fit(np.full((2, 2, 4), NAN), 0).fixed_utility)

    def test_a_fixed_action_for_each_state(self):
        fit = cross_fit(BY_HAND, [0, 0, 0, 1, 2])
        assert fit.used_S.all()
        np.testing.assert_allclose(fit.g_S, [0.5, -0.25, 0, 0.2, 0])


class TestTies:
    q = np.full((1, 4, 2), 0.5)

    @pytest.mark.parametrize(("worse", "chosen"), [([], 3), ([3], 2), ([2, 3], 0)])
    def test_go_to_the_fixed_action_then_the_reference_then_the_first(self, worse, chosen):
        q = self.q.copy()
        q[0, worse] = 0.25
        assert cross_fit(q, 3, reference=2).chosen_FS.tolist() == [[chosen], [chosen]]

    def test_rounding_does_not_break_them(self):
        """0.1 + 0.2 is not 0.3 in floating point."""
        q = np.array([[[0.3, 0.3, 0.3, 0.3], [0.1, 0.5, 0.2, 0.4], [0.1 + 0.2] * 4]])
        fit = cross_fit(q, 0)
        assert fit.chosen_FS.tolist() == [[0], [0]]
        assert fit.g_S.tolist() == [0.0] == fit.naive_S.tolist()

    @pytest.mark.parametrize(("apart", "chosen", "gain"), [(5e-10, 0, 0.0), (5e-9, 1, 5e-9), (5e-7, 1, 5e-7)])
    def test_only_rounding_is_a_tie(self, apart, chosen, gain):
        """Utilities that are 1e-9 apart or less are tied; more is a difference, however small."""
        q = np.array([[[0.25] * 4, [0.25 + apart] * 4]])
        fit = cross_fit(q, 0)
        assert fit.chosen_FS.tolist() == [[chosen], [chosen]]
        np.testing.assert_allclose(fit.g_S, [gain], rtol=1e-6)


class TestOneRollout:
    q_SA = np.array([[0.25, 1.0], [0.5, 0.0]])

    def test_is_refused(self):
        with pytest.raises(NotEnough, match="1 rollout; cross-fitting needs 2"):
            cross_fit(self.q_SA[:, :, None], 0)

    def test_is_the_truth_if_the_caller_says_so(self):
        fit = cross_fit(self.q_SA[:, :, None], 0, deterministic=True)
        np.testing.assert_allclose(fit.g_S, [0.75, 0])
        assert not fit.crossfitted

    def test_rollouts_that_differ_contradict_the_caller(self):
        with pytest.raises(ValueError, match="rollouts of some action differ"):
            cross_fit(np.stack([self.q_SA, [[0.25, 1.0], [0.0, 0.0]]], 2), 0, deterministic=True)


@given(tables())
def test_without_noise_it_is_the_opportunity(q_SAR):
    q_SA = q_SAR[:, :, 0]
    for fixed in range(q_SA.shape[1]):
        fit = cross_fit(np.repeat(q_SA[:, :, None], 4, 2), fixed)
        np.testing.assert_allclose(fit.g_S, opportunity(q_SA, fixed), atol=1e-9)
        np.testing.assert_allclose(fit.naive_S, fit.g_S, atol=1e-9)
        assert not fit.noisy_S.any()


@given(tables())
def test_it_is_never_above_the_naive_estimate(q_SAR):
    """With folds of one size. The naive maximum is the best sum of two folds; no pair of picks can do better."""
    fit = cross_fit(q_SAR, 0)
    assert (fit.g_S <= fit.naive_S + 1e-9).all()
    assert (fit.naive_S >= 0).all()


@given(tables(missing=True))
def test_gains_are_bounded_and_excluded_states_have_none(q_SAR):
    fit = cross_fit(q_SAR, 0)
    has = np.isfinite(q_SAR[:, 0])
    np.testing.assert_array_equal(fit.used_S, has[:, :2].any(1) & has[:, 2:].any(1))
    for x in (fit.g_S, fit.naive_S, *fit.g_FS, *fit.seen_FS):
        np.testing.assert_array_equal(np.isfinite(x), fit.used_S)
        assert (np.abs(x[fit.used_S]) <= 1).all()
    assert (fit.seen_FS[:, fit.used_S] >= 0).all()
    np.testing.assert_array_equal(fit.seen_FS > 0, (fit.chosen_FS != fit.fixed_S) & fit.used_S)


@each_case(
    ("call", "words"),
    [
        (lambda: cross_fit(np.ones((2, 2)), 0), r"shape \(2, 2\); it must be states by actions by rollouts"),
        (lambda: cross_fit(np.ones((0, 2, 4)), 0), "none of them 0"),
        (lambda: cross_fit(np.full((2, 2, 4), 1.5), 0), "values from 1.5 to 1.5; utilities lie in"),
        (lambda: cross_fit(np.full((2, 2, 4), np.inf), 0), "utilities lie in"),
        (lambda: cross_fit(BY_HAND, 3), r"fixed is 3; the table has actions 0\.\.2"),
        (lambda: cross_fit(BY_HAND, -1), "fixed is -1"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()


class TestFixed:
    def test_by_hand(self):
        """Means 0.5, 0.625 and 0.5 over the two states that have all three actions."""
        q_SAR = np.array(
            [
                [[1, 1], [0.5, 0.5], [1, 0]],
                [[0, 0], [0.5, 1], [0.5, 0.5]],
                [[1, 1], [NAN, NAN], [1, 1]],
            ]
        )
        found = choose_fixed(q_SAR)
        assert (found.action, found.states, found.excluded) == (1, 2, 1)
        np.testing.assert_allclose(found.mean_A, [0.5, 0.625, 0.5])

    def test_ties_go_to_the_reference_then_to_the_first(self):
        q_SAR = np.array([[[0.1], [0.1 + 0.2], [0.3]]])
        assert choose_fixed(q_SAR).action == 1
        assert choose_fixed(q_SAR, reference=2).action == 2
        assert choose_fixed(q_SAR, reference=0).action == 1

    def test_an_action_without_any_utility_is_left_out(self):
        found = choose_fixed([[[NAN], [0.5], [0.25]], [[NAN], [0.5], [0.25]]], reference=0)
        assert (found.action, found.states) == (1, 2)
        np.testing.assert_array_equal(found.mean_A, [NAN, 0.5, 0.25])

    def test_by_whole_runs_of_prompts_that_every_candidate_answered(self):
        runs = pd.DataFrame([[1, 0.5, 0], [0, 0.5, 1], [0, 0.2, NAN], [0.5, 0.6, 0.5]])
        best = choose_fixed_by_runs(runs, 0)
        assert (best.action, best.states, best.excluded) == (1, 3, 1)
        assert best.mean_A == pytest.approx([0.5, 1.6 / 3, 0.5])
        assert choose_fixed_by_runs(pd.DataFrame([[0.5, 0.5], [0, 0]]), 1).action == 1

    @pytest.mark.parametrize(
        ("q_SAR", "words"),
        [
            ([[[NAN], [0.5]], [[0.5], [NAN]]], "must share one or more"),
            ([[[NAN, NAN]]], "no state"),
            (np.ones((0, 2, 4)), "none of them 0"),
        ],
    )
    def test_too_little_data_is_told_apart_from_a_mistake(self, q_SAR, words):
        with pytest.raises(NotEnough, match=words):
            choose_fixed(q_SAR)
        for wrong in (np.ones((2, 2)), np.ones((2, 0, 4)), np.full((2, 2, 4), 2.0)):
            with pytest.raises(ValueError, match=r"must be|lie in") as caught:
                choose_fixed(wrong)
            assert not isinstance(caught.value, NotEnough)


class TestMaskedShare:
    def test_each_prompt_has_its_own_length(self):
        share_S = masked_share(["a", "b", "a", "b", "a"], [8, 4, 4, 1, 0])
        np.testing.assert_allclose(share_S, [1, 1, 0.5, 0.25, 0])
