"""Columns of held-out states: what `selective_utility` averages, state by state."""

from dataclasses import replace

import numpy as np
import pytest

from unmask.stats import (
    ARMS,
    CalibrationSettings,
    Experiment,
    ExperimentSettings,
    HeldOutTable,
    ProposedAction,
    ValidationTable,
    selective_utility,
)
from unmask.stats.held_out import HeldOutStates, aurocs, macro, states_of

SETTINGS = ExperimentSettings(CalibrationSettings(seed=0), 0, draws=20, resamples=100)


def table(kind, seed, prompts=30):
    """The second action gains 0.4 at a quarter of the states, which the signal finds, and loses 0.2 elsewhere."""
    good_S = np.random.default_rng(seed).random(prompts * 4) < 0.25
    q_SA = np.stack([np.full(len(good_S), 0.5), np.where(good_S, 0.9, 0.3)], 1)
    q_SAR = np.repeat(q_SA[:, :, None], 4, 2)
    silent_S = np.tile([True, False, False, False], prompts)
    proposed = ProposedAction(np.where(silent_S[:, None], np.nan, q_SAR[:, 1]), np.zeros(q_SA.shape, bool))
    return kind(
        prompt_S=np.repeat([f"{seed}-{p}" for p in range(prompts)], 4),
        masked_S=np.tile([1.0, 0.75, 0.5, 0.25], prompts),
        q_SAR=q_SAR,
        signal_S=np.where(silent_S, np.nan, good_S.astype(np.float64)),
        abstained_S=silent_S,
        raw=proposed,
        snapped=proposed,
        candidates=("full", "block:8"),
        reference=0,
    )


@pytest.fixture(scope="module")
def held_out():
    return table(HeldOutTable, 1)


@pytest.fixture(scope="module")
def arms(held_out):
    return selective_utility(Experiment(table(ValidationTable, 0), held_out, SETTINGS)).raw


@pytest.fixture(scope="module")
def states(held_out, arms):
    return states_of(held_out, arms.calibration, np.tile(np.arange(4), 30))


def test_columns_average_to_the_arms(states, arms):
    assert isinstance(states, HeldOutStates)
    assert states.fixed_S.mean() == pytest.approx(arms.utility["fixed"].value)
    for arm in ARMS[1:]:
        assert states.gain[arm].mean() == pytest.approx(arms.lift[arm].value)
    assert states.deviates_S.mean() == pytest.approx(arms.coverage.value)
    assert set(states.bin_S[states.place_S == 0]) == {-1}
    np.testing.assert_array_equal(states.g_S, states.gain["oracle"])


def test_a_signal_that_finds_every_state_ranks_them_all(states, arms):
    among, within = aurocs(states, arms.calibration, SETTINGS)
    assert among.value == within.value == pytest.approx(1.0)


def test_without_a_signal_there_is_nothing_to_rank(states, arms):
    silent = replace(states, bin_S=np.full_like(states.bin_S, -1))
    for estimate in aurocs(silent, arms.calibration, SETTINGS):
        assert np.isnan([estimate.value, estimate.low, estimate.high]).all()


def test_means_count_tasks_alike(states, arms):
    """A task of a few prompts weighs as much as one of many."""
    few_S = np.isin(states.prompt_S, np.unique(states.prompt_S)[:3])
    few = replace(
        states,
        prompt_S=states.prompt_S[few_S],
        place_S=states.place_S[few_S],
        fixed_S=states.fixed_S[few_S],
        gain={arm: gain_S[few_S] for arm, gain_S in states.gain.items()},
        deviates_S=states.deviates_S[few_S],
        bin_S=states.bin_S[few_S],
    )
    means = macro({"many": states, "few": few}, SETTINGS)
    for arm in ARMS[1:]:
        wanted = (states.gain[arm].mean() + few.gain[arm].mean()) / 2
        assert means["lift", arm].value == pytest.approx(wanted)
        assert means["utility", arm].value == pytest.approx(means["utility", "fixed"].value + wanted)
    assert means["gate", "coverage"].value == pytest.approx((states.deviates_S.mean() + few.deviates_S.mean()) / 2)
    lift = {arm: means["lift", arm].value for arm in ARMS[1:]}
    assert means["choice", "recovered"].value == pytest.approx(lift["diagnostic"] / lift["oracle"])
    assert means["choice", "less_regret"].value == pytest.approx(lift["diagnostic"] - lift["stage"])
