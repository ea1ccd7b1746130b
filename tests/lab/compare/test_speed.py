"""Wall time of made batches."""

from math import isnan

import pytest

from tests.helpers.made_comparison import made, timed
from unmask.lab.compare.summary import MACRO, summarise, summarise_speed
from unmask.report.compare import time_remarks
from unmask.stats import mean_over_tasks

ROWS = {"t": {"reference": [1.0] * 6, "fast": [0.5] * 6}}


def speed(times, rows=ROWS, **options):
    evaluation = made(rows, times=times, **options)
    return summarise_speed(evaluation, summarise(evaluation))


def test_seconds_are_per_prompt_and_the_first_batch_is_left_out():
    times = [timed("t", "reference", at, s, cold=at == 0) for at, s in enumerate([99.0, 4.0, 6.0])]
    times += [timed("t", "fast", at, s, cold=at == 0) for at, s in enumerate([88.0, 1.0, 3.0])]
    found = speed(times)
    reference, fast = found.task_lines("t").to_dict("records")
    assert (reference["seconds"], fast["seconds"], fast["ratio"]) == (2.5, 1.0, 0.4)
    # Positions, and the tokens of the answers among them.
    assert (fast["tokens_per_second"], fast["answer_tokens_per_second"]) == (8.0, 2.0)
    assert (fast["batches"], fast["cold"]) == (2, False)
    expected = mean_over_tasks([[[4.0, 1.0], [6.0, 3.0]]], [[[2.0, 2.0], [2.0, 2.0]]], relative_to=0, seed=0)[1]
    assert (fast["ratio_low"], fast["ratio_high"]) == pytest.approx((expected.low, expected.high))
    assert found.task_lines("t")["front"].tolist() == [True, True]
    assert found.task_lines(MACRO)["seconds"][1] == 1.0
    assert time_remarks(found) == []


def test_one_batch_has_no_interval_and_says_what_is_in_it():
    found = speed([timed("t", "reference", 0, 4.0, cold=True), timed("t", "fast", 0, 1.0, cold=True)])
    fast = found.task_lines("t").iloc[1]
    assert (fast["seconds"], fast["ratio"], fast["cold"]) == (0.5, 0.25, True)
    assert isnan(fast["seconds_low"])
    assert isnan(fast["ratio_high"])
    assert any("first batches" in text for text in time_remarks(found))


def test_seconds_of_other_runs_and_machines_are_named_and_other_machines_not_compared():
    times = [timed("t", "reference", at, 4.0) for at in range(2)]
    times += [timed("t", "fast", 0, 1.0, run="before"), timed("t", "fast", 1, 3.0, run="before", machine="other")]
    found = speed(times)
    assert (found.measured, found.earlier, found.elsewhere, found.unknown) == (2, 2, 1, 0)
    assert found.task_lines("t")["ratio"][1] == 0.25
    assert time_remarks(found) == [
        "seconds of 2 batches are of an earlier run, 1 of them on another machine or device; those of 2 batches are of "
        "this one"
    ]


def test_lost_seconds_are_counted():
    found = speed([timed("t", "reference", 0, 4.0), timed("t", "fast", 0, None)])
    assert found.unknown == 1
    assert isnan(found.task_lines("t")["seconds"][1])
    assert not found.task_lines("t")["front"][1]
    assert time_remarks(found) == ["seconds of 1 batch are lost: the answers count, the time does not"]
