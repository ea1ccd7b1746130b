"""Grids of whole runs: means over draws, what is unjudged, coverage, and paired intervals."""

from math import nan

import numpy as np
import pytest

from unmask.stats.arm_grid import arm_estimates, arm_grid, gate_coverage, paired_columns


@pytest.fixture
def grid():
    """Arm `a` runs once over three prompts; `b` has two draws, one of which lacks prompt r, and a gate."""
    rows = [
        ("a", 0, "q", 0.5, nan, nan),
        ("a", 0, "p", 1.0, nan, nan),
        ("a", 0, "r", nan, nan, nan),
        ("b", 0, "p", 0.0, 4, 1),
        ("b", 1, "p", 1.0, 4, 3),
        ("b", 0, "q", 0.5, 2, 0),
        ("b", 1, "q", nan, 2, 2),
        ("b", 0, "r", 1.0, 2, 0),
    ]
    arm, draw, prompt, utility, evaluated, deviated = zip(*rows, strict=True)
    return arm_grid(arm, draw, prompt, utility_W=utility, evaluated_W=evaluated, deviated_W=deviated)


def test_a_prompt_has_a_mean_where_every_draw_was_judged(grid):
    assert grid.prompts == ("p", "q", "r")
    np.testing.assert_array_equal(grid.utility["a"], [1.0, 0.5, nan])
    np.testing.assert_array_equal(grid.utility["b"], [0.5, nan, nan])
    np.testing.assert_array_equal(grid.judged(["a"]), [True, True, False])
    np.testing.assert_array_equal(grid.judged(["a", "b"]), [True, False, False])


def test_steps_are_those_of_arms_with_a_gate(grid):
    assert set(grid.steps) == {"b"}
    np.testing.assert_array_equal(grid.steps["b"], [[8, 4], [4, 2], [2, 0]])


@pytest.mark.parametrize(
    ("steps_P2", "share"),
    [
        ([[8, 2], [0, 0]], 0.25),
        ([[0, 0]], nan),
        # Not counted: the gate never opened.
        ([[nan, 0], [nan, 0]], 0.0),
        ([[nan, 1]], nan),
    ],
)
def test_coverage(steps_P2, share):
    np.testing.assert_equal(gate_coverage(np.array(steps_P2, dtype=np.float64)), share)


def test_pairs_stay_pairs():
    """The difference is the same on every prompt, so that no resample differs."""
    base_P = np.array([0.0, 0.2, 0.5, 0.75])
    utility = {"one": base_P + 0.25, "other": base_P}
    columns_PM = paired_columns(utility, np.array([True, True, True, False]), ("one", "other"), [("one", "other")])
    assert columns_PM.shape == (3, 3)
    means, differences = arm_estimates({"task": columns_PM}, ("one", "other"), [("one", "other")], seed=1, resamples=50)
    gain = differences["one", "other"]
    assert (gain.low, gain.value, gain.high) == pytest.approx((0.25, 0.25, 0.25))
    assert means["other"].value == pytest.approx(0.7 / 3)
    assert means["other"].low < means["other"].high


def test_tasks_count_the_same():
    tables = {"long": np.full((9, 1), 0.2), "short": np.full((1, 1), 0.8)}
    means, differences = arm_estimates(tables, ("one",), [], seed=1, resamples=20)
    assert means["one"].value == pytest.approx(0.5)
    assert differences == {}
