"""The two table types: what they hold, and that one is never taken for the other."""

import dataclasses

import numpy as np
import pytest

from unmask.stats import (
    CalibrationSettings,
    HeldOutTable,
    LeakageError,
    ProposedAction,
    ValidationTable,
    calibrate,
    fit_detector,
    fit_gate,
    fit_schedule,
    fit_theta,
    grade,
)
from unmask.stats.tables import check_apart

Q_SA = [[0.5, 0.75], [0.5, 0.25], [0.5, 0.5]]


def test_neither_type_is_the_other():
    assert not issubclass(HeldOutTable, ValidationTable)
    assert not issubclass(ValidationTable, HeldOutTable)


@pytest.mark.parametrize(
    "fit",
    [
        lambda table: calibrate(table, CalibrationSettings(seed=0)),
        lambda table: fit_detector(grade(table, 0), 10),
        lambda table: fit_schedule(grade(table, 0), 4),
        lambda table: fit_theta(grade(table, 0), 10, folds=2, caution=0, seed=0),
        lambda table: fit_gate(grade(table, 0), 10, folds=2, caution=0, seed=0),
    ],
)
def test_a_held_out_table_is_refused_by_whatever_fits(states, fit):
    columns = {"q_SA": Q_SA, "signal_S": [1, 2, 3]}
    fit(states(**columns))
    with pytest.raises(LeakageError, match="is a HeldOutTable; only a ValidationTable"):
        fit(states(HeldOutTable, **columns))


class TestApart:
    def test_two_tables_of_one_setting_pass(self, states):
        check_apart(states(q_SA=Q_SA, signal_S=[1, 2, 3]), states(HeldOutTable, q_SA=Q_SA, signal_S=[1, 2, 3]))

    def test_validation_states_are_not_shown_as_held_out(self, states):
        table = states(q_SA=Q_SA, signal_S=[1, 2, 3])
        with pytest.raises(LeakageError, match="must be a HeldOutTable"):
            check_apart(table, table)

    def test_a_common_prompt_is_refused(self, states):
        columns = {"q_SA": Q_SA, "signal_S": [1, 2, 3]}
        held_out = states(HeldOutTable, **columns, prompt_S=np.array([7, 2, 9]))
        with pytest.raises(LeakageError, match="prompt '2' and 0 others are in both"):
            check_apart(states(**columns), held_out)

    def test_other_candidates_are_refused(self, states):
        held_out = states(HeldOutTable, q_SA=Q_SA, signal_S=[1, 2, 3], candidates=("b", "a"))
        with pytest.raises(ValueError, match="must be the same, in one order"):
            check_apart(states(q_SA=Q_SA, signal_S=[1, 2, 3]), held_out)


class TestGrade:
    def test_by_hand(self, states):
        """Gains are those of the proposal over action 1, and 0 where there is none."""
        found = grade(states(q_SA=Q_SA, signal_S=[1, 2, 3], gain_S=[0.25, 0.1, np.nan]), 1)
        np.testing.assert_allclose(found.gain_S, [0.0, 0.35, 0.0], atol=1e-12)
        np.testing.assert_allclose(found.fit.g_S, [0.0, 0.25, 0.0])
        np.testing.assert_allclose(found.fixed_utility_S, [0.75, 0.25, 0.5])
        np.testing.assert_allclose(found.action_gain(np.array([0, 0, 1])), [-0.25, 0.25, 0.0])
        assert found.used_S.all()

    def test_missing_utilities_exclude_a_state(self, states):
        table = states(q_SA=Q_SA, signal_S=[1, 2, 3])
        unknown_SR = table.raw.q_SR.copy()
        unknown_SR[0, :2] = np.nan  # none in the first fold
        found = grade(dataclasses.replace(table, raw=ProposedAction(unknown_SR, table.raw.same_SA)), 0)
        assert found.used_S.tolist() == [False, True, True]

    def test_raw_and_snapped(self, states):
        table = states(q_SA=Q_SA, signal_S=[1, 2, 3])
        table = dataclasses.replace(table, snapped=ProposedAction(np.full((3, 4), 0.75), table.raw.same_SA))
        np.testing.assert_allclose(grade(table, 0, "raw").gain_S, 0)
        np.testing.assert_allclose(grade(table, 0, "snapped").gain_S, 0.25)
        with pytest.raises(ValueError, match="one of raw, snapped"):
            grade(table, 0, "nearest")


def test_columns_cannot_be_changed(states):
    table = states(q_SA=Q_SA, signal_S=[1, 2, 3])
    with pytest.raises(ValueError, match="read-only"):
        table.q_SAR[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        table.raw.q_SR[0] = 0
    assert len(table) == 3


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"prompt_S": np.arange(2)}, "prompt_S has shape"),
        ({"masked_S": np.array([0.5, 1.5, 0])}, "fraction in"),
        ({"abstained_S": np.zeros(3)}, "true or false"),
        ({"abstained_S": np.ones(3, bool)}, "without a proposal there is none"),
        ({"candidates": ("a", "a")}, "its own name"),
        ({"reference": 2}, "actions 0..1"),
        ({"raw": ProposedAction(np.zeros((3, 2)), np.zeros((3, 2), bool))}, "raw.q_SR has shape"),
        ({"raw": ProposedAction(np.full((3, 4), 2.0), np.zeros((3, 2), bool))}, "utilities lie in"),
        ({"snapped": ProposedAction(np.zeros((3, 4)), np.zeros((3, 3), bool))}, "snapped.same_SA has shape"),
    ],
)
def test_refusals(states, columns, words):
    with pytest.raises(ValueError, match=words):
        states(q_SA=Q_SA, signal_S=[1, 2, 3], **columns)
