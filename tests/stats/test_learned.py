"""A learned detector on tables whose truth is planted: it finds what only a combination tells, and nothing in noise."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.stats import CalibrationSettings, HeldOutTable, LeakageError, NotEnough, ValidationTable, calibrate
from unmask.stats.errors import MissingExtra
from unmask.stats.learned import PENALTIES, Featured, _penalty, fit_learned, weights
from unmask.stats.ranking import auroc

SETTINGS = CalibrationSettings(seed=3)


def positive(table):
    """Where another action than the first is better."""
    q_SA = table.q_SAR.mean(2)
    return q_SA.max(1) > q_SA[:, 0] + 1e-9


def noise(table, columns=5, seed=0):
    """Numbers that say nothing."""
    rng = np.random.default_rng([seed, len(table), isinstance(table, HeldOutTable)])
    return Featured(table, tuple(f"noise {k}" for k in range(columns)), rng.normal(size=(len(table), columns)))


def combined(table, how, seed=0):
    """Numbers of which none tells anything by itself, or next to nothing."""
    rng, found_S = np.random.default_rng([seed, isinstance(table, HeldOutTable)]), positive(table)
    if how == "difference":
        common_S = rng.normal(size=len(table))
        columns = [common_S, common_S + 0.3 * found_S]
    else:
        # Says whether the signal is to be believed, or its opposite.
        size_S = rng.uniform(0.2, 1.0, len(table))
        columns = [size_S * np.sign(table.signal_S) * np.where(found_S, 1, -1), rng.normal(size=len(table))]
    return Featured(table, ("one", "other"), np.stack(columns, 1))


def ranked(featured, predicted_S):
    """AUROC of a score at the states that have a signal."""
    there_S = ~np.isnan(featured.table.signal_S)
    return float(auroc(predicted_S[there_S], positive(featured.table)[there_S].astype(float))[0])


@pytest.mark.parametrize("how", ["difference", "product"])
def test_it_finds_what_only_a_combination_tells(world, how):
    validation, held_out = (combined(world(kind, 1, information=0.0), how) for kind in (ValidationTable, HeldOutTable))
    chosen = calibrate(validation.table, SETTINGS)
    gate = fit_learned(validation, chosen.fixed.action, SETTINGS)
    assert ranked(held_out, gate.detector.predict(held_out.inputs_SN)) > 0.85
    assert ranked(held_out, chosen.detector.predict(held_out.table.signal_S)) < 0.6
    for alone_S in held_out.value_SN.T:
        assert abs(ranked(held_out, alone_S) - 0.5) < 0.1
    assert gate.tau.value is not None


def test_whatever_the_bins_can_say_it_can(world):
    """A signal that is high or low where opportunity is: no line through its ranks finds that."""

    def bent(kind):
        table = world(kind, 2, information=0.0)
        rng = np.random.default_rng(len(table))
        side_S = rng.choice([-1.0, 1.0], len(table)) * rng.uniform(1, 2, len(table))
        signal_S = np.where(positive(table), side_S, rng.uniform(-1, 1, len(table)))
        return noise(replace(table, signal_S=np.where(table.abstained_S, np.nan, signal_S)))

    validation, held_out = bent(ValidationTable), bent(HeldOutTable)
    gate = fit_learned(validation, 0, SETTINGS)
    assert ranked(held_out, gate.detector.predict(held_out.inputs_SN)) > 0.95
    assert max(ranked(held_out, held_out.table.signal_S), ranked(held_out, -held_out.table.signal_S)) < 0.6


def test_predictions_are_on_the_scale_of_opportunity_and_absent_without_a_signal(world):
    featured = combined(world(ValidationTable, 4), "difference")
    gate = fit_learned(featured, 0, SETTINGS)
    predicted_S, silent_S = gate.detector.predict(featured.inputs_SN), np.isnan(featured.table.signal_S)
    assert silent_S.any()
    assert np.array_equal(np.isnan(predicted_S), silent_S)
    opportunity_S = featured.table.q_SAR.mean(2).max(1) - featured.table.q_SAR.mean(2)[:, 0]
    assert predicted_S[~silent_S].mean() == pytest.approx(opportunity_S[~silent_S].mean(), abs=0.01)
    assert not gate.opens(predicted_S, silent_S)[silent_S].any()


def test_nothing_can_be_fitted_to_held_out_states(world):
    with pytest.raises(LeakageError, match="only a ValidationTable may be fitted to"):
        fit_learned(noise(world(HeldOutTable, 0)), 0, SETTINGS)


def test_the_threshold_is_chosen_out_of_fold(world):
    """Many numbers, none of which says anything: in sample they flatter, on other prompts they do not."""
    featured = noise(world(ValidationTable, 6, information=0.0, skill=0.0), columns=120)
    gate = fit_learned(featured, 0, SETTINGS)
    predicted_S = gate.detector.predict(featured.inputs_SN)
    assert ranked(featured, predicted_S) > 0.6
    assert gate.tau.value is None
    assert gate.tau.out_of_fold <= 0


def test_noise_is_shrunk_and_information_is_not(world):
    useless = fit_learned(noise(world(ValidationTable, 7, information=0.0)), 0, SETTINGS).detector
    useful = fit_learned(combined(world(ValidationTable, 7), "difference"), 0, SETTINGS).detector
    assert useful.penalty < useless.penalty
    assert useless.penalty in PENALTIES
    names = [name for name, _ in weights(useful)]
    assert set(names) == set(useful.names)
    assert {"one", "other"} <= set(names[:3])
    values = [abs(weight) for _, weight in weights(useful)]
    assert values == sorted(values, reverse=True)


def test_the_same_numbers_every_time_and_row_by_row(world):
    featured = combined(world(ValidationTable, 8), "product")
    one, again = (fit_learned(featured, 0, SETTINGS) for _ in range(2))
    assert one.detector.weight_M.tolist() == again.detector.weight_M.tolist()
    assert one.tau == again.tau
    inputs_SN = featured.inputs_SN
    whole_S, part_S = one.detector.predict(inputs_SN), one.detector.predict(inputs_SN[5:9])
    assert np.array_equal(whole_S[5:9], part_S, equal_nan=True)


def test_only_the_order_of_a_number_counts(world):
    featured = combined(world(ValidationTable, 9), "difference")
    stretched = Featured(featured.table, featured.names, np.exp(3 * featured.value_SN))
    one, other = (fit_learned(each, 0, SETTINGS) for each in (featured, stretched))
    assert np.array_equal(one.detector.weight_M, other.detector.weight_M)


def test_a_number_that_is_not_known_is_in_the_middle(world):
    featured = combined(world(ValidationTable, 9), "difference")
    detector = fit_learned(featured, 0, SETTINGS).detector
    unknown, middle = featured.inputs_SN[:40], featured.inputs_SN[:40]
    unknown[:, 1], middle[:, 1] = np.nan, np.median(featured.value_SN[~np.isnan(featured.table.signal_S), 0])
    assert detector.predict(unknown) == pytest.approx(detector.predict(middle), abs=1e-3, nan_ok=True)


def test_too_few_prompts(world):
    with pytest.raises(NotEnough, match="9 validation prompts have a state with a signal; 10 or more"):
        fit_learned(noise(world(ValidationTable, 0, prompts=9)), 0, SETTINGS)


def test_bad_columns_are_refused(world):
    table = world(ValidationTable, 0, prompts=10)
    with pytest.raises(ValueError, match=r"value_SN has shape \(80, 1\)"):
        Featured(table, ("a", "b"), np.zeros((80, 1)))
    with pytest.raises(ValueError, match="infinite"):
        Featured(table, ("a",), np.full((80, 1), np.inf))
    detector = fit_learned(noise(table), 0, SETTINGS).detector
    with pytest.raises(ValueError, match="inputs have 2 columns; this detector reads 6"):
        detector.predict(np.zeros((3, 2)))


def test_without_scikit_learn_the_extra_is_named(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(MissingExtra, match=r"scikit-learn.*pip install 'unmask\[lab\]'"):
        fit_learned(noise(world(ValidationTable, 0, prompts=10)), 0, SETTINGS)


def test_nobody_loads_scikit_learn_who_learns_nothing():
    run = fresh_python("import sys, unmask.stats.rivals; assert 'sklearn' not in sys.modules")
    assert run.returncode == 0, run.stderr


def test_states_of_one_prompt_leave_nothing_to_choose_a_penalty_by(world):
    """Where only one prompt outside a fold has signals, its states say nothing of other prompts."""
    table = world(ValidationTable, 0, prompts=10)
    column_SM = np.random.default_rng(0).normal(size=(8, 3))
    assert _penalty(column_SM, table.q_SAR[:8, 0, 0], np.zeros(8, dtype=np.int64)) == max(PENALTIES)
