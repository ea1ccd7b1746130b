"""Ratios of medians, and the document of a run."""

import json

import pytest

from unmask.lab.bench import BenchFailure, BenchResult, Line, Ratio, Times
from unmask.lab.bench.lines import Found


def line(name, median):
    return Line("step", name, 4, "step", Times(median, 1, 100, 3))


def test_a_ratio_is_of_the_medians_the_first_over_the_second():
    ratio = Ratio.between("a over b", line("a", 6.0), line("b", 4.0))
    assert (ratio.part, ratio.name, ratio.batch, ratio.value) == ("step", "a over b", 4, 1.5)


@pytest.mark.parametrize(
    ("value", "target", "at_most", "met"),
    [(2, None, True, None), (2, 2, True, True), (3, 2, True, False), (3, 2, False, True)],
)
def test_a_target_is_met_from_its_own_side(value, target, at_most, met):
    assert Ratio("step", "x", 1, value, target, at_most).met is met


def test_the_document_is_plain_and_says_each_remark_once():
    found = Found((line("a", 6.0),), (Ratio("step", "x", 4, 2.0, 3.0),), ("r", "r"))
    result = BenchResult({"torch": "2"}, {"name": "m"}, {}, found, (BenchFailure("study", 4, "no room"),), 1.5)
    document = json.loads(json.dumps(result.document()))
    assert document["format"] == "unmask-bench/1"
    assert document["lines"][0]["times"] == {"median": 6.0, "low": 1, "high": 100, "repeats": 3}
    assert document["ratios"][0]["met"] is True
    assert document["remarks"] == ["r"]
    assert document["failures"] == [{"part": "study", "batch": 4, "why": "no room"}]
