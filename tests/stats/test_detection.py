"""E2 and E3 on held-out frames: measures by hand, ties by enumeration, controls by their expectation, intervals."""

import numpy as np
import pandas as pd
import pytest

from unmask.stats import COVERAGES, CalibrationSettings, auroc
from unmask.stats.measures import (
    ARMS,
    compare_detectors,
    detection_measures,
    mean_detection,
    mean_detector_comparison,
    measure_detection,
    why_ranking_missing,
)
from unmask.stats.protocol import HeldOutSet, ValidationSet, fit_calibration, held_out_frame
from unmask.stats.resampling import estimate_measures

SETTINGS = CalibrationSettings(seed=0)


def frame_of(score_S, g_S, gain_S=None, prompt_S=None, **columns):
    """Held-out states without noise: both folds say the same."""
    g_S = np.asarray(g_S, float)
    gain_S = g_S if gain_S is None else np.asarray(gain_S, float)
    count = len(g_S)
    zeros, ones = np.zeros(count), np.ones(count, bool)
    given = {
        "prompt": np.arange(count) if prompt_S is None else prompt_S,
        "place": np.zeros(count, int),
        "bin": np.where(np.isnan(np.asarray(score_S, float)), -1, 0),
        "predicted": np.asarray(score_S, float),
        "proposes": ones,
        "acts": ones,
        "opens": ones,
        "fixed": zeros + 0.5,
        "stage": zeros,
        "always": gain_S,
        "diagnostic": gain_S,
        "selective": gain_S,
        "oracle": g_S,
        "same_fixed": ~ones,
        "same_oracle": zeros,
        "same_any": ~ones,
    }
    folds = {f"{name}_{f}": x_S for f in (0, 1) for name, x_S in (("oracle", g_S), ("seen", g_S), ("always", gain_S))}
    return pd.DataFrame({**given, **folds, **columns})


def quick(frame, **how):
    return measure_detection(frame, **{"seed": 0, "draws": 20, "resamples": 20, **how})


def point(frame, coverages=COVERAGES):
    """Every measure of the states as they are."""
    found = detection_measures(frame, coverages, np.ones((1, len(frame))))
    return {key: float(x_D[0]) for key, x_D in found.items()}


