"""Seconds that are measured, stored beside the answers, and read again."""

import json

from tests.helpers.compared import compare, rows
from tests.helpers.oracle import CARRY, oracle
from unmask.lab.compare import summarise, summarise_speed
from unmask.methods import fixed_action
from unmask.report.compare import timing_document

POLICIES = {"reference": fixed_action(), "blocks": fixed_action(region="block:8")}


def run(work_dir=None, model=None, **options):
    given = {"split": "development", "prompts": 6, "steps": 4, "batch_size": 2, "policies": POLICIES}
    return compare(model or oracle(), [CARRY], work_dir=work_dir, **(given | options))


def test_every_batch_is_measured_and_the_first_of_a_policy_is_cold():
    found = run()
    assert [tuple(row) for row in found.times[["policy", "batch", "rows", "tokens", "cold"]].to_numpy()] == [
        (policy, batch, 2, 64, batch == 0) for policy in POLICIES for batch in range(3)
    ]
    assert (found.times["seconds"] > 0).all()
    assert set(found.times["run"]) == {found.run}
    assert not run(warm_up=True).times["cold"].any()


def test_a_warm_up_decodes_the_first_batch_twice_and_changes_no_answer():
    model = oracle()
    plain = run(model=model, prompts=4)
    forwards = len(model.denoiser.shapes)
    warm = run(model=model, prompts=4, warm_up=True)
    assert len(model.denoiser.shapes) == 2 * forwards + 2 * 4
    assert rows(warm) == rows(plain)


def test_what_was_measured_before_keeps_its_run(tmp_path):
    first = run(tmp_path)
    again = run(tmp_path)
    assert again.run != first.run
    assert again.times.equals(first.times)
    assert set(again.times["run"]) == {first.run}


def test_lost_seconds_are_no_reason_to_decode_again(tmp_path):
    first = run(tmp_path)
    times = sorted((tmp_path / "times").iterdir())
    times[0].unlink()
    times[1].write_bytes(times[1].read_bytes().replace(b"seconds", b"secondz"))
    model = oracle()
    again = run(tmp_path, model)
    assert model.denoiser.shapes == []
    assert rows(again) == rows(first)
    assert again.times["seconds"].isna().sum() == 2
    assert again.damaged == ()
    document = timing_document(again, summarise_speed(again, summarise(again, resamples=5), resamples=5))
    assert sum(batch["time"] is None for batch in document["batches"]) == 2
    assert '"rows": 2,' in json.dumps(document)


def test_answers_have_the_same_bytes_whatever_the_clock_says(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "b")
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / x / "pieces").iterdir()} for x in "ab")
    assert one == other
    assert b"seconds" not in b"".join(one.values())
