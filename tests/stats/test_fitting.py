"""Bins of the signal, thresholds and schedules, by hand and in simulated worlds; and the file they are kept in."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.base.errors import ConfigError
from unmask.base.json_files import HashMismatch, hash_body
from unmask.stats import Calibration, CalibrationSettings, fit_detector, fit_schedule, stage_numbers
from unmask.stats.fitting import (
    FORMAT,
    ValidationGains,
    assign_prompt_folds,
    fit_action_threshold,
    fit_gate_threshold,
    gate_gains,
    predict_out_of_fold,
)
from unmask.stats.protocol import ValidationSet, fit_calibration, gains_out_of_fold

SETTINGS = CalibrationSettings(seed=0)


def gains(signal_S, g_S=None, gain_S=None, prompt_S=None, folds=2):
    """Validation states beside a fixed action: one prompt for each state, unless told otherwise."""
    signal_S = np.asarray(signal_S, float)
    zeros_S = np.zeros(len(signal_S))
    prompt_S = np.arange(len(signal_S)) if prompt_S is None else np.asarray(prompt_S)
    fold_P = assign_prompt_folds(int(prompt_S.max()) + 1, folds, 0)
    g_S, gain_S = (zeros_S if x_S is None else np.asarray(x_S, float) for x_S in (g_S, gain_S))
    return ValidationGains(prompt_S, fold_P[prompt_S], signal_S, g_S, gain_S)


def fit_theta(states, caution=0.0):
    return fit_action_threshold(states, 4, caution)


def fit_tau(states, bins=4, rule="lift"):
    return fit_gate_threshold(states, bins, 0.0, rule)


def test_bins_out_of_fold_are_fitted_on_the_states_of_the_bins_in_the_file():
    """Those with an opportunity, whether their proposals have a utility or not."""
    g_S, gain_S = np.arange(12) / 10, np.where(np.arange(12) % 3, 0.1, np.nan)
    states = gains(np.arange(12.0), g_S, gain_S, folds=3)
    predicted_S = predict_out_of_fold(states, 4)
    for fold in states.folds:
        here_S = states.fold_S == fold
        detector = fit_detector(states.signal_S[~here_S], g_S[~here_S], 4)
        np.testing.assert_array_equal(predicted_S[here_S], detector.predict(states.signal_S[here_S]))


class TestBins:
    def test_by_hand(self):
        """Twenty signals in ten bins: two states each, the mean opportunity of the two."""
        g_S = np.arange(20) / 100
        found = fit_detector(np.arange(20) * 3.0, g_S, 10)
        np.testing.assert_allclose(found.start_E, np.arange(2, 20, 2) * 3.0)
        np.testing.assert_allclose(found.g_B, g_S.reshape(10, 2).mean(1))
        assert found.states_B.tolist() == [2] * 10
        assert found.positive_B.tolist() == [1] + [2] * 9

    def test_equal_signals_share_a_bin(self):
        """Six zeros fill six tenths; the other four states have a tenth each."""
        g_S = np.array([0, 0, 0, 0, 0, 0.06, 0.1, 0.2, 0.3, 0.4])
        found = fit_detector(np.array([0.0] * 6 + [1, 2, 3, 4]), g_S, 10)
        assert found.states_B.tolist() == [6, 1, 1, 1, 1]
        np.testing.assert_allclose(found.g_B, [0.01, 0.1, 0.2, 0.3, 0.4])

    def test_out_of_range_goes_to_the_end_bins(self):
        found = fit_detector(np.array([1.0, 2, 3, 4]), np.array([0, 0.1, 0.2, 0.3]), 4)
        np.testing.assert_allclose(found.predict([-np.inf, 0.5, 2.5, 99, np.inf]), [0, 0, 0.1, 0.3, 0.3])
        infinite = fit_detector(np.array([-np.inf, 0, np.inf]), np.array([0, 0.1, 0.2]), 3)
        np.testing.assert_allclose(infinite.g_B, [0, 0.1, 0.2])

    @given(st.lists(st.integers(-3, 3) | st.just(None), min_size=1, max_size=30), st.integers(1, 12))
    def test_no_bin_is_empty_and_the_mean_is_kept(self, signals, bins):
        signal_S = np.array([np.nan if x is None else x for x in signals], float)
        g_S = np.random.default_rng(0).random(len(signal_S))
        found, known_S = fit_detector(signal_S, g_S, bins), ~np.isnan(signal_S)
        if known_S.any():
            assert (found.states_B > 0).all()
            assert len(found.g_B) <= bins
            np.testing.assert_allclose((found.states_B * found.g_B).sum(), g_S[known_S].sum())
            np.testing.assert_array_equal(np.bincount(found.find_bin(signal_S[known_S])), found.states_B)
        assert found.without_signal == (~known_S).sum()


class TestTheta:
    SIGNAL_S = np.tile(np.arange(4.0), 10)

    def test_by_hand(self):
        """Signals 0 to 3, on prompts of either fold; the diagnostic loses below 2 and gains from there on."""
        found = fit_theta(gains(self.SIGNAL_S, gain_S=np.where(self.SIGNAL_S >= 2, 0.2, -0.1)))
        assert found.value == 2
        assert found.lift == found.out_of_fold == pytest.approx(0.1)
        assert found.reason == ""
        assert found.is_reached([1.9, 2, 5, np.nan]).tolist() == [False, True, True, False]

    def test_wrong_sign_means_never(self):
        found = fit_theta(gains(self.SIGNAL_S, gain_S=np.where(self.SIGNAL_S >= 2, -0.2, 0.1)))
        assert found.value is None
        assert "no threshold gains anything" in found.reason
        assert not found.is_reached([-9, 0, 9, np.inf]).any()

    def test_of_equal_gains_the_highest_deviates_least(self):
        assert fit_theta(gains(self.SIGNAL_S, gain_S=np.where(self.SIGNAL_S == 3, 0.2, 0.0))).value == 3

    def test_what_one_fold_alone_gains_is_not_believed(self):
        """One prompt gains much and all others lose a little: the sum is positive, out of fold it is not."""
        gain_S = np.full(8, -0.05)
        gain_S[-1] = 0.5
        found = fit_action_threshold(gains(np.arange(8.0), gain_S=gain_S), 8, 0.0)
        assert found.value is None
        assert found.out_of_fold <= 0
        assert "out of fold" in found.reason

    def test_caution_asks_for_more(self):
        seen = gains(self.SIGNAL_S, gain_S=np.where(self.SIGNAL_S >= 2, 0.2, -0.1) + np.tile([0.2, -0.2], 20))
        found = fit_theta(seen)
        assert found.value is not None
        cautious = fit_theta(seen, caution=1 + found.out_of_fold / found.error)
        assert cautious.value is None
        assert "standard errors" in cautious.reason
        assert (cautious.out_of_fold, cautious.error) == (found.out_of_fold, found.error)


class TestTau:
    SIGNAL_S = np.tile(np.arange(4.0), 10)

    def test_by_hand(self):
        """Opportunity 0, 0.1, 0.2, 0.3 by signal; the diagnostic gains where it is 0.2 or more. Tau is halfway."""
        gain_S = np.where(self.SIGNAL_S >= 2, 0.2, -0.1)
        found = fit_tau(gains(self.SIGNAL_S, self.SIGNAL_S / 10, gain_S, np.repeat(np.arange(10), 4)))
        assert found.value == pytest.approx(0.15)
        assert found.out_of_fold == pytest.approx(0.1)
        assert found.is_reached([0.1, 0.2, 0.3, np.nan]).tolist() == [False, True, True, False]

    def test_a_useless_action_stays_shut(self):
        """Opportunity is plain to see, and the diagnostic's action takes none of it."""
        assert fit_tau(gains(self.SIGNAL_S, self.SIGNAL_S / 10, [-0.1] * 40)).value is None

    @pytest.mark.parametrize(("g", "which"), [(0.0, "no"), (0.1, "every")])
    def test_one_class_is_never(self, g, which):
        found = fit_tau(gains(np.arange(8.0), [g] * 8, [0.1] * 8))
        assert found.value is None
        assert found.reason.startswith(f"{which} validation state has a positive opportunity")

    def test_predictions_are_out_of_fold(self):
        """Each state has a signal of its own: only a detector that saw the state predicts its opportunity."""
        rng = np.random.default_rng(0)
        g_S = rng.choice([0.0, 0.3], 60)
        seen = gains(rng.permutation(60), g_S, np.where(g_S > 0, 0.3, -0.3))
        assert fit_tau(seen, 60).out_of_fold < 0.05
        in_sample_S = fit_detector(seen.signal_S, seen.g_S, 60).predict(seen.signal_S)
        assert np.mean(seen.gain_S[in_sample_S > 0.15]) == pytest.approx(0.3)