class TestByHand:
    FRAME = frame_of([4, 3, 2, 1, np.nan], [0.0, 0.3, 0.1, 0.0, 0.1], [-0.1, 0.3, 0.0, 0.0, 0.1])

    def test_the_ranks(self):
        found = quick(self.FRAME)
        assert found["positive_rate"].value == pytest.approx(0.6)
        assert found["auroc"].value == pytest.approx(auroc([4, 3, 2, 1, 0], [0, 1, 1, 0, 1])[0]) == pytest.approx(2 / 6)
        assert found["auroc_among"].value == pytest.approx(2 / 4)
        assert why_ranking_missing(self.FRAME) == ""

    def test_at_a_coverage(self):
        coverages = (0.2, 0.4, 0.6, 1.0)
        found = point(self.FRAME, coverages)
        wanted = {
            "precision": [0, 1 / 2, 2 / 3, 3 / 5],
            "recall": [0, 1 / 3, 2 / 3, 1],
            "captured": [0, 0.6, 0.8, 1],
            "concentration": [0.6, 0.8, 1, 1],
            "efficiency": [0, 0.75, 0.8, 1],
            # Over all five states, not over those that are covered.
            "ranked_lift": [-0.02, 0.04, 0.04, 0.06],
            "theta_lift": [-0.02, 0.04, 0.04, 0.06],
            # The oracle ranks by opportunity: 0.3, then two of 0.1, whose gains 0 and 0.1 are equally likely.
            "oracle_lift": [0.06, 0.07, 0.08, 0.06],
        }
        for name, values in wanted.items():
            assert [found[name, c] for c in coverages] == pytest.approx(values), name

    def test_with_theta_only_states_whose_signal_reaches_it_gain(self):
        """And nothing else changes: which states are covered is not a matter of theta."""
        coverages = (0.2, 0.4, 0.6, 1.0)
        acts = self.FRAME.assign(acts=np.array([0, 1, 1, 0, 0], bool))
        one, plain = point(acts, coverages), point(self.FRAME, coverages)
        # Flat from where all states that act are covered.
        assert [one["theta_lift", c] for c in coverages] == pytest.approx([0.0, 0.06, 0.06, 0.06])
        changed = {key for key in one if one[key] != plain[key] and not np.isnan(one[key])}
        assert {name for name, _ in changed} == {"theta_lift", "acted"}

    def test_arms_regret_and_agreement(self):
        """The gate opens at three of five states; the diagnostic acts at two, and abstains at one."""
        frame = self.FRAME.assign(
            proposes=np.array([1, 1, 1, 1, 0], bool),
            acts=np.array([0, 1, 1, 0, 0], bool),
            opens=np.array([1, 1, 1, 0, 0], bool),
            stage=[0.1, 0.0, 0.0, 0.0, 0.0],
            diagnostic=[0.0, 0.3, 0.0, 0.0, 0.0],
            selective=[-0.1, 0.3, 0.0, 0.0, 0.0],
            same_fixed=np.array([0, 1, 0, 1, 0], bool),
            same_oracle=[1.0, 0.5, 0.0, 0.0, 0.0],
        )
        found = point(frame)
        assert found["lift", "selective"] == pytest.approx(0.2 / 5)
        assert found["utility", "selective"] == pytest.approx(0.5 + 0.2 / 5)
        assert found["coverage", ""] == pytest.approx(3 / 5)
        assert found["acted", ""] == pytest.approx(2 / 5)
        assert found["abstained", ""] == pytest.approx(1 / 5)
        assert found["regret", ""] == pytest.approx((0.5 - 0.3) / 5)
        assert found["stage_regret", ""] == pytest.approx((0.5 - 0.1) / 5)
        assert found["less_regret", ""] == pytest.approx(0.2 / 5)
        assert found["recovered", ""] == pytest.approx(0.6)
        assert found["stage_recovered", ""] == pytest.approx(0.2)
        # Of four proposals.
        assert found["agrees_fixed", ""] == pytest.approx(2 / 4)
        assert found["agrees_oracle", ""] == pytest.approx(1.5 / 4)

    def test_wrong_sign(self):
        g_S = np.r_[np.zeros(10), np.linspace(0.1, 0.5, 10)]
        right, wrong = (quick(frame_of(sign * g_S, g_S)) for sign in (1, -1))
        assert (right["auroc"].value, wrong["auroc"].value) == (1, 0)
        assert right["spearman"].value == pytest.approx(1)
        assert wrong["spearman"].value == pytest.approx(-1)
        lifts = [found["ranked_lift", 0.1].value for found in (right, wrong)]
        assert lifts[0] > right["random_lift", 0.1].value > lifts[1]

    def test_the_oracle_gate_does_not_grade_itself(self):
        """Folds that see gains where the other sees losses: on one fold this would look like a gain."""
        frame = frame_of([1.0, 2.0], [0.0, 0.0]).assign(
            seen_0=[0.4, 0.0], seen_1=[0.0, 0.4], always_0=[0.4, -0.4], always_1=[-0.4, 0.4]
        )
        assert point(frame, (0.5,))["oracle_lift", 0.5] == pytest.approx(-0.2)


class TestNumbersThatDoNotExist:
    def test_no_positive_state(self):
        frame = frame_of([1, 2, 3], [0, 0, 0])
        found = quick(frame)
        keys = [("auroc", ""), ("spearman", ""), ("captured", 0.1), ("random_captured", 0.1), ("recall", 0.1)]
        assert np.isnan([found[key].value for key in [*keys, ("recovered", "")]]).all()
        assert found["auroc"].undefined == found["recovered"].undefined == 20
        assert "0 of 3 held-out states have a positive opportunity" in why_ranking_missing(frame)
        assert "all opportunities are the same" in why_ranking_missing(frame)
        assert found["ranked_lift", 0.1].value == 0
        assert found.why_unreliable.startswith("0 of 3 prompts")

    def test_only_positive_states_and_one_prediction_for_all(self):
        assert why_ranking_missing(frame_of([1, 2, 3], [0.1, 0.2, 0.3])).startswith("3 of 3")
        frame = frame_of([1, 1, 1], [0.1, 0, 0])
        assert "all predictions are the same" in why_ranking_missing(frame)
        assert point(frame)["auroc", ""] == 0.5
        assert point(frame)["captured", 0.1] == pytest.approx(0.1)


