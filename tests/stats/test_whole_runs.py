"""Fixed actions by whole runs, and calibrations beside them."""

import numpy as np
import pytest

from tests.stats.test_guarantee import MadeUpTask
from unmask.stats import Calibration, CalibrationSettings, NotEnough, calibrate
from unmask.stats.calibration import graded_apart
from unmask.stats.whole_runs import WholeRuns

HOW = CalibrationSettings(seed=0, theta=False)
WHOLE = CalibrationSettings(seed=0, theta=False, fixed="end-to-end")


@pytest.fixture
def table():
    """At single states the third candidate is as good as any, on average."""
    return MadeUpTask(np.random.default_rng(0), 0.0, 0.1, prompts=20).table


def test_the_best_over_prompts_that_all_candidates_answered():
    runs = WholeRuns(np.arange(4), [[1, 0.5, 0], [0, 0.5, 1], [0, 0.2, np.nan], [0.5, 0.6, 0.5]])
    best = runs.best(0)
    assert (best.action, best.states, best.excluded) == (1, 3, 1)
    assert best.mean_A == pytest.approx([0.5, 1.6 / 3, 0.5])
    assert WholeRuns(np.arange(2), [[0.5, 0.5], [0, 0]]).best(1).action == 1
    with pytest.raises(NotEnough):
        WholeRuns(np.arange(1), [[np.nan, 1.0]]).of([5]).best(0)


def test_they_choose_the_fixed_action_of_a_calibration(table):
    for action in range(3):
        runs = WholeRuns(np.arange(20), np.tile(np.eye(3)[action], (20, 1)))
        chosen = calibrate(table, WHOLE, runs)
        assert chosen.fixed.action == action
        assert chosen.fixed.states == 20
        assert Calibration.from_json(chosen.to_json()).settings.fixed == "end-to-end"


def test_each_fold_is_beside_what_the_others_choose(table):
    """One prompt decides: without it the first candidate is chosen, with it the second."""
    utility_PA = np.tile([0.5, 0.5, 0.0], (20, 1))
    utility_PA[7] = [0.0, 1.0, 0.0]
    seen = graded_apart(table, 1, WHOLE, WholeRuns(np.arange(20), utility_PA))
    fixed_P = seen.fit.fixed_S.reshape(20, 4)
    assert set(fixed_P[7]) == {0}
    assert (fixed_P == 0).all(1).sum() == 4
    assert (fixed_P == 1).all(1).sum() == 16


def test_runs_go_with_the_setting(table):
    runs = WholeRuns(np.arange(20), np.ones((20, 3)))
    for settings, given in ((WHOLE, None), (HOW, runs)):
        with pytest.raises(ValueError, match="given with 'end-to-end' and not with 'one-step'"):
            calibrate(table, settings, given)
    with pytest.raises(ValueError, match="fixed is 'best'"):
        CalibrationSettings(seed=0, fixed="best")
    with pytest.raises(ValueError, match="they must be P and P x actions"):
        WholeRuns(np.arange(3), np.ones((2, 2)))


def test_a_file_names_new_settings_only_where_they_are_used(table):
    assert '"rule"' not in calibrate(table, HOW).to_json()
    assert '"fixed": "one-step"' not in calibrate(table, HOW).to_json()