class TestMeanRule:
    def test_bins_above_the_mean_open(self):
        """Four bins with opportunities 0, 0.1, 0.2 and 0.5: their mean is 0.2, which is not above itself."""
        g_S = np.repeat([0, 0.1, 0.2, 0.5], 5)
        tau = fit_tau(gains(np.repeat([1, 2, 3, 4], 5), g_S, g_S - 0.3), rule="mean")
        assert tau.is_reached([0, 0.1, 0.2, 0.5]).tolist() == [False, False, False, True]
        assert tau.lift == pytest.approx(0.2 / 4)

    def test_it_opens_where_the_proposal_loses(self):
        """Lift shuts the gate; the mean asks nothing of the proposal, and says what comes of that."""
        seen = gains(np.repeat([1, 2], 10), np.repeat([0, 0.4], 10), np.full(20, -0.1))
        assert fit_tau(seen, 10).value is None
        tau = fit_tau(seen, 10, "mean")
        assert tau.value == pytest.approx(0.4)
        assert tau.lift == tau.out_of_fold == pytest.approx(-0.05)
        assert gate_gains(seen, 10, "mean").mean() == tau.out_of_fold

    def test_out_of_fold_it_uses_the_other_folds_alone(self):
        """The only prompt with an opportunity opens no gate for itself."""
        g_S = [0, 0, 0, 0.4]
        seen = gains([1, 1, 1, 2], g_S, g_S, folds=4)
        assert fit_tau(seen, 4, "mean").lift == pytest.approx(0.1)
        assert gate_gains(seen, 4, "mean").tolist() == [0, 0, 0, 0]