class TestRandomStates:
    def test_their_mean_is_coverage_times_all(self):
        rng = np.random.default_rng(0)
        g_S, gain_S = rng.random((2, 37))
        found = quick(frame_of(rng.random(37), g_S, gain_S), draws=10_000)
        for c in COVERAGES:
            assert found["random_captured", c].value == pytest.approx(c, rel=0.01)
            assert found["random_lift", c].value == pytest.approx(c * gain_S.mean(), rel=0.01)
        assert found["random_lift", 1.0].low == pytest.approx(found["random_lift", 1.0].high)

    def test_their_spread_is_that_of_draws_without_replacement(self):
        """One of ten states has it all: at half coverage it is in or out. Part of a state counts in part."""
        found = quick(frame_of(np.zeros(10), np.eye(10)[0]), draws=1000)
        assert (found["random_captured", 0.5].low, found["random_captured", 0.5].high) == (0, 1)
        even = quick(frame_of(np.zeros(3), np.ones(3)), draws=3)["random_captured", 0.5]
        assert even.low == even.high == pytest.approx(0.5)


# Simulated worlds


def held_out(world, seed=0, *, proposal="raw", **how):
    chosen = fit_calibration(world(ValidationSet, seed, **how), SETTINGS.with_changes(proposal=proposal))
    return held_out_frame(world(HeldOutSet, seed, **how), chosen), chosen


def test_prompts_are_resampled_whole(world):
    """Every state four times has the same intervals: copies are no evidence."""
    frame, _ = held_out(world)
    copies = frame.loc[frame.index.repeat(4)].reset_index(drop=True)
    one, four = quick(frame), quick(copies)
    for key in (("lift", "selective"), ("auroc", ""), ("captured", 0.1)):
        assert (one[key].value, one[key].low, one[key].high) == pytest.approx(
            (four[key].value, four[key].low, four[key].high)
        )


class TestMeansOverTasks:
    def test_a_task_of_a_few_prompts_weighs_as_much_as_one_of_many(self, world):
        many, _ = held_out(world)
        few = many[many["prompt"].isin(["h0", "h1", "h2"])]
        found = mean_detection({"many": many, "few": few}, seed=0, resamples=50)
        for arm in ARMS[1:]:
            wanted = (many[arm].mean() + few[arm].mean()) / 2
            assert found["lift", arm].value == pytest.approx(wanted)
            assert found["utility", arm].value == pytest.approx(found["utility", "fixed"].value + wanted)
        assert found["coverage", ""].value == pytest.approx((many["opens"].mean() + few["opens"].mean()) / 2)
        lift = {arm: found["lift", arm].value for arm in ARMS[1:]}
        assert found["recovered", ""].value == pytest.approx(lift["diagnostic"] / lift["oracle"])
        assert found["less_regret", ""].value == pytest.approx(lift["diagnostic"] - lift["stage"])


