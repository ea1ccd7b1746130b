"""What a score finds on held-out states: measures by hand, ties by enumeration, controls by their expectation."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unmask.stats import (
    CalibrationSettings,
    ExperimentSettings,
    Scored,
    auroc,
    concentration,
    cross_fit,
    detection_measures,
    random_coverage,
)

QUICK = ExperimentSettings(CalibrationSettings(seed=0), seed=0, draws=20, resamples=20)


def scored(score_S, g_S, gain_S=None, prompt_S=None, acts_S=None):
    """States without noise: both folds say the same."""
    g_S = np.asarray(g_S, float)
    gain_S = g_S if gain_S is None else np.asarray(gain_S, float)
    prompt_S = np.arange(len(g_S)) if prompt_S is None else prompt_S
    acts_S = np.ones(len(g_S), bool) if acts_S is None else np.asarray(acts_S, bool)
    both_FS, gain_FS = np.stack([g_S] * 2), np.stack([gain_S] * 2)
    return Scored(np.asarray(score_S, float), g_S, both_FS, both_FS, gain_FS, acts_S, prompt_S)


class TestByHand:
    STATES = scored([4, 3, 2, 1, np.nan], [0.0, 0.3, 0.1, 0.0, 0.1], [-0.1, 0.3, 0.0, 0.0, 0.1])

    def test_the_ranks(self):
        found = detection_measures(self.STATES, QUICK)
        assert found.positive_rate.value == pytest.approx(0.6)
        assert found.auroc.value == pytest.approx(auroc([4, 3, 2, 1, 0], [0, 1, 1, 0, 1])[0]) == pytest.approx(2 / 6)
        assert found.reason == ""

    def test_at_a_coverage(self):
        at = detection_measures(self.STATES, replace(QUICK, coverages=(0.2, 0.4, 0.6, 1.0))).at
        assert [at[c].precision.value for c in at] == pytest.approx([0, 1 / 2, 2 / 3, 3 / 5])
        assert [at[c].recall.value for c in at] == pytest.approx([0, 1 / 3, 2 / 3, 1])
        assert [at[c].captured.value for c in at] == pytest.approx([0, 0.6, 0.8, 1])
        assert [at[c].concentration.value for c in at] == pytest.approx([0.6, 0.8, 1, 1])
        assert [at[c].efficiency.value for c in at] == pytest.approx([0, 0.75, 0.8, 1])
        # Over all five states, not over those that are covered.
        assert [at[c].lift.value for c in at] == pytest.approx([-0.02, 0.04, 0.04, 0.06])
        # The oracle ranks by opportunity: 0.3, then two of 0.1, whose gains 0 and 0.1 are equally likely.
        assert [at[c].oracle_lift.value for c in at] == pytest.approx([0.06, 0.07, 0.08, 0.06])

    def test_with_theta_only_states_whose_signal_reaches_it_gain(self):
        """And nothing else changes: which states are covered is not a matter of theta."""
        settings = replace(QUICK, coverages=(0.2, 0.4, 0.6, 1.0))
        columns = ([4, 3, 2, 1, np.nan], [0.0, 0.3, 0.1, 0.0, 0.1], [-0.1, 0.3, 0.0, 0.0, 0.1])
        plain = detection_measures(scored(*columns), settings).at
        assert [one.theta_lift for one in plain.values()] == [one.lift for one in plain.values()]
        at = detection_measures(scored(*columns, acts_S=[0, 1, 1, 0, 0]), settings).at
        # Flat from where all states that act are covered.
        assert [at[c].theta_lift.value for c in at] == pytest.approx([0.0, 0.06, 0.06, 0.06])
        assert {c: replace(at[c], theta_lift=None) for c in at} == {c: replace(plain[c], theta_lift=None) for c in at}

    def test_the_curve(self):
        curve = detection_measures(self.STATES, replace(QUICK, curve=(0.2, 0.4, 1.0))).curve
        np.testing.assert_allclose(curve.coverage_C, [0.2, 0.4, 1.0])
        np.testing.assert_allclose(curve.lift_C, [-0.02, 0.04, 0.06])
        np.testing.assert_allclose(curve.random_C, [0.012, 0.024, 0.06])
        np.testing.assert_allclose(curve.oracle_C, [0.06, 0.07, 0.06])
        assert (curve.low_C <= curve.lift_C + 1e-9).all()
        assert (curve.lift_C <= curve.high_C + 1e-9).all()

    def test_nan_stays_in_the_denominators(self):
        """Silent states hold half of all opportunity: full recall needs full coverage."""
        at = detection_measures(scored([1, 1, np.nan, np.nan], [0.1, 0.1, 0.1, 0.1]), QUICK).at
        assert at[0.5].recall.value == at[0.5].captured.value == 0.5
        assert at[1.0].captured.value == 1

    def test_wrong_sign(self):
        g_S = np.r_[np.zeros(10), np.linspace(0.1, 0.5, 10)]
        right, wrong = (detection_measures(scored(sign * g_S, g_S), QUICK) for sign in (1, -1))
        assert (right.auroc.value, wrong.auroc.value) == (1, 0)
        assert right.spearman.value == pytest.approx(1)
        assert wrong.spearman.value == pytest.approx(-1)
        assert right.at[0.5].captured.value == 1
        assert wrong.at[0.5].captured.value == 0
        assert right.at[0.1].lift.value > right.at[0.1].random_lift.value > wrong.at[0.1].lift.value


class TestNumbersThatDoNotExist:
    def test_no_positive_state(self):
        found = detection_measures(scored([1, 2, 3], [0, 0, 0]), QUICK)
        assert np.isnan([found.auroc.value, found.spearman.value, found.at[0.1].captured.value]).all()
        assert found.auroc.undefined == QUICK.resamples
        assert "0 of 3 held-out states have a positive opportunity" in found.reason
        assert "all opportunities are the same" in found.reason
        assert np.isnan(found.at[0.1].random_captured.value)
        assert np.isnan(found.at[0.1].recall.value)
        assert found.at[0.1].lift.value == 0
        assert found.unreliable.startswith("0 of 3 prompts")

    def test_only_positive_states(self):
        found = detection_measures(scored([1, 2, 3], [0.1, 0.2, 0.3]), QUICK)
        assert np.isnan(found.auroc.value)
        assert found.spearman.value == pytest.approx(1)
        assert found.reason.startswith("3 of 3")

    def test_one_prediction_for_all(self):
        found = detection_measures(scored([1, 1, 1], [0.1, 0, 0]), QUICK)
        assert found.auroc.value == 0.5
        assert "all predictions are the same" in found.reason
        assert found.at[0.1].captured.value == pytest.approx(0.1)

    def test_replicates_without_a_positive_state_are_counted(self):
        found = detection_measures(scored([2, 1, 1], [0.1, 0, 0]), replace(QUICK, resamples=500))
        # A replicate misses the one positive prompt with chance (2/3)^3, or draws nothing else with (1/3)^3.
        assert found.auroc.undefined == pytest.approx(500 * (8 + 1) / 27, abs=45)
        assert found.auroc.low == found.auroc.high == 1

    @pytest.mark.parametrize(("positive", "marked"), [(9, True), (10, False)])
    def test_few_positive_prompts_are_marked(self, positive, marked):
        g_S = np.r_[np.full(positive, 0.1), np.zeros(30)]
        assert bool(detection_measures(scored(g_S, g_S), QUICK).unreliable) == marked


class TestTies:
    @settings(max_examples=40)
    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=5), st.data())
    def test_are_the_mean_over_all_ways_to_break_them(self, states, data):
        score_S, g_S = np.array(states, float).T
        assume(g_S.sum() > 0)
        k = data.draw(st.integers(1, len(states)))
        orders = [list(o) for o in itertools.permutations(range(len(states))) if (np.diff(score_S[list(o)]) <= 0).all()]
        tops = [o[:k] for o in orders]
        at = detection_measures(scored(score_S, g_S / 10), replace(QUICK, coverages=(k / len(states),), resamples=1)).at
        (found,) = at.values()
        assert found.captured.value == pytest.approx(np.mean([g_S[t].sum() for t in tops]) / g_S.sum(), abs=1e-9)
        assert found.precision.value == pytest.approx(np.mean([(g_S[t] > 0).mean() for t in tops]))
        assert found.lift.value == pytest.approx(np.mean([g_S[t].sum() for t in tops]) / 10 / len(states))


def test_a_perfect_score_captures_what_there_is():
    rng = np.random.default_rng(0)
    q_SAR = np.repeat(rng.random((50, 3, 1)), 4, 2)
    fit = cross_fit(q_SAR, 0)
    found = detection_measures(scored(fit.g_S, fit.g_S), QUICK)
    for c, star in concentration(fit).items():
        assert found.at[c].captured.value == pytest.approx(star)
        assert found.at[c].efficiency.value == pytest.approx(1)
        assert found.at[c].lift.value == pytest.approx(found.at[c].oracle_lift.value)


def test_the_oracle_gate_does_not_grade_itself():
    """Folds that see gains where the other sees losses: ranked and graded on one fold this would look like a gain."""
    seen_FS = np.array([[0.4, 0.0], [0.0, 0.4]])
    gain_FS = np.array([[0.4, -0.4], [-0.4, 0.4]])
    states = Scored(
        np.array([1.0, 2.0]), np.zeros(2), np.zeros((2, 2)), seen_FS, gain_FS, np.ones(2, bool), np.arange(2)
    )
    found = detection_measures(states, replace(QUICK, coverages=(0.5,)))
    assert found.at[0.5].oracle_lift.value == pytest.approx(-0.2)


class TestRandomCoverage:
    def test_its_mean_is_coverage_times_all(self):
        value_SM = np.random.default_rng(0).random((37, 2))
        for found, total in zip(random_coverage(value_SM, (0.05, 0.3, 1.0), seed=0), value_SM.sum(0), strict=True):
            for c, estimate in found.items():
                assert estimate.value == pytest.approx(c * total, rel=0.01)
                assert estimate.low <= estimate.value + 1e-9
                assert estimate.value <= estimate.high + 1e-9
        assert found[1.0].low == pytest.approx(found[1.0].high)

    def test_its_spread_is_that_of_draws_without_replacement(self):
        """One of ten states has it all: at half coverage it is in or out."""
        (found,) = random_coverage(np.eye(10)[:, :1], (0.5,), seed=0)
        assert (found[0.5].low, found[0.5].high) == (0, 1)

    def test_part_of_a_state_counts_in_part(self):
        (found,) = random_coverage(np.ones((3, 1)), (0.5,), seed=0, draws=3)
        assert found[0.5].low == found[0.5].high == pytest.approx(1.5)

    def test_how_many_are_held_at_a_time_changes_nothing(self, monkeypatch):
        value_SM = np.random.default_rng(0).random((11, 1))
        whole = random_coverage(value_SM, (0.2,), seed=0, draws=100)
        monkeypatch.setattr("unmask.stats.detection._CELLS", 33)
        assert random_coverage(value_SM, (0.2,), seed=0, draws=100) == whole


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ties": "first"}, "one of expectation, signal"),
        ({"coverages": (10.0,)}, "at most 1"),
        ({"curve": (0.0,)}, "above 0"),
        ({"draws": 0}, "draws is 0"),
        ({"resamples": 0}, "resamples 0"),
        ({"level": 1.0}, "level 1.0"),
    ],
)
def test_refusals(change, words):
    with pytest.raises(ValueError, match=words):
        replace(QUICK, **change)
