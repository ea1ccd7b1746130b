"""Bins of the signal, the two thresholds and the stage-only schedule, by hand and in simulated worlds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.stats import ValidationTable, fit_detector, fit_gate, fit_schedule, fit_theta, grade
from unmask.stats.detector import binned, fit_mean_gate, gate_levels, mean_gate_gains, prompt_folds

HOW = {"folds": 2, "caution": 0.0, "seed": 0}


def rising(g_S):
    """Utilities of two actions where the second gains g on the first, which is best on average."""
    g_S = np.asarray(g_S, float)
    return np.stack([np.full(len(g_S), 0.4), np.where(g_S > 0, 0.4 + g_S, 0.0)], 1)


class TestBins:
    def test_by_hand(self, states):
        """Twenty signals in ten bins: two states each, the mean opportunity of the two."""
        g_S = np.arange(20) / 100
        found = fit_detector(grade(states(q_SA=rising(g_S), signal_S=np.arange(20) * 3.0), 0), 10)
        np.testing.assert_allclose(found.start_E, np.arange(2, 20, 2) * 3.0)
        np.testing.assert_allclose(found.g_B, g_S.reshape(10, 2).mean(1))
        assert found.states_B.tolist() == [2] * 10
        assert found.positive_B.tolist() == [1] + [2] * 9

    def test_equal_signals_share_a_bin(self, states):
        """Six zeros fill six tenths; the other four states have a tenth each."""
        g_S = [0, 0, 0, 0, 0, 0.06, 0.1, 0.2, 0.3, 0.4]
        found = fit_detector(grade(states(q_SA=rising(g_S), signal_S=[0] * 6 + [1, 2, 3, 4]), 0), 10)
        assert found.states_B.tolist() == [6, 1, 1, 1, 1]
        np.testing.assert_allclose(found.g_B, [0.01, 0.1, 0.2, 0.3, 0.4])

    @pytest.mark.parametrize("bins", [1, 10])
    def test_a_constant_signal_is_one_bin(self, states, bins):
        found = fit_detector(grade(states(q_SA=rising([0, 0.1, 0.2]), signal_S=[5, 5, 5]), 0), bins)
        assert len(found.start_E) == 0
        np.testing.assert_allclose(found.predict([-1, 5, 9]), 0.1)

    def test_out_of_range_goes_to_the_end_bins(self, states):
        found = fit_detector(grade(states(q_SA=rising([0, 0.1, 0.2, 0.3]), signal_S=[1, 2, 3, 4]), 0), 4)
        np.testing.assert_allclose(found.predict([-np.inf, 0.5, 2.5, 99, np.inf]), [0, 0, 0.1, 0.3, 0.3])

    def test_no_signal_is_in_no_bin_and_expects_nothing(self, states):
        found = fit_detector(grade(states(q_SA=rising([0.3, 0.1, 0.2]), signal_S=[np.nan, 1, 2]), 0), 2)
        assert found.silent == 1
        np.testing.assert_allclose(found.g_B, [0.1, 0.2])
        assert np.isnan(found.predict([np.nan])[0])
        assert found.bin_of([np.nan, 1]).tolist() == [-1, 0]

    def test_without_any_signal(self, states):
        seen = grade(states(q_SA=rising([0, 0.1]), signal_S=[np.nan, np.nan]), 0)
        assert np.isnan(fit_detector(seen, 10).predict([1.0, np.nan])).all()
        assert fit_gate(seen, 10, **HOW).value is None

    def test_the_number_of_bins_has_an_effect(self, states):
        seen = grade(states(q_SA=rising(np.arange(20) / 100), signal_S=np.arange(20)), 0)
        assert [len(fit_detector(seen, b).g_B) for b in (1, 5, 10, 100)] == [1, 5, 10, 20]

    def test_infinite_signals(self, states):
        found = fit_detector(grade(states(q_SA=rising([0, 0.1, 0.2]), signal_S=[-np.inf, 0, np.inf]), 0), 3)
        np.testing.assert_allclose(found.g_B, [0, 0.1, 0.2])

    @given(st.lists(st.integers(-3, 3) | st.just(None), min_size=1, max_size=30), st.integers(1, 12))
    def test_no_bin_is_empty_and_the_mean_is_kept(self, signals, bins):
        signal_S = np.array([np.nan if x is None else x for x in signals], float)
        g_S = np.random.default_rng(0).random(len(signal_S))
        found, known_S = binned(signal_S, g_S, bins), ~np.isnan(signal_S)
        if known_S.any():
            assert (found.states_B > 0).all()
            assert len(found.g_B) <= bins
            np.testing.assert_allclose((found.states_B * found.g_B).sum(), g_S[known_S].sum())
            np.testing.assert_array_equal(np.bincount(found.bin_of(signal_S[known_S])), found.states_B)
        assert found.silent == (~known_S).sum()


class TestTheta:
    def test_by_hand(self, states):
        """Signals 0 to 3, each on two prompts of every fold; the diagnostic loses below 2 and gains from there on."""
        signal_S = np.tile(np.arange(4.0), 10)
        gain_S = np.where(signal_S >= 2, 0.2, -0.1)
        found = fit_theta(grade(states(q_SA=rising(np.zeros(40)), signal_S=signal_S, gain_S=gain_S), 0), 4, **HOW)
        assert found.value == 2
        assert found.lift == found.out_of_fold == pytest.approx(0.1)
        assert found.reason == ""
        assert found.active([1.9, 2, 5, np.nan]).tolist() == [False, True, True, False]

    def test_wherever_there_is_a_signal(self, states):
        signal_S = np.tile(np.arange(4.0), 10)
        found = fit_theta(grade(states(q_SA=rising(np.zeros(40)), signal_S=signal_S, gain_S=[0.1] * 40), 0), 4, **HOW)
        assert found.value == -np.inf
        assert found.active([-99, np.nan]).tolist() == [True, False]

    def test_wrong_sign_means_never(self, states):
        signal_S = np.tile(np.arange(4.0), 10)
        gain_S = np.where(signal_S >= 2, -0.2, 0.1)
        found = fit_theta(grade(states(q_SA=rising(np.zeros(40)), signal_S=signal_S, gain_S=gain_S), 0), 4, **HOW)
        assert found.value is None
        assert "no threshold gains anything" in found.reason
        assert not found.active([-9, 0, 9, np.inf]).any()

    def test_of_equal_gains_the_highest_deviates_least(self, states):
        signal_S = np.tile(np.arange(4.0), 10)
        gain_S = np.where(signal_S == 3, 0.2, 0.0)
        found = fit_theta(grade(states(q_SA=rising(np.zeros(40)), signal_S=signal_S, gain_S=gain_S), 0), 4, **HOW)
        assert found.value == 3

    def test_what_one_fold_alone_gains_is_not_believed(self, states):
        """One prompt gains much and all others lose a little: the sum is positive, out of fold it is not."""
        signal_S, gain_S = np.arange(8.0), np.full(8, -0.05)
        gain_S[-1] = 0.5
        found = fit_theta(grade(states(q_SA=rising(np.zeros(8)), signal_S=signal_S, gain_S=gain_S), 0), 8, **HOW)
        assert found.value is None
        assert found.out_of_fold <= 0
        assert "out of fold" in found.reason

    def test_caution_asks_for_more(self, states):
        signal_S = np.tile(np.arange(4.0), 10)
        gain_S = np.where(signal_S >= 2, 0.2, -0.1) + np.tile([0.2, -0.2], 20)
        seen = grade(states(q_SA=rising(np.zeros(40)), signal_S=signal_S, gain_S=gain_S), 0)
        found = fit_theta(seen, 4, **HOW)
        assert found.value is not None
        cautious = fit_theta(seen, 4, **{**HOW, "caution": 1 + found.out_of_fold / found.error})
        assert cautious.value is None
        assert "standard errors" in cautious.reason
        assert (cautious.out_of_fold, cautious.error) == (found.out_of_fold, found.error)

    def test_one_prompt_cannot_choose_for_another(self, states):
        table = states(q_SA=rising(np.zeros(4)), signal_S=np.arange(4.0), gain_S=[0.1] * 4, prompt_S=np.zeros(4))
        found = fit_theta(grade(table, 0), 4, **HOW)
        assert found.value is None
        assert "fewer than 2" in found.reason


class TestGate:
    def test_by_hand(self, states):
        """Opportunity 0, 0.1, 0.2, 0.3 by signal; the diagnostic gains where it is 0.2 or more. Tau is halfway."""
        signal_S = np.tile(np.arange(4.0), 10)
        columns = {"gain_S": np.where(signal_S >= 2, 0.2, -0.1), "prompt_S": np.repeat(np.arange(10), 4)}
        found = fit_gate(grade(states(q_SA=rising(signal_S / 10), signal_S=signal_S, **columns), 0), 4, **HOW)
        assert found.value == pytest.approx(0.15)
        assert found.out_of_fold == pytest.approx(0.1)
        assert found.active([0.1, 0.2, 0.3, np.nan]).tolist() == [False, True, True, False]

    def test_opportunity_that_falls_with_the_signal(self, states):
        """Bins learn the direction: a low signal can mean opportunity."""
        signal_S = np.tile(np.arange(4.0), 10)
        gain_S = np.where(signal_S <= 1, 0.2, -0.1)
        seen = grade(states(q_SA=rising((3 - signal_S) / 10), signal_S=signal_S, gain_S=gain_S), 0)
        found = fit_gate(seen, 4, **HOW)
        assert found.active(fit_detector(seen, 4).predict([0, 1, 2, 3])).tolist() == [True, True, False, False]

    def test_a_useless_action_stays_shut(self, states):
        """Opportunity is plain to see, and the diagnostic's action takes none of it."""
        signal_S = np.tile(np.arange(4.0), 10)
        seen = grade(states(q_SA=rising(signal_S / 10), signal_S=signal_S, gain_S=[-0.1] * 40), 0)
        assert fit_gate(seen, 4, **HOW).value is None

    @pytest.mark.parametrize(("g_S", "which"), [([0.0] * 8, "no"), ([0.1] * 8, "every")])
    def test_one_class_is_never(self, states, g_S, which):
        seen = grade(states(q_SA=rising(g_S), signal_S=np.arange(8.0), gain_S=[0.1] * 8), 0)
        found = fit_gate(seen, 4, **HOW)
        assert found.value is None
        assert found.reason.startswith(f"{which} validation state has a positive opportunity")
        assert len(fit_detector(seen, 4).g_B) == 4

    def test_a_constant_signal_is_all_or_nothing(self, states):
        columns = {"q_SA": rising([0.0, 0.2] * 10), "signal_S": np.ones(20)}
        assert fit_gate(grade(states(**columns, gain_S=[0.1] * 20), 0), 10, **HOW).value == -np.inf
        assert fit_gate(grade(states(**columns, gain_S=[-0.1] * 20), 0), 10, **HOW).value is None

    def test_predictions_are_out_of_fold(self, states):
        """Each state has a signal of its own: only a detector that saw the state predicts its opportunity."""
        rng = np.random.default_rng(0)
        g_S = rng.choice([0.0, 0.3], 60)
        gain_S = np.where(g_S > 0, 0.3, -0.3)
        signal_S = rng.permutation(60).astype(float)
        seen = grade(states(q_SA=rising(g_S), signal_S=signal_S, gain_S=gain_S), 0)
        found = fit_gate(seen, 60, **HOW)
        assert found.out_of_fold < 0.05
        assert np.mean(gain_S[fit_detector(seen, 60).predict(signal_S) > 0.15]) == pytest.approx(0.3)