class TestTwoDetectors:
    """Bins and a rival: the bins' numbers are those of E3, and differences are paired."""

    @pytest.fixture
    def frame(self, world):
        made, _ = held_out(world, information=0.5)
        rng = np.random.default_rng(0)
        better = made["oracle"] + 0.1 * rng.normal(size=len(made))
        return made.assign(learned=better, learned_opens=better > 0.1)

    def compared(self, frame):
        return estimate_measures(lambda w: compare_detectors(frame, w), frame["prompt"], seed=0, resamples=50)

    def test_the_bins_numbers_are_those_of_e3(self, frame):
        e3, found = quick(frame, resamples=50), self.compared(frame)
        for name in ("auroc", "auroc_among", "auroc_within", "spearman", "coverage"):
            if name not in ("auroc_among", "auroc_within"):
                assert found["bins", name, ""] == e3[name]
            assert found["bins", name, ""].value == e3[name].value
        assert found["bins", "selective", ""] == e3["lift", "selective"]
        for c in COVERAGES:
            assert found["bins", "captured", c] == e3["captured", c]
            assert found["bins", "ranked_lift", c] == e3["ranked_lift", c]

    def test_numbers_that_say_more_win_and_differences_are_paired(self, frame):
        found = self.compared(frame)
        for name, at in (("auroc", ""), ("spearman", ""), ("captured", 0.1), ("ranked_lift", 0.1)):
            assert found["difference", name, at].positive, name
            learned, bins = (found[which, name, at].value for which in ("learned", "bins"))
            assert found["difference", name, at].value == pytest.approx(learned - bins)
        twin = frame.assign(learned=frame["predicted"], learned_opens=frame["opens"])
        for (which, name, _), estimate in self.compared(twin).items():
            if which == "difference":
                assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0), name
        everywhere = found["difference", "ranked_lift", 1.0]
        assert (everywhere.low, everywhere.high) == (0, 0)

    def test_means_count_each_task_and_its_settings_the_same(self, frame):
        other, third = (frame.sample(frac=0.7, random_state=k).reset_index(drop=True) for k in (1, 2))
        single = [self.compared(one) for one in (frame, other, third)]
        found = mean_detector_comparison({"a": [frame], "b": [other, third]}, seed=0, resamples=50)
        for key, estimate in found.items():
            a, b, c = (one[key].value for one in single)
            assert estimate.value == pytest.approx(a / 2 + (b + c) / 4), key

    def test_a_number_that_does_not_exist_is_no_part_of_its_mean(self, frame):
        flat = frame.assign(oracle=0.0)
        alone, both, nothing = (
            mean_detector_comparison(frames, seed=0, resamples=20)
            for frames in ({"a": [frame]}, {"a": [frame], "b": [flat]}, {"b": [flat]})
        )
        for key in (("difference", "auroc", ""), ("difference", "captured", 0.1)):
            assert both[key].value == alone[key].value
            assert np.isnan(nothing[key].value)
        assert np.isfinite(nothing["difference", "ranked_lift", 0.1].value)


class TestWorlds:
    """One hundred studies: sixty validation and sixty held-out prompts with eight states each."""

    def lifts(self, world, **how):
        return np.array([held_out(world, k, **how)[0]["selective"].mean() for k in range(100)])

    def test_an_informative_signal_pays(self, world):
        lift = self.lifts(world)
        assert np.mean(lift > 0) >= 0.85
        assert lift.mean() > 0.003

    def test_a_useless_signal_costs_little(self, world):
        """A harmful action taken at random would cost 0.018 a state."""
        assert self.lifts(world, information=0, skill=0).mean() > -0.001


@pytest.mark.slow
def test_intervals_hold_the_truth(world):
    """Two hundred studies of 100 prompts, against what the frozen calibration is worth in 4,000.

    Three standard errors below 93 of 100 is 87.6.
    """
    keys = [("lift", "selective"), ("lift", "oracle"), ("auroc", ""), ("spearman", ""), ("ranked_lift", 0.1)]
    keys += [("captured", 0.1), ("captured", 0.2), ("efficiency", 0.2), ("recall", 0.2), ("oracle_lift", 0.1)]
    chosen = fit_calibration(world(ValidationSet, 0, prompts=100), SETTINGS)
    truth = point(held_out_frame(world(HeldOutSet, 10_000, prompts=4000), chosen))
    hit = dict.fromkeys(keys, 0)
    for k in range(200):
        frame = held_out_frame(world(HeldOutSet, k, prompts=100), chosen)
        found = estimate_measures(
            lambda w, frame=frame: detection_measures(frame, (0.1, 0.2), w), frame["prompt"], seed=k, resamples=500
        )
        for key in keys:
            hit[key] += found[key].low - 1e-9 <= truth[key] <= found[key].high + 1e-9
    for key, count in hit.items():
        assert count / 200 >= 0.876, key