def test_folds_hold_whole_prompts_evenly():
    fold_P = assign_prompt_folds(23, 5, 0)
    assert sorted(np.bincount(fold_P)) == [4, 4, 5, 5, 5]
    assert (assign_prompt_folds(23, 5, 1) != fold_P).any()
    assert assign_prompt_folds(3, 5, 0).max() == 2


class TestSchedule:
    MEAN_SA = np.array([[0.2, 0.4], [0.3, 0.3], [0.9, 0.1], [0.9, 0.1], [0.4, 0.5], [0.5, 0.4]])
    MASKED = np.array([0.9, 0.9, 0.6, 0.6, 0.3, 0.3])

    def test_by_hand(self):
        """Action 1 is better in the first stage, 0 in the second, they tie in the third, and the last is empty."""
        found = fit_schedule(self.MEAN_SA, self.MASKED, fixed=0, reference=0)
        assert found.action_K.tolist() == [1, 0, 0, 0]
        assert found.states_K.tolist() == [2, 2, 2, 0]
        assert found.actions([1.0, 0.7, 0.3, 0.0]).tolist() == [1, 0, 0, 0]
        assert fit_schedule(self.MEAN_SA, self.MASKED, 0, 0, count=1).action_K.tolist() == [0]

    def test_ties_go_to_the_fixed_action_then_the_reference(self):
        mean_SA, masked_S = np.array([[0.2, 0.5, 0.5]] * 2), np.ones(2)
        assert fit_schedule(mean_SA, masked_S, fixed=1, reference=2, count=1).action_K.tolist() == [1]
        assert fit_schedule(mean_SA, masked_S, fixed=0, reference=2, count=1).action_K.tolist() == [2]

    def test_stages(self):
        assert stage_numbers(1 - np.arange(8) / 8).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert stage_numbers([1.0, 0.75, 0.5, 0.25, 0.0]).tolist() == [0, 1, 2, 3, 3]
        assert stage_numbers([1.0, 0.4], count=2).tolist() == [0, 1]
        for bad in (1.1, -0.1, np.nan):
            with pytest.raises(ValueError, match="fractions of the answer"):
                stage_numbers([bad])


class TestWorlds:
    """Fifty validation prompts with eight states each, one hundred worlds."""

    def opened(self, world, **how):
        settings = SETTINGS.with_changes(fixed_out_of_fold=False)
        seen = [gains_out_of_fold(world(ValidationSet, k, prompts=50, **how), 0, settings) for k in range(100)]
        return np.mean([fit_tau(one, 10).value is not None for one in seen])

    def test_an_informative_signal_opens_the_gate(self, world):
        assert self.opened(world) >= 0.9

    def test_a_useless_signal_with_a_harmful_action_does_not(self, world):
        assert self.opened(world, information=0, skill=0) <= 0.1


