"""Swordsman: numbers of its worked example, and blocks that are cut anew."""

import pytest

from tests.methods.worked import revealed, run_statistics, table
from unmask.methods.check import check_policy
from unmask.methods.swordsman import Swordsman

# Confidence and entropy by position.
FIRST, SECOND, _ = ({int(at): tuple(pair) for at, pair in told.items()} for told in table("swordsman"))


def test_a_block_ends_before_the_largest_rise():
    """H = 1.2, .8, 1.9, 1, .6, .5: the largest rise is after the second position."""
    traj = run_statistics(Swordsman(), [FIRST], 6)
    notes = traj.notes
    assert (int(notes["start_B"]), int(notes["end_B"])) == (0, 1)
    assert float(notes["entropy_B"]) == pytest.approx(1.0, abs=1e-12)
    assert float(notes["ease_B"]) == 0.0
    assert revealed(traj) == [[0, 1]]


def test_the_rest_is_one_block_where_no_rise_is_large():
    """H = .5, .45, .3, .35: the largest rise is .05; lambda = 1 - .4 / 1."""
    traj = run_statistics(Swordsman(), [FIRST, SECOND], 6)
    assert (int(traj.notes["start_B"]), int(traj.notes["end_B"])) == (2, 5)
    assert float(traj.notes["entropy_B"]) == pytest.approx(0.4, abs=1e-12)
    assert float(traj.notes["ease_B"]) == pytest.approx(0.6, abs=1e-12)
    assert revealed(traj) == [[0, 1], [3, 4]]


@pytest.mark.parametrize(("mean", "tau"), [("block", 0.6015), ("masked", 0.7015)])
@pytest.mark.parametrize("off", [-1e-4, 1e-4])
def test_thresholds_of_the_sheet(mean, tau, off):
    """A confidence just below the threshold is not revealed beside a surer one, one just above is."""
    told = {2: (0.85, 0.20), 5: (tau + off, 0.12)}
    assert revealed(run_statistics(Swordsman(mean=mean), [FIRST, SECOND, told], 6))[2] == ([2, 5] if off > 0 else [2])


def test_one_position_is_always_revealed():
    unsure = {at: (0.2 + at / 100, 1.0) for at in range(4)}
    assert revealed(run_statistics(Swordsman(), [unsure], 4)) == [[3]]


def test_a_block_without_entropy():
    """Nothing to divide by: the ratio is 0, and a first block without entropy is not easy."""
    none = dict.fromkeys(range(3), (0.95, 0.0))
    traj = run_statistics(Swordsman(), [none], 3)
    assert float(traj.notes["ease_B"]) == 0.0
    assert revealed(traj) == [[0, 1, 2]]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Swordsman(), Swordsman(0.5, 0.05, "masked"), Swordsman(0.7, 10.0)])
def test_contract(policy):
    check_policy(policy)