def test_folds_hold_whole_prompts_evenly():
    fold_P = prompt_folds(23, 5, 0)
    assert sorted(np.bincount(fold_P)) == [4, 4, 5, 5, 5]
    assert (prompt_folds(23, 5, 1) != fold_P).any()
    assert prompt_folds(3, 5, 0).max() == 2


class TestSchedule:
    MASKED = np.array([0.9, 0.9, 0.6, 0.6, 0.3, 0.3])

    def test_by_hand(self, states):
        """Action 1 is better in the first stage, 0 in the second, they tie in the third, and the last is empty."""
        q_SA = [[0.2, 0.4], [0.3, 0.3], [0.9, 0.1], [0.9, 0.1], [0.4, 0.5], [0.5, 0.4]]
        seen = grade(states(q_SA=q_SA, signal_S=np.zeros(6), masked_S=self.MASKED), 0)
        found = fit_schedule(seen, 4)
        assert found.action_K.tolist() == [1, 0, 0, 0]
        assert found.states_K.tolist() == [2, 2, 2, 0]
        assert found.actions([1.0, 0.7, 0.3, 0.0]).tolist() == [1, 0, 0, 0]

    def test_ties_go_to_the_fixed_action_then_the_reference(self, states):
        q_SA = [[0.2, 0.5, 0.5], [0.2, 0.5, 0.5]]
        table = states(q_SA=q_SA, signal_S=[0, 0], reference=2)
        assert fit_schedule(grade(table, 1), 1).action_K.tolist() == [1]
        assert fit_schedule(grade(table, 0), 1).action_K.tolist() == [2]

    def test_the_number_of_stages_has_an_effect(self, states):
        q_SA = [[0.2, 0.4], [0.3, 0.3], [0.9, 0.1], [0.9, 0.1], [0.4, 0.5], [0.5, 0.4]]
        seen = grade(states(q_SA=q_SA, signal_S=np.zeros(6), masked_S=self.MASKED), 0)
        assert fit_schedule(seen, 1).action_K.tolist() == [0]


