"""The fixed action, the gap with its decompositions, the audit and the stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.helpers.cross_fit_table import BY_HAND
from unmask.stats import Audit, audit, choose_fixed, choose_fixed_by_task, cross_fit, gap, stages
from unmask.stats.reversal import adaptation_gap, best_fixed, frequency_margin, opportunity

NAN = np.nan
tables = arrays(np.float64, (5, 3, 4), elements=st.one_of(st.integers(0, 3).map(lambda k: k / 3), st.just(NAN)))


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

    def test_half_a_rollout_is_a_utility(self):
        assert choose_fixed([[[0.5, 0.5], [1.0, NAN]]]).action == 1

    def test_ties_go_to_the_reference_then_to_the_first(self):
        q_SAR = np.array([[[0.1], [0.1 + 0.2], [0.3]]])
        assert choose_fixed(q_SAR).action == 1
        assert choose_fixed(q_SAR, reference=2).action == 2
        assert choose_fixed(q_SAR, reference=0).action == 1

    def test_an_action_without_any_utility_is_left_out(self):
        found = choose_fixed([[[NAN], [0.5], [0.25]], [[NAN], [0.5], [0.25]]], reference=0)
        assert (found.action, found.states) == (1, 2)
        np.testing.assert_array_equal(found.mean_A, [NAN, 0.5, 0.25])

    def test_by_task(self):
        q_SAR = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
        assert {t: f.action for t, f in choose_fixed_by_task(q_SAR, ["x", "y"]).items()} == {"x": 0, "y": 1}

    @given(arrays(np.float64, (6, 4, 2), elements=st.integers(0, 3).map(lambda k: k / 3)))
    def test_as_the_population_formula(self, q_SAR):
        found = choose_fixed(q_SAR)
        mean_A = q_SAR.mean((0, 2))
        assert mean_A[found.action] == pytest.approx(mean_A[best_fixed(q_SAR.mean(2))])

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: choose_fixed([[[NAN], [0.5]], [[0.5], [NAN]]]), "must share one or more"),
            (lambda: choose_fixed([[[NAN]]]), "no state"),
            (lambda: choose_fixed([[[0.5]]], reference=1), "reference is 1"),
            (lambda: choose_fixed([[[2.0]]]), "utilities lie in"),
            (lambda: choose_fixed_by_task([[[0.5]]], ["x", "y"]), "each of 1 states"),
        ],
    )
    def test_refusals(self, call, words):
        with pytest.raises(ValueError, match=words):
            call()


class TestGap:
    def test_by_hand(self):
        found = gap(cross_fit(BY_HAND, 0))
        assert found.delta == pytest.approx(0.625 / 4)
        assert found.positive == pytest.approx(0.875 / 4)
        assert found.negative == pytest.approx(-0.25 / 4)
        assert found.positive_rate == pytest.approx(2 / 4)
        # Of eight picks five are reversals: two in state 0, one in state 1, two in state 4.
        assert found.frequency == pytest.approx(5 / 8)
        assert found.margin == pytest.approx(0.25)

    @given(tables)
    def test_decompositions(self, q_SAR):
        found = gap(cross_fit(q_SAR, 0))
        if np.isnan(found.delta):
            return
        assert found.delta == pytest.approx(found.positive + found.negative, abs=1e-12)
        assert found.negative <= 0 <= found.positive
        if found.frequency > 0:
            assert found.delta == pytest.approx(found.frequency * found.margin, abs=1e-12)
        else:
            assert np.isnan(found.margin)
            assert found.delta == 0

    @given(arrays(np.float64, (6, 3), elements=st.integers(0, 3).map(lambda k: k / 3)))
    def test_without_noise_as_the_population_formulas(self, q_SA):
        for fixed in range(3):
            found = gap(cross_fit(np.repeat(q_SA[:, :, None], 4, 2), fixed))
            truth = frequency_margin(opportunity(q_SA, fixed))
            assert found.delta == pytest.approx(adaptation_gap(q_SA, fixed), abs=1e-9)
            assert found.frequency == found.positive_rate == pytest.approx(truth.frequency)
            assert found.negative == 0
            if truth.frequency > 0:
                assert found.margin == pytest.approx(truth.margin)

    def test_of_no_usable_state(self):
        found = gap(cross_fit(np.full((2, 2, 4), NAN), 0))
        assert all(np.isnan(x) for x in vars(found).values())


class TestAudit:
    def test_by_hand(self):
        """Naive: 0.75, 0, 0 and 1/3."""
        found = audit(cross_fit(BY_HAND, 0))
        assert (found.states, found.same, found.noisy) == (4, 1, 4)
        assert found.naive == pytest.approx((0.75 + 1 / 3) / 4)
        assert found.crossfitted == pytest.approx(0.625 / 4)
        assert found.optimism == pytest.approx(found.naive - found.crossfitted)

    def test_of_equal_rollouts(self):
        """As the paper's temperature-zero data: nothing to correct."""
        q_SAR = np.repeat(np.array([[[0.25], [1.0]], [[0.5], [0.0]]]), 4, 2)
        assert audit(cross_fit(q_SAR, 0)) == Audit(2, 2, 0, 0.375, 0.375)


class TestStages:
    def test_eight_spaced_states_fall_into_four_pairs(self):
        assert stages(1 - np.arange(8) / 8).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]

    def test_ends(self):
        assert stages([1.0, 0.75, 0.5, 0.25, 0.0]).tolist() == [0, 1, 2, 3, 3]
        assert stages([1.0, 0.4], count=2).tolist() == [0, 1]

    @pytest.mark.parametrize("bad", [[1.1], [-0.1], [NAN], [[0.5]]])
    def test_refusals(self, bad):
        with pytest.raises(ValueError, match="one fraction in"):
            stages(bad)