# Settings, and the file


@pytest.fixture
def found(world):
    return fit_calibration(world(ValidationSet, 0), SETTINGS)


class TestFile:
    def test_there_and_back(self, found, tmp_path):
        (tmp_path / "detector.json").write_text(found.to_json(), encoding="utf-8")
        again = Calibration.load(tmp_path / "detector.json")
        assert again.to_json() == found.to_json() == (tmp_path / "detector.json").read_text()
        signal_S = np.array([-9, 0.1, np.nan, 9])
        np.testing.assert_array_equal(again.detector.predict(signal_S), found.detector.predict(signal_S))
        assert (again.tau, again.settings) == (found.tau, found.settings)

    def test_its_bytes_are_those_of_older_files(self, world):
        """Key by key, in this order: gates and studies hash the text."""
        body = json.loads(fit_calibration(world(ValidationSet, 0), SETTINGS).to_json())["body"]
        assert list(body) == [
            "candidates", "reference", "fixed", "schedule", "detector", "theta", "tau", "prompts", "settings"
        ]  # fmt: skip
        assert list(body["detector"]) == ["start_E", "g_B", "states_B", "positive_B", "silent"]
        assert list(body["tau"]) == ["value", "lift", "out_of_fold", "error", "reason"]
        assert body["settings"] == {
            "seed": 0, "proposal": "raw", "bins": 10, "stages": 4, "prompt_folds": 5, "caution": 0.0, "apart": True,
            "theta": True, "folds": None, "deterministic": False,
        }  # fmt: skip
        assert list(body["settings"])[6:] == ["apart", "theta", "folds", "deterministic"]
        later = SETTINGS.with_changes(rule="mean").to_body()
        assert list(later)[-1] == "rule"

    def test_an_edited_file_and_another_format_are_refused(self, found):
        whole = json.loads(found.to_json())
        assert Calibration.from_json(json.dumps(whole)).to_json() == found.to_json()
        whole["body"]["tau"]["value"] = -0.5
        with pytest.raises(HashMismatch, match="edited"):
            Calibration.from_json(json.dumps(whole))
        with pytest.raises(HashMismatch, match="this version reads unmask-detector-1"):
            Calibration.from_json(found.to_json().replace("unmask-detector-1", "unmask-detector-2"))

    @pytest.mark.parametrize(
        "edit",
        [
            lambda body: body.pop("tau"),
            lambda body: body.update(more=1),
            lambda body: body["tau"].update(more=1),
            lambda body: body["tau"].pop("reason"),
            lambda body: body["settings"].update(more=1),
            lambda body: body["settings"].update(theta=False),
            lambda body: body["fixed"].update(action=99),
            lambda body: body["fixed"].update(mean_A=[0.5]),
            lambda body: body["detector"].update(start_E=body["detector"]["start_E"][::-1]),
            lambda body: body["detector"].update(g_B=[]),
            lambda body: body.update(detector=3),
            lambda body: body["schedule"].update(action_K=[0.5]),
            lambda body: body["settings"].update(bins=0),
        ],
    )
    def test_a_body_that_is_none_is_refused_even_with_its_hash(self, found, edit):
        whole = json.loads(found.to_json())
        edit(whole["body"])
        whole["hash"] = hash_body(FORMAT, whole["body"])
        with pytest.raises(HashMismatch, match="detector"):
            Calibration.from_json(json.dumps(whole))

    def test_another_machine_may_round_otherwise(self, found):
        moved = Calibration.from_json(found.to_json())
        for off, agrees in ((1e-13, True), (1e-5, False)):
            moved.fixed.mean_A[:] = found.fixed.mean_A * (1 + off)
            assert found.agrees(moved) == agrees


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": -1}, "seed"),
        ({"bins": 0}, "bins"),
        ({"stages": 0}, "stages"),
        ({"prompt_folds": 1}, "prompt_folds"),
        ({"caution": np.nan}, "caution"),
        ({"proposal": "x"}, "raw"),
        ({"fixed": "best"}, "one-step"),
        ({"rule": "x"}, "lift"),
    ],
)
def test_settings_are_checked(change, words):
    with pytest.raises(ConfigError, match=words):
        SETTINGS.with_changes(**change)