class TestWorlds:
    """Fifty validation prompts with eight states each, one hundred worlds."""

    def opened(self, world, **settings):
        seen = [grade(world(ValidationTable, seed, prompts=50, **settings), 0) for seed in range(100)]
        return np.mean([fit_gate(x, 10, folds=5, caution=0.0, seed=0).value is not None for x in seen])

    def test_an_informative_signal_opens_the_gate(self, world):
        assert self.opened(world) >= 0.9

    def test_a_useless_signal_with_a_harmful_action_does_not(self, world):
        assert self.opened(world, information=0, skill=0) <= 0.1

    def test_a_useless_signal_with_a_worthless_action_mostly_does_not(self, world):
        """Acting costs nothing here, so luck alone decides; choosing in sample would open nearly always."""
        assert self.opened(world, information=0, skill=0, loss=0) <= 0.5


class TestMeanGate:
    def test_bins_above_the_mean_open(self, states):
        """Four bins with opportunities 0, 0.1, 0.2 and 0.5: their mean is 0.2, which is not above itself."""
        g_S = np.repeat([0, 0.1, 0.2, 0.5], 5)
        seen = grade(states(q_SA=rising(g_S), signal_S=np.repeat([1, 2, 3, 4], 5), gain_S=g_S - 0.3), 0)
        tau = fit_mean_gate(seen, 4, **HOW)
        detector = fit_detector(seen, 4)
        assert tau.active(detector.g_B).tolist() == [False, False, False, True]
        assert tau.lift == pytest.approx(0.2 / 4)

    def test_it_opens_where_the_proposal_loses(self, states):
        """Lift shuts the gate; the mean asks nothing of the proposal, and says what comes of that."""
        g_S = np.repeat([0, 0.4], 10)
        seen = grade(states(q_SA=rising(g_S), signal_S=np.repeat([1, 2], 10), gain_S=np.full(20, -0.1)), 0)
        assert fit_gate(seen, 10, **HOW).value is None
        tau = fit_mean_gate(seen, 10, **HOW)
        assert tau.value == pytest.approx(0.4)
        assert tau.lift == pytest.approx(-0.05)
        assert tau.out_of_fold == pytest.approx(-0.05)
        assert mean_gate_gains(seen, 10, folds=2, seed=0).gain_S.mean() == pytest.approx(tau.out_of_fold)

    @pytest.mark.parametrize("signal", [5.0, np.nan])
    def test_never_where_no_bin_is_above(self, states, signal):
        seen = grade(states(q_SA=rising([0, 0.1, 0.2]), signal_S=[signal] * 3), 0)
        tau = fit_mean_gate(seen, 10, **HOW)
        assert (tau.value, tau.reason) == (None, "no bin has an opportunity above the mean of validation states")

    def test_out_of_fold_it_uses_the_other_folds_alone(self, states):
        """The only prompt with an opportunity opens no gate for itself."""
        g_S = np.array([0, 0, 0, 0.4])
        seen = grade(states(q_SA=rising(g_S), signal_S=[1, 1, 1, 2], gain_S=g_S), 0)
        assert fit_mean_gate(seen, 4, folds=4, caution=0.0, seed=0).lift == pytest.approx(0.1)
        assert mean_gate_gains(seen, 4, folds=4, seed=0).gain_S.tolist() == [0, 0, 0, 0]

    def test_levels_tell_bins_apart(self, states):
        seen = grade(states(q_SA=rising([0, 0.1, 0.3]), signal_S=[1, 2, 3]), 0)
        assert gate_levels(fit_detector(seen, 3)) == pytest.approx([0.2, 0.05, -np.inf])
