"""The parts together."""

from dataclasses import replace

import pytest

from tests.helpers.tiny_bench import subject
from unmask.base.errors import ConfigError, UnknownName
from unmask.lab.bench import PARTS, BenchPlan, chosen_parts, run_bench
from unmask.lab.bench import run as bench_run
from unmask.lab.bench.run import TARGETS, commit


def test_parts_by_name():
    assert chosen_parts("all") == PARTS
    assert chosen_parts("step") == ("step",)
    with pytest.raises(UnknownName, match="did you mean step"):
        chosen_parts("steps")


@pytest.mark.parametrize("batches", [(), (0,), (8, 5000)])
def test_batches_that_make_no_sense_are_refused(batches):
    with pytest.raises(ConfigError, match="--batch"):
        BenchPlan(batches=batches)


def test_every_part_at_every_size_and_the_study_at_the_largest():
    told = []
    plan = BenchPlan(batches=(1, 2), quick=True)
    result = run_bench(subject(), plan, lambda part, batch: told.append((part, batch)))
    assert not result.failures
    both = [(part, batch) for part in ("forward", "step", "decode") for batch in (1, 2)]
    assert told == [*both, ("caches", 1), ("study", 2)]
    document = result.document()
    assert {line["part"] for line in document["lines"]} == set(PARTS)
    assert {"torch", "triton", "commit", "threads", "engine", "code", "cores"} <= set(document["machine"])
    assert document["model"]["dtype"] == "fp32"
    assert document["settings"] == {"batches": [1, 2], "parts": list(PARTS), "quick": True}
    # Aims are of another shape and machine.
    assert {ratio["target"] for ratio in document["ratios"]} == {None}


def test_a_part_that_fails_is_told_and_the_others_go_on(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("CUDA out of memory\nmore of it")

    monkeypatch.setattr(bench_run.forward, "measure", broken)
    result = run_bench(subject(), BenchPlan(("forward", "decode"), (1,), quick=True))
    (failure,) = result.failures
    assert (failure.part, failure.batch, failure.why) == ("forward", 1, "RuntimeError: CUDA out of memory")
    assert {line.part for line in result.found.lines} == {"decode"}


def test_aims_are_those_of_ratios_that_exist():
    result = run_bench(subject(), BenchPlan(batches=(1,), quick=True))
    names = {ratio.name for ratio in result.found.ratios}
    assert {name for name, _ in TARGETS if "modelling" not in name and "GB" not in name} <= names


def test_a_commit_is_known_only_inside_a_checkout(tmp_path):
    assert commit(tmp_path) is None
    assert replace(BenchPlan(), quick=True).answers.repeats < BenchPlan().answers.repeats
