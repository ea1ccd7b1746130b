"""Which prompt is where: the same on every machine, and nowhere twice."""

import hashlib
import os
import subprocess
import sys
from itertools import islice

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, ContractError
from unmask.tasks import CONTROLS, SPLITS, TASKS, Draft, examples, find, jsonl, splits, training
from unmask.tasks.base import Task, TaskJudge, split_counts
from unmask.tasks.scoring import utility
from unmask.tasks.scoring.extract import squeeze

CONSTRUCTED = [name for name, task in {**TASKS, **CONTROLS}.items() if task.generator]


def stand_in(prompts: int = 10**9, version: str = "1", counts=(3, 4, 5)) -> Task:
    """A task with so many different prompts."""

    def generate(draw, level):
        n = draw.below(prompts)
        return Draft(f"{n}  +  0?", str(n), (str(n),), {"n": n}, level)

    judge = TaskJudge("binary", utility.number)
    return Task(
        "plus-zero", "Plus Zero", 8, "constructed", "number", judge, split_counts(*counts), version, generator=generate
    )


def prompts(name: str) -> dict[str, set[str]]:
    return {split: {squeeze(e.prompt) for e in examples(name, split)} for split in SPLITS}


def export_hash(name: str) -> str:
    lines = [jsonl.line(e, find(name).prompts_version) for split in SPLITS for e in examples(name, split)]
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()


FROZEN = {
    "csv-missing-cells": "df237914e80efcad",
    "multi-span-cloze": "649bf2d998267cba",
    "carry-rtl": "34619802f5b92ce9",
    "td07-sparse-mask": "f0eee6735258fbc2",
    "constrained-json-fill": "8166a08edc2dc70a",
    "unique-list-commit": "a44c68194e0075bd",
    "html-close-tags": "50c0890c37eca300",
    "td07-clustered-mask": "1183bb29d3a53fd7",
}
"""Start of the hash of everything a generator's version stands for: who changes one changes its VERSION too."""


@each_case("name", CONSTRUCTED)
def test_a_version_always_means_the_same_prompts(name):
    assert export_hash(name).startswith(FROZEN[name])


@each_case("name", CONSTRUCTED)
def test_no_prompt_twice(name):
    by_split = prompts(name)
    ids = [e.id for split in SPLITS for e in examples(name, split)]
    assert {split: len(by_split[split]) for split in SPLITS} == dict(find(name).counts)
    assert len(set().union(*by_split.values())) == len(ids) == len(set(ids))


@each_case("name", CONSTRUCTED)
def test_training_is_disjoint(name):
    taken = set().union(*prompts(name).values())
    drawn = list(islice(training(name), 300))
    assert taken.isdisjoint(squeeze(e.prompt) for e in drawn)
    assert len({squeeze(e.prompt) for e in drawn}) > 280
    assert {e.split for e in drawn} == {"training"}
    assert len({e.id for e in drawn}) == 300


@each_case("name", CONSTRUCTED)
def test_training_example_does_not_depend_on_the_start(name):
    assert list(islice(training(name, 7), 3)) == list(islice(training(name), 7, 10))


@pytest.mark.slow
def test_same_bytes_in_another_interpreter():
    """Another hash seed, another locale and another time zone change nothing."""
    code = (
        "import sys, hashlib\n"
        "from unmask.tasks import SPLITS, examples, find, jsonl\n"
        "for name in sys.argv[1:]:\n"
        "    lines = [jsonl.line(e, find(name).prompts_version) for split in SPLITS for e in examples(name, split)]\n"
        "    print(hashlib.sha256('\\n'.join(lines).encode('ascii')).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "LC_ALL": "C", "TZ": "Asia/Kolkata", "PYTHONUTF8": "0"}
    run = subprocess.run(
        [sys.executable, "-c", code, *CONSTRUCTED], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [export_hash(name) for name in CONSTRUCTED]


def test_regeneration_without_the_cache():
    before = export_hash("carry-rtl")
    splits._constructed.cache_clear()
    splits._drawn_split.cache_clear()
    assert export_hash("carry-rtl") == before


def test_repeated_prompts_are_drawn_again():
    drafts = splits.universe(stand_in(prompts=12), 12)
    assert len({d.prompt for d in drafts}) == 12
    assert [d.level for d in drafts] == [1, 2, 3, 4] * 3
    assert splits.universe(stand_in(prompts=12), 12) == drafts
    # More examples leave the first ones as they are.
    assert splits.universe(stand_in(), 5) == splits.universe(stand_in(), 9)[:5]


def test_narrow_generator_is_refused():
    with pytest.raises(ContractError, match="plus-zero gave 1000 prompts in a row"):
        splits.universe(stand_in(prompts=11), 12)


def test_training_redraws_prompts_of_the_splits():
    narrow = stand_in(prompts=15)
    taken = {e.prompt for split in SPLITS for e in splits.examples(narrow, split)}
    drawn = [e.prompt for e in islice(splits.training(narrow), 50)]
    assert len(taken) == 12
    assert taken.isdisjoint(drawn)
    assert len(set(drawn)) == 3


def test_version_moves_everything():
    old, new = stand_in(), stand_in(version="2")
    for split in SPLITS:
        a, b = splits.examples(old, split), splits.examples(new, split)
        assert {e.id for e in a}.isdisjoint(e.id for e in b)
        assert {e.prompt for e in a}.isdisjoint(e.prompt for e in b)


def test_cut_is_by_rank_and_count():
    ids = [f"id-{i}" for i in range(12)]
    counts = dict(zip(SPLITS, (3, 4, 5), strict=True))
    parts = splits.cut("t", ids, counts)
    assert {split: len(part) for split, part in parts.items()} == counts
    assert sorted(id for part in parts.values() for id in part) == sorted(ids)
    assert splits.cut("t", ids[::-1], counts) == parts
    assert splits.cut("other", ids, counts) != parts
    with pytest.raises(ConfigError, match="make the counts add up"):
        splits.cut("t", ids[1:], counts)


def test_tasks_without_training():
    with pytest.raises(ConfigError, match="humaneval has no training examples"):
        training("humaneval")
    with pytest.raises(ConfigError, match="start is -1"):
        training("carry-rtl", -1)


def test_the_control_pairs_with_its_twin():
    """The same sentence under the same number, in the same split."""
    for split in SPLITS:
        pairs = zip(examples("td07-sparse-mask", split), examples("td07-clustered-mask", split), strict=True)
        for sparse, clustered in pairs:
            assert clustered.id == sparse.id.replace("sparse", "clustered")
            assert clustered.constraints["sentence"] == sparse.constraints["sentence"]
            assert clustered.prompt != sparse.prompt
