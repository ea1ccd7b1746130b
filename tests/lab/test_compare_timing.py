"""Seconds that are measured, stored beside the answers, and read again."""

import json

import pytest
import torch

from tests.helpers.oracle import CARRY, oracle
from unmask.lab.compare import evaluate
from unmask.lab.compare_timing import BatchClock, stored_time
from unmask.methods import fixed_action

POLICIES = {"reference": fixed_action(), "blocks": fixed_action(region="block:8")}


def run(work=None, **options):
    given = {"split": "development", "prompts": 6, "steps": 4, "batch": 2, "policies": POLICIES}
    return evaluate(oracle(), [CARRY], work=work, **(given | options))


def test_every_batch_is_measured_and_the_first_of_a_policy_is_cold():
    found = run()
    assert [(b.policy, b.batch, b.time.rows, b.time.tokens, b.time.cold) for b in found.times] == [
        (policy, batch, 2, 64, batch == 0) for policy in POLICIES for batch in range(3)
    ]
    assert all(b.time.seconds > 0 and b.time.run == found.run for b in found.times)
    assert not any(b.time.cold for b in run(warm_up=True).times)


def test_a_warm_up_decodes_the_first_batch_twice_and_changes_no_answer():
    model = oracle()
    options = {"split": "development", "prompts": 4, "steps": 4, "batch": 2, "policies": POLICIES}
    plain = evaluate(model, [CARRY], **options)
    forwards = len(model.denoiser.shapes)
    warm = evaluate(model, [CARRY], warm_up=True, **options)
    assert len(model.denoiser.shapes) == 2 * forwards + 2 * 4
    assert warm.rows == plain.rows


def test_what_was_measured_before_keeps_its_run(tmp_path):
    first = run(tmp_path)
    again = run(tmp_path)
    assert again.run != first.run
    assert again.times == first.times
    assert {batch.time.run for batch in again.times} == {first.run}


def test_lost_seconds_are_no_reason_to_decode_again(tmp_path):
    first = run(tmp_path)
    times = sorted((tmp_path / "times").iterdir())
    times[0].unlink()
    times[1].write_bytes(times[1].read_bytes().replace(b"seconds", b"secondz"))
    model = oracle()
    again = evaluate(model, [CARRY], work=tmp_path, split="development", prompts=6, steps=4, batch=2, policies=POLICIES)
    assert model.denoiser.shapes == []
    assert again.rows == first.rows
    assert sum(batch.time is None for batch in again.times) == 2
    assert again.damaged == ()


def test_answers_have_the_same_bytes_whatever_the_clock_says(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "b")
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / x / "pieces").iterdir()} for x in "ab")
    assert one == other
    assert b"seconds" not in b"".join(one.values())


@pytest.mark.parametrize("entry", [None, {}, {"seconds": 1.0}, {"other": 2}])
def test_what_is_no_measurement_is_none(entry):
    assert stored_time(entry) is None


def test_the_device_is_waited_for_on_both_sides(monkeypatch):
    """Otherwise the seconds would be those of handing the work over."""
    told = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: told.append("wait"))
    clock = BatchClock(torch.device("cuda:7"))
    result, seconds = clock.measured(lambda: told.append("work") or 5)
    assert (result, told) == (5, ["wait", "work", "wait"])
    assert seconds > 0
    assert json.dumps(clock.machine).startswith('"a GPU, ')
