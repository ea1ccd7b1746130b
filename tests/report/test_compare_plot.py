"""Utility against forwards in letters."""

from tests.helpers.made_comparison import made
from unmask.lab.compare_summary import summarise
from unmask.report.compare_plot import HEIGHT, plot


def drawn(worth, spent, width=80):
    return plot(summarise(made({"t": worth}, {"t": spent}), resamples=5), width)


def test_left_is_cheap_and_up_is_good():
    lines = drawn({"reference": [0.5], "fast": [0.5], "bad": [0.1]}, {"reference": [8], "fast": [4], "bad": [4]})
    canvas = lines[1 : 1 + HEIGHT]
    top, bottom = canvas[0], canvas[-1]
    assert (top.split()[0], bottom.split()[0]) == ("0.500", "0.100")
    edge = top.index("│") + 1
    # Half the forwards are half the way.
    assert abs((top.index("b") - edge) * 2 - (top.index("a") - edge)) <= 1
    assert bottom.index("c") == top.index("b")
    assert lines[-1] == "a reference   b fast   c bad"
    assert max(map(len, lines)) <= 80


def test_policies_at_one_place_stand_side_by_side():
    names = ["reference", "x", "y", "z"]
    lines = drawn({name: [1.0] for name in names}, {name: [4] for name in names}, width=40)
    (row,) = [line for line in lines[1 : 1 + HEIGHT] if "a" in line]
    assert sorted(row.split("│")[1].strip()) == ["a", "b", "c", "d"]
    assert max(map(len, lines[1:])) <= 40


def test_one_policy_is_no_plot():
    assert drawn({"reference": [0.5]}, {"reference": [8]}) == []
