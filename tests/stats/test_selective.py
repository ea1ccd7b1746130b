"""E2 and E3: choose on validation states, measure on held-out ones."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from unmask.stats import (
    ARMS,
    CalibrationSettings,
    Experiment,
    ExperimentSettings,
    HeldOutTable,
    LeakageError,
    ProposedAction,
    ValidationTable,
    select_actions,
    selective_utility,
)

CALIBRATION = CalibrationSettings(seed=0, bins=4, prompt_folds=2)
SETTINGS = ExperimentSettings(CALIBRATION, seed=0, draws=50, resamples=50)
BOTH = (select_actions, selective_utility)


@pytest.fixture
def small(states):
    """Signals 0 to 3. On validation opportunity rises with the signal and the diagnostic gains 0.1 from 2 on."""
    signal_S = np.tile(np.arange(4.0), 10)
    q_SA = np.stack([np.full(40, 0.4), np.where(signal_S > 0, 0.4 + signal_S / 25, 0.0)], 1)
    validation = states(
        q_SA=q_SA,
        signal_S=signal_S,
        gain_S=np.where(signal_S >= 2, 0.1, -0.1),
        prompt_S=np.repeat(np.arange(10), 4),
        masked_S=np.where(np.arange(40) % 4 < 2, 0.9, 0.1),
    )
    held_out = states(
        HeldOutTable,
        q_SA=[[0.4, 0.6], [0.5, 0.2], [0.3, 0.5], [0.6, 0.6], [0.2, 0.2]],
        signal_S=[3, 2, 9, 0, np.nan],
        gain_S=[0.1, -0.2, 0.2, 0.3, np.nan],
    )
    return validation, held_out


class TestByHand:
    """Theta is 2: the diagnostic acts on the first three states. The gaps are 0.2, 0, 0.2, 0, 0."""

    def test_action_selection(self, small):
        found = select_actions(Experiment(*small, SETTINGS)).raw
        assert found.calibration.theta.value == 2
        # Late states of validation are better off with action 1; all held-out states are early ones.
        assert found.calibration.schedule.action_K.tolist() == [0, 0, 0, 1]
        assert found.oracle_gap.value == pytest.approx(0.4 / 5)
        assert found.lift.value == pytest.approx((0.1 - 0.2 + 0.2) / 5)
        assert found.always_lift.value == pytest.approx((0.1 - 0.2 + 0.2 + 0.3) / 5)
        assert found.stage_lift.value == 0
        assert found.regret.value == pytest.approx(0.3 / 5)
        assert found.stage_regret.value == pytest.approx(0.4 / 5)
        assert found.less_regret.value == pytest.approx(0.1 / 5)
        assert found.recovered.value == pytest.approx(0.25)
        assert found.stage_recovered.value == 0
        assert found.acted.value == pytest.approx(0.6)
        assert found.abstained.value == pytest.approx(0.2)
        assert (found.states, found.excluded) == (5, 0)
        assert found.viability.passed
        assert "exploratory" in found.viability.label

    def test_transition_utility(self, small):
        found = selective_utility(Experiment(*small, SETTINGS)).raw
        assert tuple(found.utility) == ARMS
        assert found.utility["fixed"].value == pytest.approx(2.0 / 5)
        assert found.lift["stage"].value == 0
        assert found.lift["always"].value == pytest.approx(0.4 / 5)
        assert found.lift["diagnostic"].value == pytest.approx(0.1 / 5)
        assert found.lift["oracle"].value == pytest.approx(0.4 / 5)
        for arm in ARMS[1:]:
            assert found.utility[arm].value == pytest.approx(found.utility["fixed"].value + found.lift[arm].value)
        # The gate opens from signal 2 on, too.
        assert found.coverage.value == pytest.approx(0.6)
        assert found.lift["selective"].value == pytest.approx(0.1 / 5)
        # A coverage stands for theta: all proposals count. With both, everywhere is where the diagnostic acts.
        assert found.detection.at[1.0].theta_lift.value == pytest.approx(found.lift["diagnostic"].value)
        assert found.detection.at[1.0].lift.value == pytest.approx(found.lift["always"].value)
        assert found.lift["always"].value != pytest.approx(found.lift["diagnostic"].value)

    def test_without_theta_the_gate_still_decides(self, small):
        settings = replace(SETTINGS, calibration=replace(CALIBRATION, theta=False))
        found = selective_utility(Experiment(*small, settings)).raw
        assert found.lift["diagnostic"].value == found.lift["always"].value
        assert found.lift["selective"].value == pytest.approx(0.1 / 5)

    def test_agreement(self, small):
        validation, held_out = small
        same_SA = np.array([[0, 1], [1, 0], [0, 0], [1, 1], [0, 0]], bool)
        held_out = dataclasses.replace(held_out, raw=ProposedAction(held_out.raw.q_SR, same_SA))
        found = select_actions(Experiment(validation, held_out, SETTINGS))
        # Of four proposals. The oracle takes action 1 at the first and the third state, else the fixed one.
        assert found.raw.agrees_fixed.value == pytest.approx(2 / 4)
        assert found.raw.agrees_oracle.value == pytest.approx(3 / 4)
        assert found.raw.agrees_any.value == pytest.approx(3 / 4)
        assert found.snapped.agrees_any.value == 0

    def test_no_gap_has_no_recovered_share(self, small, states):
        held_out = states(HeldOutTable, q_SA=[[0.5, 0.5]] * 3, signal_S=[3, 3, 3], gain_S=[-0.1, 0, 0])
        found = select_actions(Experiment(small[0], held_out, SETTINGS)).raw
        assert np.isnan(found.recovered.value)
        assert found.recovered.undefined == SETTINGS.resamples
        assert not found.viability.passed

    def test_a_stage_only_schedule_that_gains(self, states):
        """Action 1 is better late: the schedule knows, and a diagnostic that does nothing regrets more."""
        q_SA = np.tile([[0.6, 0.4], [0.6, 0.4], [0.4, 0.5]], (4, 1))
        columns = {"q_SA": q_SA, "signal_S": np.arange(12.0), "masked_S": np.tile([0.9, 0.6, 0.1], 4)}
        found = select_actions(Experiment(states(**columns), states(HeldOutTable, **columns), SETTINGS)).raw
        assert found.calibration.schedule.action_K.tolist() == [0, 0, 0, 1]
        assert found.stage_regret.value == pytest.approx(0)
        assert found.stage_recovered.value == pytest.approx(1)
        assert found.less_regret.value == pytest.approx(-0.1 / 3)
        assert not found.viability.passed

    def test_proposals_may_beat_every_candidate(self, states):
        columns = {"q_SA": [[0.5, 0.4]] * 8, "signal_S": np.arange(8.0), "gain_S": [0.2] * 8}
        found = select_actions(Experiment(states(**columns), states(HeldOutTable, **columns), SETTINGS)).raw
        assert found.regret.value == pytest.approx(-0.2)

    def test_missing_utilities_are_left_out_and_counted(self, small):
        validation, held_out = small
        q_SAR = held_out.q_SAR.copy()
        q_SAR[0, 0] = np.nan
        raw_SR = held_out.raw.q_SR.copy()
        raw_SR[1] = np.nan
        held_out = dataclasses.replace(held_out, q_SAR=q_SAR, raw=ProposedAction(raw_SR, held_out.raw.same_SA))
        found = select_actions(Experiment(validation, held_out, SETTINGS))
        assert (found.raw.states, found.raw.excluded) == (3, 2)
        assert (found.snapped.states, found.snapped.excluded) == (4, 1)
        assert selective_utility(Experiment(validation, held_out, SETTINGS)).raw.excluded == 2
        assert found.raw.lift.value == pytest.approx(0.2 / 3)

    def test_nothing_to_measure_on_is_refused(self, small):
        held_out = dataclasses.replace(small[1], q_SAR=np.full((5, 2, 4), np.nan))
        for experiment in BOTH:
            with pytest.raises(ValueError, match="no held-out state has utilities"):
                experiment(Experiment(small[0], held_out, SETTINGS))


class TestLeakage:
    @pytest.mark.parametrize("experiment", BOTH)
    def test_tables_cannot_be_swapped(self, world, experiment):
        validation, held_out = world(ValidationTable, 0, prompts=10), world(HeldOutTable, 0, prompts=10)
        with pytest.raises(LeakageError):
            experiment(Experiment(held_out, validation, SETTINGS))
        with pytest.raises(LeakageError):
            experiment(Experiment(validation, validation, SETTINGS))

    @pytest.mark.parametrize("experiment", BOTH)
    def test_held_out_outcomes_change_no_choice(self, world, experiment):
        """Every byte of what was chosen is the same with held-out utilities in another order, or turned around."""
        validation, held_out = world(ValidationTable, 0), world(HeldOutTable, 0)
        order = np.random.default_rng(0).permutation(len(held_out))
        order = order[~held_out.abstained_S[order]]
        shuffled = np.arange(len(held_out))
        shuffled[~held_out.abstained_S] = order

        def other(change):
            return dataclasses.replace(
                held_out,
                q_SAR=change(held_out.q_SAR),
                raw=ProposedAction(change(held_out.raw.q_SR), held_out.raw.same_SA),
                snapped=ProposedAction(change(held_out.snapped.q_SR), held_out.snapped.same_SA),
            )

        found = experiment(Experiment(validation, held_out, SETTINGS))
        for change in (lambda q: q[shuffled], lambda q: 1 - q):
            moved = experiment(Experiment(validation, other(change), SETTINGS))
            for kind in ("raw", "snapped"):
                a, b = getattr(found, kind), getattr(moved, kind)
                assert a.calibration.to_json() == b.calibration.to_json()
                assert a.lift != b.lift

    def test_validation_outcomes_do(self, world):
        held_out = world(HeldOutTable, 0)
        found = [selective_utility(Experiment(world(ValidationTable, k), held_out, SETTINGS)).raw for k in (0, 1)]
        assert found[0].calibration.to_json() != found[1].calibration.to_json()


def test_raw_and_snapped_have_their_own_thresholds(world):
    found = selective_utility(Experiment(world(ValidationTable, 0), world(HeldOutTable, 0), SETTINGS))
    assert found.raw.calibration.settings.proposal == "raw"
    assert found.snapped.calibration.settings.proposal == "snapped"
    assert found.raw.lift["always"] != found.snapped.lift["always"]
    assert found.raw.detection.auroc == found.snapped.detection.auroc


def test_ties_by_signal_rank_within_bins(world):
    tables = world(ValidationTable, 0), world(HeldOutTable, 0)
    chance, signal = (
        selective_utility(Experiment(*tables, replace(SETTINGS, ties=t))).raw.detection
        for t in ("expectation", "signal")
    )
    assert signal.auroc.value > chance.auroc.value
    assert signal.at[0.05].captured.value != chance.at[0.05].captured.value
    assert signal.at[1.0].captured.value == chance.at[1.0].captured.value


def test_a_perfect_signal_ordered_by_itself_captures_all_there_is(states):
    g_S = np.arange(60) / 100
    q_SA = np.stack([np.full(60, 0.3), np.where(g_S > 0.3, g_S, 0.0)], 1)
    columns = {"q_SA": q_SA, "signal_S": g_S, "gain_S": np.maximum(g_S - 0.3, 0)}
    settings = replace(SETTINGS, ties="signal")
    found = selective_utility(Experiment(states(**columns), states(HeldOutTable, **columns), settings)).raw.detection
    for at in found.at.values():
        assert at.captured.value == pytest.approx(at.concentration.value)
        assert at.efficiency.value == pytest.approx(1)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"coverages": (0.3,)},
        {"curve": (0.5,)},
        {"ties": "signal"},
        {"draws": 49},
        {"resamples": 49},
        {"level": 0.5},
        {"calibration": replace(CALIBRATION, bins=10)},
    ],
)
def test_every_setting_has_an_effect(world, change):
    tables = world(ValidationTable, 0), world(HeldOutTable, 0)
    found = [
        repr(selective_utility(Experiment(*tables, s)).raw.detection) for s in (SETTINGS, replace(SETTINGS, **change))
    ]
    assert found[0] != found[1]


def test_the_same_call_gives_the_same_numbers(world):
    tables = world(ValidationTable, 0), world(HeldOutTable, 0)
    for experiment in BOTH:
        assert repr(experiment(Experiment(*tables, SETTINGS))) == repr(experiment(Experiment(*tables, SETTINGS)))


def test_prompts_are_resampled_whole(world):
    """A table with every state four times has the same intervals: copies are no evidence."""
    validation, held_out = world(ValidationTable, 0), world(HeldOutTable, 0)
    row = np.repeat(np.arange(len(held_out)), 4)
    copies = dataclasses.replace(
        held_out,
        **{name: getattr(held_out, name)[row] for name in ("prompt_S", "masked_S", "q_SAR", "signal_S", "abstained_S")},
        **{
            name: ProposedAction(getattr(held_out, name).q_SR[row], getattr(held_out, name).same_SA[row])
            for name in ("raw", "snapped")
        },
    )
    one, four = (selective_utility(Experiment(validation, table, SETTINGS)).raw for table in (held_out, copies))
    for a, b in ((one.lift["selective"], four.lift["selective"]), (one.detection.auroc, four.detection.auroc)):
        assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high))


class TestWorlds:
    """One hundred studies: sixty validation and sixty held-out prompts with eight states each."""

    LEAN = ExperimentSettings(CalibrationSettings(seed=0), seed=0, coverages=(0.1,), curve=(), draws=1, resamples=1)

    def lifts(self, world, **settings):
        tables = [(world(ValidationTable, k, **settings), world(HeldOutTable, k, **settings)) for k in range(100)]
        return np.array([selective_utility(Experiment(*t, self.LEAN)).raw.lift["selective"].value for t in tables])

    def test_an_informative_signal_pays(self, world):
        lift = self.lifts(world)
        assert np.mean(lift > 0) >= 0.85
        assert lift.mean() > 0.003

    def test_a_useless_signal_costs_little(self, world):
        """A harmful action taken at random would cost 0.018 a state."""
        lift = self.lifts(world, information=0, skill=0)
        assert lift.mean() > -0.001


def coverage_of_intervals(world, studies, prompts, resamples=500):
    """How often intervals hold what the frozen calibration is worth in 4,000 prompts."""
    validation = world(ValidationTable, 0, prompts=100)
    lean = ExperimentSettings(
        CalibrationSettings(seed=0), seed=0, coverages=(0.1, 0.2), curve=(), draws=1, resamples=resamples
    )

    def numbers(found):
        at = found.detection.at
        return {
            "selective": found.lift["selective"],
            "oracle": found.lift["oracle"],
            "AUROC": found.detection.auroc,
            "Spearman": found.detection.spearman,
            "C_det(10 %)": at[0.1].captured,
            "C_det(20 %)": at[0.2].captured,
            "efficiency(20 %)": at[0.2].efficiency,
            "recall(20 %)": at[0.2].recall,
            "lift(10 %)": at[0.1].lift,
            "oracle lift(10 %)": at[0.1].oracle_lift,
        }

    big = world(HeldOutTable, 10_000, prompts=4000)
    truth = numbers(selective_utility(Experiment(validation, big, replace(lean, resamples=1))).raw)
    hit = dict.fromkeys(truth, 0)
    for k in range(studies):
        found = numbers(
            selective_utility(
                Experiment(validation, world(HeldOutTable, k, prompts=prompts), replace(lean, seed=k))
            ).raw
        )
        for name, estimate in found.items():
            hit[name] += estimate.low - 1e-9 <= truth[name].value <= estimate.high + 1e-9
    return {name: n / studies for name, n in hit.items()}


@pytest.mark.slow
def test_intervals_hold_the_truth(world):
    """Two hundred studies of 100 prompts: three standard errors below 93 of 100 is 87.6."""
    for name, share in coverage_of_intervals(world, studies=200, prompts=100).items():
        assert share >= 0.876, name
