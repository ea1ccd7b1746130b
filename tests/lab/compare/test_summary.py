"""Numbers of made answers: ratios, fronts, and which tasks are averaged. The rest is in test_compare.py."""

import math

import pytest

from tests.helpers.made_comparison import made
from unmask.base.errors import UnknownName
from unmask.lab.compare.summary import MACRO, summarise
from unmask.report import compare as report
from unmask.report.compare import conclusions, remarks


def test_costs_are_means_and_ratios_of_means():
    spent = {"t": {"reference": [4, 8], "fast": [1, 2]}}
    summary = summarise(made({"t": {"reference": [0.5, 1.0], "fast": [0.5, 0.5]}}, spent))
    line = summary.line("t", "fast")
    assert (line["forwards"], line["forwards_ratio"]) == (1.5, 0.25)
    assert (line["forwards_ratio_low"], line["forwards_ratio_high"]) == (0.25, 0.25)
    assert line["tokens_per_forward"] == pytest.approx(16 / 3)
    assert line["tokens_per_forward_ratio"] == pytest.approx(4.0)
    assert tuple(line[["extra_forwards", "planner_forwards", "remasks", "processed_tokens"]]) == (1, 2, 3, 15)
    assert summary.line("t", "reference")["forwards_low"] == 4


def test_throughput_counts_the_answer_and_not_its_filler():
    spent = {"t": {"reference": [4, 8]}}
    line = summarise(made({"t": {"reference": [0.5, 1.0]}}, spent, written=3)).line("t", "reference")
    assert (line["tokens_per_forward"], line["answer_tokens_per_forward"]) == (16 / 12, 6 / 12)
    unknown = summarise(made({"t": {"reference": [0.5, 1.0]}}, spent)).line("t", "reference")
    assert math.isnan(unknown["answer_tokens_per_forward"])


def test_the_cheapest_that_is_no_worse():
    worth = {"reference": [0.6, 0.6], "bad": [0.1, 0.1], "good": [0.5, 0.7], "dear": [0.9, 0.9]}
    spent = {"reference": [4, 4], "bad": [1, 1], "good": [2, 2], "dear": [9, 9]}
    summary = summarise(made({"t": worth}, {"t": spent}))
    assert summary.cheapest_policy("t")["policy"] == "good"
    assert conclusions(summary)[0].startswith(
        "Cheapest without a loss beyond noise: good, 2.0 forwards per answer instead"
    )
    assert conclusions(summary)[1].startswith("Best: dear, utility 0.900 (+0.300 [+0.300, +0.300] on 2 prompts)")
    alone = summarise(made({"t": {name: worth[name] for name in ("reference", "bad")}}, {"t": spent}))
    assert alone.cheapest_policy("t") is None
    assert conclusions(alone) == ["No policy saves forwards without losing utility beyond noise."]
    assert conclusions(summarise(made({"t": {"reference": [0.6]}}))) == []


def test_macro_is_the_mean_of_the_tasks():
    worth = {"a": {"reference": [0.5, 1.0], "b": [1.0, 1.0]}, "c": {"reference": [0.2], "b": [0.6]}}
    spent = {"a": {"reference": [4, 8], "b": [1, 2]}, "c": {"reference": [2], "b": [2]}}
    summary = summarise(made(worth, spent))
    for policy in ("reference", "b"):
        own = [summary.line(task, policy) for task in "ac"]
        macro = summary.line(MACRO, policy)
        for name in ("utility", "forwards", "tokens_per_forward"):
            expected = sum(line[name] for line in own) / 2
            assert macro[name] == pytest.approx(expected)
        assert macro["utility_n"] == 3
    assert summary.line(MACRO, "b")["forwards_ratio"] == pytest.approx((1.5 + 2) / (6 + 2))


def test_the_front_and_what_is_sure_of_it():
    worth = {"reference": [0.6, 0.6], "cheap": [0.5, 0.5], "lucky": [0.4, 0.8], "bad": [0.1, 0.1], "best": [0.9, 0.9]}
    spent = {"reference": [4, 4], "cheap": [1, 1], "lucky": [3, 3], "bad": [5, 5], "best": [9, 9]}
    summary = summarise(made({"t": worth}, {"t": spent}))
    assert summary.task_lines("t").query("front")["policy"].tolist() == ["cheap", "lucky", "best"]
    assert summary.task_lines("t").query("sure")["policy"].tolist() == ["cheap", "best"]
    apart = summarise(made({"t": {"reference": [0.6, 0.6], "best": [0.9, 0.9]}}, {"t": spent}))
    assert apart.task_lines("t")["sure"].tolist() == [True, True]


def test_tasks_near_zero_are_shown_and_not_averaged():
    rows = {"a": {"reference": [0.5, 1.0], "b": [1.0, 1.0]}, "zero": {"reference": [0.0, 0.0], "b": [0.03, 0.0]}}
    summary = summarise(made(rows))
    assert (summary.near_zero, summary.macro_tasks) == (("zero",), ("a",))
    assert summary.line("zero", "b")["utility"] == 0.015
    assert summary.line(MACRO, "b")["utility"] == 1.0
    assert "zero: near 0, shown and not averaged (no policy's mean utility reaches 0.02)" in remarks(summary)
    assert '"near_zero_below": 0.02' in report.summary_json(made(rows), summary)
    reached = summarise(made(rows | {"zero": {"reference": [0.0, 0.0], "b": [0.04, 0.0]}}))
    assert (reached.near_zero, reached.macro_tasks) == ((), ("a", "zero"))


def test_tasks_that_the_user_names_are_not_averaged():
    rows = {"a": {"reference": [0.5], "b": [1.0]}, "c": {"reference": [0.2], "b": [0.4]}}
    summary = summarise(made(rows), macro_without=["c"])
    assert (summary.macro_tasks, summary.without) == (("a",), ("c",))
    assert "c: shown and not averaged" in remarks(summary)
    with pytest.raises(UnknownName, match="'d'"):
        summarise(made(rows), macro_without=["d"])
