"""DUS: levels of its sheet, skipped positions that the authors leave, and its contract."""

import pytest

from tests.helpers.cases import each_case
from tests.methods.worked import confidences, revealed, run, table
from unmask.axes.region import dilated_levels
from unmask.methods.check import check_policy
from unmask.methods.dus import DUS

(SKIP,) = table("dus", -1)


@each_case(
    ("size", "base", "start", "expected"),
    [
        (8, 2, 1, [[0, 4], [2, 6], [1, 3, 5, 7]]),
        (6, 2, 1, [[0, 3], [1, 2, 4, 5]]),
        (10, 2, 1, [[0, 5], [2, 4, 6, 8], [1, 3, 7, 9]]),
        (12, 2, 1, [[0, 6], [3, 9], [1, 2, 4, 5, 7, 8, 10, 11]]),
        (9, 3, 1, [[0, 3, 6], [1, 2, 4, 5, 7, 8]]),
        (8, 2, 2, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (7, 2, 1, [[0, 3, 6], [1, 2, 4, 5]]),
        (5, 2, 1, [[0, 1, 2, 3, 4]]),
        (3, 2, 1, [[0, 1, 2]]),
        (4, 1, 1, [[0, 1, 2, 3]]),
    ],
)
def test_levels_of_the_sheet(size, base, start, expected):
    level_of = dilated_levels(size, base, start)
    levels = [[offset for offset in range(size) if level_of[offset] == at] for at in range(max(level_of) + 1)]
    assert levels == expected


@pytest.mark.parametrize(("size", "levels"), [(8, 3), (16, 4), (32, 5), (64, 6)])
def test_a_block_takes_log_steps(size, levels):
    assert max(dilated_levels(size, 2)) + 1 == levels


def test_the_authors_code_leaves_them_masked():
    traj = run(confidences([SKIP]), DUS(8, skip=0.3, leave_skipped=True), 8)
    assert traj.state.masked_BL[0].nonzero().flatten().tolist() == [4, 6]


def test_blocks_follow_each_other():
    assert revealed(run(confidences([[0.5] * 8]), DUS(4), 8)) == [[0, 2], [1, 3], [4, 6], [5, 7]]


@pytest.mark.parametrize("policy", [DUS(), DUS(4), DUS(4, skip=0.6), DUS(3, 3, skip=0.9)])
def test_contract(policy):
    check_policy(policy)
