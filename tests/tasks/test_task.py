"""What a task is: the paper's table, splits that are the same everywhere, training apart from them, and scoring."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, ContractError, UnknownName
from unmask.tasks import (
    CONTROLS,
    SPLITS,
    TASKS,
    Example,
    Extraction,
    Scorer,
    Task,
    Verdict,
    constructed_task,
    find_task,
    score,
    score_all,
    scorers,
    write_example_line,
)
from unmask.tasks.draw import Draw
from unmask.tasks.extract import normalise_spaces
from unmask.tasks.splits import draw_examples, split_ids
from unmask.tasks.task import split_counts

PAPER = {
    "CSV Missing Cells": (16, "constructed", "one cell", "binary"),
    "HumanEval": (256, "official", "Python completion", "test pass"),
    "Multi-Span Cloze": (64, "constructed", "indexed spans", "partial"),
    "GSM8K": (256, "official", "numeric answer", "binary"),
    "Carry RTL": (32, "constructed", "three carry bits", "partial"),
    "TD07 Sparse Mask": (48, "constructed", "three spans", "partial"),
    "JSON Mode Eval": (128, "public", "schema JSON", "field credit"),
    "Constrained JSON Fill": (96, "constructed", "constrained JSON", "partial"),
    "Unique List Commit": (48, "constructed", "ordered list", "partial"),
    "HTML Close Tags": (48, "constructed", "closing-tag suffix", "exact/partial"),
}
CONSTRUCTED = [name for name, task in {**TASKS, **CONTROLS}.items() if task.generator]


# The table


def test_the_ten_tasks_are_those_of_the_paper():
    table = {t.title: (t.max_new_tokens, t.source, t.output, t.scorer.name) for t in TASKS.values()}
    assert table == PAPER
    assert list(table) == list(PAPER)


def test_unknown_names_are_refused_with_close_ones():
    with pytest.raises(UnknownName, match="did you mean carry-rtl"):
        find_task("carry-rt")
    with pytest.raises(UnknownName, match="unknown split 'test'; known: development, evaluation, validation"):
        find_task("carry-rtl").examples("test")


# Splits and training


def plus_zero(prompts: int = 10**9) -> Callable[[Draw, int], Example]:
    """A generator with so many different prompts."""

    def generate(draw: Draw, level: int) -> Example:
        n = draw.index(prompts)
        return Example(f"{n}  +  0?", str(n), (str(n),), {"n": n}, level)

    return generate


def stand_in(prompts: int = 10**9, version: str = "1") -> Task:
    scorer = Scorer("binary", scorers.score_number)
    counts = split_counts(3, 4, 5)
    return constructed_task(
        "plus-zero",
        "Plus Zero",
        scorer,
        plus_zero(prompts),
        max_new_tokens=8,
        output="number",
        version=version,
        counts=counts,
    )


def split_prompts(task: Task) -> dict[str, set[str]]:
    return {split: {normalise_spaces(e.prompt) for e in task.examples(split)} for split in SPLITS}


@each_case("name", CONSTRUCTED)
def test_splits_have_no_prompt_twice(name):
    task = find_task(name)
    by_split = split_prompts(task)
    ids = [e.id for split in SPLITS for e in task.examples(split)]
    assert {split: len(by_split[split]) for split in SPLITS} == dict(task.counts)
    assert len(set().union(*by_split.values())) == len(ids) == len(set(ids))


@each_case("name", CONSTRUCTED)
def test_training_is_disjoint_and_does_not_depend_on_the_start(name):
    task = find_task(name)
    taken = set().union(*split_prompts(task).values())
    drawn = list(islice(task.training(), 300))
    assert taken.isdisjoint(normalise_spaces(e.prompt) for e in drawn)
    assert len({normalise_spaces(e.prompt) for e in drawn}) > 280
    assert {e.split for e in drawn} == {"training"}
    assert len({e.id for e in drawn}) == 300
    assert list(islice(task.training(7), 3)) == drawn[7:10]


@pytest.mark.slow
def test_same_bytes_in_another_interpreter():
    """Another hash seed, another locale and another time zone change nothing."""
    code = (
        "import sys\n"
        "from unmask.tasks import SPLITS, write_example_line, find_task\n"
        "for name in sys.argv[1:]:\n"
        "    for split in SPLITS:\n"
        "        for example in find_task(name).examples(split): print(write_example_line(example, '1'))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "LC_ALL": "C", "TZ": "Asia/Kolkata", "PYTHONUTF8": "0"}
    run = subprocess.run(
        [sys.executable, "-c", code, *CONSTRUCTED], env=environment, capture_output=True, text=True, check=True
    )
    here = [
        write_example_line(e, "1") for name in CONSTRUCTED for split in SPLITS for e in find_task(name).examples(split)
    ]
    assert run.stdout.splitlines() == here


def test_a_generator_with_too_few_prompts_is_refused():
    with pytest.raises(ContractError, match="plus-zero gave 1000 prompts in a row"):
        draw_examples(plus_zero(11), "plus-zero", "1", 12)


def test_training_redraws_prompts_of_the_splits():
    narrow = stand_in(prompts=15)
    taken = {e.prompt for split in SPLITS for e in narrow.examples(split)}
    drawn = [e.prompt for e in islice(narrow.training(), 50)]
    assert len(taken) == 12
    assert taken.isdisjoint(drawn)
    assert len(set(drawn)) == 3


def test_splits_are_cut_by_rank_and_count():
    ids = [f"id-{i}" for i in range(12)]
    counts = dict(zip(SPLITS, (3, 4, 5), strict=True))
    parts = split_ids("t", ids, counts)
    assert {split: len(part) for split, part in parts.items()} == counts
    assert sorted(id for part in parts.values() for id in part) == sorted(ids)
    assert split_ids("t", ids[::-1], counts) == parts
    assert split_ids("other", ids, counts) != parts
    with pytest.raises(ConfigError, match="make the counts add up"):
        split_ids("t", ids[1:], counts)


def test_tasks_without_training_say_so():
    with pytest.raises(ConfigError, match="humaneval has no training examples"):
        find_task("humaneval").training()
    with pytest.raises(ConfigError, match="start is -1"):
        find_task("carry-rtl").training(-1)


def test_the_control_pairs_with_its_task():
    """The same sentence under the same number, in the same split."""
    for split in SPLITS:
        pairs = zip(
            find_task("td07-sparse-mask").examples(split), find_task("td07-clustered-mask").examples(split), strict=True
        )
        for sparse, clustered in pairs:
            assert clustered.id == sparse.id.replace("sparse", "clustered")
            assert clustered.constraints["sentence"] == sparse.constraints["sentence"]
            assert clustered.prompt != sparse.prompt


# Scoring


def test_answers_to_several_tasks_are_scored_each_by_its_own():
    names = ("carry-rtl", "csv-missing-cells", "unique-list-commit")
    several = [find_task(name).examples("development")[0] for name in names]
    answers = [(f"<answer>{example.target}</answer>", example) for example in several]
    heard: list[Verdict] = []
    verdicts = score_all(answers, on_verdict=heard.append)
    assert verdicts == heard == [score(text, example) for text, example in answers]
    assert [verdict.utility for verdict in verdicts] == [1.0] * 3
    assert score_all([]) == []


def test_a_mixed_batch_runs_slow_scorers_side_by_side():
    calls: list[tuple[int, int]] = []

    def verdict(text: str, example: Example) -> Verdict:
        return Verdict(example.id, 0.5, text, Extraction(text, "", "", ""), ())

    def many(answers, workers, on_verdict):
        calls.append((len(answers), workers))
        return [verdict(*answer) for answer in answers]

    quick = find_task("carry-rtl").examples("development")[0]
    slow = replace(quick, scorer=Scorer("slow", verdict, many))
    found = score_all([("a", slow), ("b", quick), ("c", slow), ("d" * 10**6, slow)], workers=3)
    assert calls == [(2, 3)]
    assert [one.reason for one in found[::2]] == ["a", "c"]
    assert found[1] == score("b", quick)
    assert "at most" in found[3].reason
