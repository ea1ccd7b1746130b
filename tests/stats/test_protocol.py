"""From states to choices and a held-out frame: what may be fitted to what, gains, and every column by hand."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.stats.test_guarantee import MadeUpTask
from unmask.stats import Calibration, CalibrationSettings
from unmask.stats.protocol import (
    HeldOutSet,
    LeakageError,
    ProposedAction,
    ValidationSet,
    choose_fixed,
    estimate_gate_lift,
    estimate_tested_lift,
    fit_calibration,
    gains_out_of_fold,
    gains_over_fixed,
    held_out_frame,
    require_disjoint_prompts,
)

SETTINGS = CalibrationSettings(seed=0)
SMALL = CalibrationSettings(seed=0, bins=4, prompt_folds=2)
Q_SA = [[0.5, 0.75], [0.5, 0.25], [0.5, 0.5]]


class TestLeakage:
    def test_held_out_states_are_refused_by_whatever_fits(self, states):
        columns = {"q_SA": Q_SA, "signal_S": [1, 2, 3]}
        validation, held_out = states(**columns), states(HeldOutSet, **columns)
        chosen = fit_calibration(validation, SETTINGS)
        for fit in (
            lambda given: fit_calibration(given, SETTINGS),
            lambda given: gains_out_of_fold(given, 0, SETTINGS),
            lambda given: estimate_gate_lift(given, chosen),
            lambda given: estimate_tested_lift(given, chosen),
        ):
            fit(validation)
            with pytest.raises(LeakageError, match="are a HeldOutSet; allowed here: a ValidationSet"):
                fit(held_out)

    def test_validation_states_are_not_measured_on(self, states):
        validation = states(q_SA=Q_SA, signal_S=[1, 2, 3])
        with pytest.raises(LeakageError, match="allowed here: a HeldOutSet"):
            held_out_frame(validation, fit_calibration(validation, SETTINGS))
        with pytest.raises(LeakageError, match="allowed here: a HeldOutSet"):
            require_disjoint_prompts(validation, validation)

    def test_a_common_prompt_and_other_candidates_are_refused(self, states):
        columns = {"q_SA": Q_SA, "signal_S": [1, 2, 3]}
        require_disjoint_prompts(states(**columns), states(HeldOutSet, **columns))
        with pytest.raises(LeakageError, match="prompt '2' and 0 others are in both"):
            require_disjoint_prompts(states(**columns), states(HeldOutSet, **columns, prompt_S=np.array([7, 2, 9])))
        with pytest.raises(ValueError, match="must have the same, in one order"):
            require_disjoint_prompts(states(**columns), states(HeldOutSet, **columns, candidates=("b", "a")))

    def test_held_out_outcomes_change_no_choice(self, world):
        """With held-out utilities turned around, only what is measured moves."""
        validation, held_out = world(ValidationSet, 0), world(HeldOutSet, 0)
        chosen = fit_calibration(validation, SETTINGS)
        turned = replace(
            held_out,
            q_SAR=1 - held_out.q_SAR,
            proposals={name: ProposedAction(1 - p.q_SR, p.same_SA) for name, p in held_out.proposals.items()},
        )
        one, other = (held_out_frame(states, chosen) for states in (held_out, turned))
        before = ["prompt", "place", "bin", "predicted", "proposes", "acts", "opens"]
        pd.testing.assert_frame_equal(one[before], other[before])
        assert (one["always"] != other["always"]).any()
        assert fit_calibration(world(ValidationSet, 1), SETTINGS).to_json() != chosen.to_json()


class TestStates:
    def test_columns_cannot_be_changed(self, states):
        made = states(q_SA=Q_SA, signal_S=[1, 2, 3])
        for column in (made.q_SAR, made.signal_S, made.proposals["raw"].q_SR, made.proposals["snapped"].same_SA):
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 0
        assert len(made) == 3

    def test_some_prompts(self, world):
        whole = world(ValidationSet, 0, prompts=10)
        part = whole.select(["v3", "v7"])
        assert isinstance(part, ValidationSet)
        assert (len(part), set(part.prompt_S)) == (16, {"v3", "v7"})
        kept_S = np.isin(whole.prompt_S, ["v3", "v7"])
        np.testing.assert_array_equal(part.proposals["raw"].q_SR, whole.proposals["raw"].q_SR[kept_S])

    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ({"prompt_S": np.arange(2)}, "prompt_S do not fit"),
            ({"abstained_S": np.ones(3, bool)}, "write NaN there"),
            ({"candidates": ("a", "a")}, "candidates do not fit"),
            ({"reference": 2}, "reference do not fit"),
            ({"q_SAR": np.full((3, 2, 4), 2.0)}, "utilities lie in"),
            ({"proposals": dict.fromkeys(("raw", "snapped"), ProposedAction(np.zeros((3, 2)), np.zeros((3, 2), bool)))},
             "proposals"),
            ({"proposals": dict.fromkeys(("raw", "snapped"), ProposedAction(np.full((3, 4), 2.0),
                                                                           np.zeros((3, 2), bool)))},
             "utilities lie in"),
        ],
    )  # fmt: skip
    def test_refusals(self, states, columns, words):
        with pytest.raises(ValueError, match=words):
            states(q_SA=Q_SA, signal_S=[1, 2, 3], **columns)


class TestGains:
    def test_by_hand(self, states):
        """Gains are those of the proposal over action 1, and 0 where there is none."""
        made = states(q_SA=Q_SA, signal_S=[1, 2, 3], gain_S=[0.25, 0.1, np.nan])
        fit, gain_FS = gains_over_fixed(made, 1, "raw", deterministic=False)
        np.testing.assert_allclose(gain_FS, [[0.0, 0.35, 0.0]] * 2, atol=1e-12)
        np.testing.assert_allclose(fit.g_S, [0.0, 0.25, 0.0])


class TestOutOfFold:
    """Eight candidates of equal worth: the best on some prompts is so by luck, which it does not have on others."""

    GAIN = 0.01

    def luck(self, states, seed):
        rng = np.random.default_rng(seed)
        prompt_S = np.repeat(np.arange(40), 4)
        q_SA = 0.5 + np.repeat(rng.uniform(-0.15, 0.15, (40, 8)), 4, 0)
        # The proposal is worth a little more than any candidate, and has luck of its own.
        gain_S = 0.5 + self.GAIN + np.repeat(rng.uniform(-0.15, 0.15, 40), 4) - q_SA[:, 0]
        return states(q_SA=q_SA, signal_S=rng.normal(size=160), gain_S=gain_S, prompt_S=prompt_S)

    def test_the_luck_of_the_fixed_action_does_not_shut_the_gate(self, states):
        def opened(settings):
            chosen = [fit_calibration(self.luck(states, seed), settings) for seed in range(120)]
            return np.mean([c.tau.value is not None for c in chosen])

        assert opened(SETTINGS.with_changes(fixed_out_of_fold=False)) < 0.3 < 0.4 < opened(SETTINGS)

    def test_gains_are_those_on_new_prompts(self, states):
        def mean_gain(settings):
            made = [self.luck(states, seed) for seed in range(120)]
            fixed = [choose_fixed(one.q_SAR, reference=0).action for one in made]
            return np.mean([gains_out_of_fold(m, a, settings).gain_S.mean() for m, a in zip(made, fixed, strict=True)])

        # The standard error is 0.0025; luck is worth 0.019.
        assert mean_gain(SETTINGS) == pytest.approx(self.GAIN, abs=0.008)
        assert mean_gain(SETTINGS.with_changes(fixed_out_of_fold=False)) < 0.0

    def test_states_are_beside_the_choice_of_the_other_folds(self, states):
        """Two prompts that disagree: each is compared with what the other one likes."""
        made = states(q_SA=[[0.5, 0.9], [0.5, 0.2]], signal_S=[1, 2], gain_S=[0.1, 0.1])
        assert gains_out_of_fold(made, 1, SETTINGS).gain_S == pytest.approx([0.1, 0.4])


class TestWholeRuns:
    """They choose the fixed action where the settings say so."""

    WHOLE = CalibrationSettings(seed=0, fixed="end-to-end")

    @pytest.fixture
    def made(self):
        """At single states the third candidate is as good as any, on average."""
        return MadeUpTask(np.random.default_rng(0), 0.0, 0.1, prompts=20).states

    def test_they_choose_the_fixed_action(self, made):
        for action in range(3):
            chosen = fit_calibration(made, self.WHOLE, pd.DataFrame(np.tile(np.eye(3)[action], (20, 1))))
            assert (chosen.fixed.action, chosen.fixed.states) == (action, 20)
            assert Calibration.from_json(chosen.to_json()).settings.fixed == "end-to-end"

    def test_each_fold_is_beside_what_the_others_choose(self, made):
        """One prompt decides: without it the first candidate is chosen, with it the second."""
        utility_PA = np.tile([0.5, 0.5, 0.0], (20, 1))
        utility_PA[7] = [0.0, 1.0, 0.0]
        found = gains_out_of_fold(made, 1, self.WHOLE, pd.DataFrame(utility_PA))
        beside = {a: gains_over_fixed(made, a, "raw", deterministic=False)[1].mean(0) for a in (0, 1)}
        of_fold_S = found.fold_S == found.fold_S[found.prompt_S == 7][0]
        np.testing.assert_allclose(found.gain_S, np.where(of_fold_S, beside[0], beside[1]), atol=1e-9)


class TestChoices:
    @pytest.mark.parametrize(
        "change",
        [{"seed": 1}, {"proposal": "snapped"}, {"bins": 5}, {"stages": 8}, {"prompt_folds": 3}, {"caution": 100.0},
         {"rule": "mean"}],
    )  # fmt: skip
    def test_every_setting_has_an_effect(self, world, change):
        """On what was chosen, not only on the record of how."""
        made = world(ValidationSet, 0, noise=0.02)

        def chosen(settings):
            body = json.loads(fit_calibration(made, settings).to_json())["body"]
            body.pop("settings")
            return body

        assert chosen(SETTINGS) != chosen(SETTINGS.with_changes(**change))

    def test_deterministic_refuses_rollouts_that_differ(self, world):
        settings = SETTINGS.with_changes(deterministic=True)
        fit_calibration(world(ValidationSet, 0), settings)
        with pytest.raises(ValueError, match="must be equal"):
            fit_calibration(world(ValidationSet, 0, noise=0.02), settings)

    def test_the_lift_that_a_gate_promises(self, world):
        made = world(ValidationSet, 0)
        chosen = fit_calibration(made, SETTINGS)
        promised = estimate_gate_lift(made, chosen)
        assert promised.value == pytest.approx(chosen.tau.out_of_fold)
        assert promised.low < promised.value < promised.high
        shut = dataclasses.replace(chosen, tau=dataclasses.replace(chosen.tau, value=None))
        assert estimate_gate_lift(made, shut).high == 0
        # On other prompts it is the mean gain of the gate as it is.
        other = world(ValidationSet, 1)
        _, gain_FS = gains_over_fixed(other, chosen.fixed.action, "raw", deterministic=False)
        open_S = chosen.tau.is_reached(chosen.detector.predict(other.signal_S)) & ~other.abstained_S
        assert estimate_tested_lift(other, chosen).value == pytest.approx(np.where(open_S, gain_FS.mean(0), 0).mean())


class TestHeldOutFrame:
    """Validation has theta 2 and a gate that opens from signal 2 on; late states are better off with action 1."""

    @pytest.fixture
    def chosen(self, states):
        signal_S = np.tile(np.arange(4.0), 10)
        validation = states(
            q_SA=np.stack([np.full(40, 0.4), np.where(signal_S > 0, 0.4 + signal_S / 25, 0.0)], 1),
            signal_S=signal_S,
            gain_S=np.where(signal_S >= 2, 0.1, -0.1),
            prompt_S=np.repeat(np.arange(10), 4),
            masked_S=np.where(np.arange(40) % 4 < 2, 0.9, 0.1),
        )
        chosen = fit_calibration(validation, SMALL)
        assert (chosen.theta.value, chosen.schedule.action_K.tolist()) == (2, [0, 0, 0, 1])
        return chosen

    def held_out(self, states, **columns):
        same_SA = np.array([[0, 1], [1, 0], [0, 0], [1, 1], [0, 0]], bool)
        made = states(
            HeldOutSet,
            q_SA=[[0.4, 0.6], [0.5, 0.2], [0.3, 0.5], [0.6, 0.6], [0.2, 0.2]],
            signal_S=[3, 2, 9, 0, np.nan],
            gain_S=[0.1, -0.2, 0.2, 0.3, np.nan],
            **columns,
        )
        raw = ProposedAction(made.proposals["raw"].q_SR, same_SA)
        return replace(made, proposals={**made.proposals, "raw": raw})

    def test_by_hand(self, states, chosen):
        frame = held_out_frame(self.held_out(states, masked_S=np.array([0.9, 0.9, 0.9, 0.9, 0.1])), chosen)
        wanted = {
            "prompt": np.arange(5) + 10_000,
            "bin": [3, 2, 3, 0, -1],
            "proposes": [1, 1, 1, 1, 0],
            "acts": [1, 1, 1, 0, 0],
            "opens": [1, 1, 1, 0, 0],
            "fixed": [0.4, 0.5, 0.3, 0.6, 0.2],
            "stage": [0, 0, 0, 0, 0],
            "always": [0.1, -0.2, 0.2, 0.3, 0],
            "diagnostic": [0.1, -0.2, 0.2, 0, 0],
            "selective": [0.1, -0.2, 0.2, 0, 0],
            "oracle": [0.2, 0, 0.2, 0, 0],
            "seen_0": [0.2, 0, 0.2, 0, 0],
            "always_1": [0.1, -0.2, 0.2, 0.3, 0],
            # The oracle takes action 1 at the first and the third state, else the fixed one.
            "same_fixed": [0, 1, 0, 1, 0],
            "same_oracle": [1, 1, 0, 1, 0],
            "same_any": [1, 1, 0, 1, 0],
        }
        for name, column in wanted.items():
            np.testing.assert_allclose(frame[name].astype(float), column, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(frame["predicted"], chosen.detector.predict([3, 2, 9, 0, np.nan]))

    def test_states_without_a_utility_are_left_out(self, states, chosen):
        made = self.held_out(states)
        q_SAR, raw_SR = made.q_SAR.copy(), made.proposals["raw"].q_SR.copy()
        q_SAR[0, 0] = np.nan
        raw_SR[1] = np.nan
        raw = ProposedAction(raw_SR, made.proposals["raw"].same_SA)
        made = replace(made, q_SAR=q_SAR, proposals={**made.proposals, "raw": raw})
        assert held_out_frame(made, chosen)["prompt"].tolist() == [10_002, 10_003, 10_004]
        snapped = dataclasses.replace(chosen, settings=SMALL.with_changes(proposal="snapped"))
        assert len(held_out_frame(made, snapped)) == 4
        with pytest.raises(ValueError, match="no held-out state has utilities"):
            held_out_frame(replace(made, q_SAR=np.full((5, 2, 4), np.nan)), chosen)
