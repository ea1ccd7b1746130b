"""Bins and a learned detector side by side: the bins' numbers are those of E3, differences paired, noise wins none."""

from dataclasses import replace

import numpy as np
import pytest

from tests.stats.conftest import world as made_world
from unmask.stats import (
    CalibrationSettings,
    Experiment,
    ExperimentSettings,
    HeldOutTable,
    LeakageError,
    ValidationTable,
    selective_utility,
)
from unmask.stats.held_out import aurocs, states_of
from unmask.stats.learned import Featured, fit_learned
from unmask.stats.rivals import RIVALS, WHOLE, at, compare_rivals, mean_rivals, rival_states

SETTINGS = ExperimentSettings(CalibrationSettings(seed=3), seed=4, draws=50, resamples=200)
PLACE_S = np.tile(np.arange(8), 60)


def featured(table, informative, seed=0):
    rng = np.random.default_rng([seed, isinstance(table, HeldOutTable)])
    value_SN = rng.normal(size=(len(table), 4))
    if informative:
        q_SA = table.q_SAR.mean(2)
        value_SN[:, 0] += 2 * (q_SA.max(1) > q_SA[:, 0])
    return Featured(table, tuple("abcd"), value_SN)


def rivals(world, seed, *, informative, **how):
    """Both detectors on the held-out states of a made world, and what E3 says there."""
    validation, held_out = (featured(world(k, seed, **how), informative, seed) for k in (ValidationTable, HeldOutTable))
    e3 = selective_utility(Experiment(validation.table, held_out.table, SETTINGS)).raw
    gate = fit_learned(validation, e3.calibration.fixed.action, SETTINGS.calibration)
    return rival_states(held_out, e3.calibration, gate, PLACE_S), e3, held_out


@pytest.fixture(scope="module")
def informed():
    return rivals(made_world, 1, informative=True, information=0.5)


def test_the_bins_numbers_are_those_of_e3(informed):
    states, e3, held_out = informed
    numbers = compare_rivals(states, SETTINGS)
    columns = states_of(held_out.table, e3.calibration, PLACE_S)
    among, within = aurocs(columns, e3.calibration, SETTINGS)
    same = {
        "auroc": e3.detection.auroc,
        "spearman": e3.detection.spearman,
        "auroc_among": among,
        "auroc_within": within,
        "selective": e3.lift["selective"],
        "coverage": e3.coverage,
    }
    same |= {at("captured", c): e3.detection.at[c].captured for c in SETTINGS.coverages}
    same |= {at("lift", c): e3.detection.at[c].lift for c in SETTINGS.coverages}
    assert set(same) == {name for rival, name in numbers if rival == "bins"}
    assert set(WHOLE) < set(same)
    for name, estimate in same.items():
        assert numbers["bins", name] == estimate, name


def test_numbers_that_say_more_win(informed):
    numbers = compare_rivals(informed[0], SETTINGS)
    for name in ("auroc", "auroc_within", "spearman", at("captured", 0.1), at("lift", 0.1)):
        assert numbers["difference", name].positive, name
    for name in {name for _, name in numbers}:
        learned, bins = (numbers[rival, name].value for rival in reversed(RIVALS))
        assert numbers["difference", name].value == pytest.approx(learned - bins), name


def test_differences_are_paired(informed):
    """Of two equal detectors not even the interval of the difference leaves zero."""
    states = informed[0]
    same = replace(states, score=dict.fromkeys(RIVALS, states.score["learned"]))
    same = replace(same, opens=dict.fromkeys(RIVALS, states.opens["bins"]))
    for (rival, name), estimate in compare_rivals(same, SETTINGS).items():
        if rival == "difference":
            assert (estimate.value, estimate.low, estimate.high) == (0, 0, 0), name


@pytest.mark.parametrize("information", [0.0, 1.5])
def test_noise_wins_nothing(world, information):
    numbers = [
        compare_rivals(rivals(world, seed, informative=False, information=information)[0], SETTINGS) for seed in (2, 3)
    ]
    for name in ("auroc", "auroc_within", at("captured", 0.1), at("lift", 0.1), "selective"):
        assert not any(one["difference", name].positive for one in numbers), name


def test_the_controls_do_not_know_who_ranks(informed):
    """A random gate and an oracle gate of E3 bound both rivals at every coverage, on average."""
    states, e3, _ = informed
    numbers = compare_rivals(states, SETTINGS)
    for c in SETTINGS.coverages[:-1]:
        control = e3.detection.at[c]
        assert control.random_lift.value < numbers["learned", at("lift", c)].value < control.oracle_lift.value
    everywhere = numbers["difference", at("lift", 1.0)]
    assert (everywhere.value, everywhere.low, everywhere.high) == (0, 0, 0)


def test_validation_states_are_no_place_to_measure(world):
    states, e3, _ = rivals(world, 5, informative=True)
    validation = featured(world(ValidationTable, 5), True)
    gate = fit_learned(validation, 0, SETTINGS.calibration)
    with pytest.raises(LeakageError, match="must be a HeldOutTable"):
        rival_states(validation, e3.calibration, gate, PLACE_S)
    assert len(states.g_S)


class TestMeans:
    def test_each_task_counts_the_same_and_so_do_its_settings(self, informed, world):
        other = rivals(world, 6, informative=False)[0]
        third = rivals(world, 7, informative=False)[0]
        single = [compare_rivals(one, SETTINGS) for one in (informed[0], other, third)]
        mean = mean_rivals({"a": [informed[0]], "b": [other, third]}, SETTINGS)
        assert set(mean) == set(single[0])
        for key, estimate in mean.items():
            a, b, c = (one[key].value for one in single)
            assert estimate.value == pytest.approx(a / 2 + (b + c) / 4), key
            assert estimate.low <= estimate.value <= estimate.high, key

    def test_a_number_that_does_not_exist_is_no_part_of_its_mean(self, informed):
        states = informed[0]
        flat = replace(states, g_S=np.zeros(len(states.g_S)))
        alone, both = (mean_rivals(held, SETTINGS) for held in ({"a": [states]}, {"a": [states], "b": [flat]}))
        for name in ("auroc", at("captured", 0.1)):
            assert both["difference", name].value == alone["difference", name].value
        nothing = mean_rivals({"b": [flat]}, SETTINGS)
        assert np.isnan(nothing["difference", "auroc"].value)
        assert nothing["difference", at("lift", 0.1)].value == alone["difference", at("lift", 0.1)].value

    def test_settings_of_a_task_share_their_prompts(self, informed):
        """The mean of a setting and itself is that setting, interval included."""
        once, twice = (mean_rivals({"a": [informed[0]] * n}, SETTINGS) for n in (1, 2))
        for key, estimate in once.items():
            assert (twice[key].low, twice[key].high) == pytest.approx((estimate.low, estimate.high)), key
