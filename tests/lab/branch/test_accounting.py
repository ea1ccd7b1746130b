"""Costs add up, and what a branch paid follows from who had its future run."""

from unmask.lab.branch import AxisCost, BranchCost
from unmask.lab.branch.accounting import _paid_by
from unmask.lab.branch.pools import Future, follow


def test_naive_is_done_and_saved():
    cost = AxisCost(branches=3, done=10, rollouts=1, first=2, futures=4, settled=8)
    assert (cost.saved, cost.naive) == (15, 25)
    assert cost + cost == AxisCost(6, 20, 2, 4, 8, 16)


def test_reports_add_up_axis_by_axis():
    one = BranchCost({"score": AxisCost(1, 2)}, trajectory=3, recalled=4, calls=5)
    other = BranchCost({"score": AxisCost(10, 20), "region": AxisCost(7, 7)}, trajectory=30, recalled=40, calls=50)
    both = one + other
    assert both == BranchCost({"score": AxisCost(11, 22), "region": AxisCost(7, 7)}, 33, 44, 55)
    assert both.total == AxisCost(18, 29)
    assert one.axes == {"score": AxisCost(1, 2)}


def future(owner, *passes):
    """One that took so many row-forwards in each of its steps."""
    one = Future(owner)
    for took in passes:
        one.add_step(took)
    return one


def chain():
    """Branch 0 ran five steps to an end; branch 1 ran two and met it at its third; its settled part ran one between."""
    end, middle, first = future(0, 1, 1, 3, 1, 2), future(1, 4), future(1, 1, 2)
    end.end = "the end"
    first.next, first.at = middle, 0
    middle.next, middle.at = end, 3
    return first, middle, end


def test_a_future_is_followed_to_its_end():
    """Steps, and the row-forwards that they took: more than one where a step looked ahead."""
    first, middle, end = chain()
    assert follow(end, 0) == ("the end", 5, 8)
    assert follow(end, 4) == ("the end", 1, 2)
    assert follow(middle, 0) == ("the end", 1 + 2, 4 + 3)
    assert follow(first, 0) == ("the end", 2 + 1 + 2, 3 + 4 + 3)
    assert follow(first, 1) == ("the end", 1 + 1 + 2, 2 + 4 + 3)


def test_a_branch_pays_for_what_it_had_run_itself():
    first, middle, end = chain()
    assert [_paid_by(0, future) for future in (first, middle, end)] == [0, 0, 8]
    assert [_paid_by(1, future) for future in (first, middle, end)] == [7, 4, 0]
