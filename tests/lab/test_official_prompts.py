"""The problems as LLaDA's authors put them."""

import hashlib
import json

import pytest

from unmask.api.load import load
from unmask.lab.published import LLADA, WHOLE_SPLIT, published_task, read_official_prompts, with_turns
from unmask.tasks import TASKS, MissingData, find_task, score


@pytest.fixture(scope="module")
def gsm8k(shared):
    return read_official_prompts("gsm8k", shared / "data")


def test_the_solved_problems_are_the_authors(gsm8k):
    """A hash of the eight turns in the authors' file, OpenCompass's gsm8k_gen_1d7fe4.py at b7e6c35."""
    assert [turn["role"] for turn in gsm8k.turns] == ["user", "assistant"] * 4
    texts = json.dumps([turn["content"] for turn in gsm8k.turns])
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == "cf7dcfc37fc19b19"
    assert gsm8k.turns[1]["content"].endswith("The answer is 4\n")


def test_all_problems_are_asked_once(gsm8k, shared):
    run = LLADA.run("gsm8k")
    task = published_task(run, gsm8k, 4)
    members = task.examples(WHOLE_SPLIT)
    suite = {
        e.id
        for split in ("development", "validation", "evaluation")
        for e in find_task("gsm8k").examples(split, shared / "data")
    }
    assert {e.id for e in members} == suite
    assert (len(members), task.max_new_tokens, task.name) == (1319, 256, "gsm8k")
    assert all(
        e.prompt.startswith("Question: ") and e.prompt.endswith("\nLet's think step by step\nAnswer:") for e in members
    )
    assert TASKS["gsm8k"].max_new_tokens == 256
    # What is shown first is part of the version: no answers are mixed with those to other prompts.
    assert task.version != published_task(run, gsm8k, 3).version


def test_what_follows_the_answer_is_not_read(gsm8k):
    example = published_task(LLADA.run("gsm8k"), gsm8k, 0).examples(WHOLE_SPLIT)[0]
    right = f"So it is.\nThe answer is {example.target}\n"
    assert score(right, example).utility == 1
    verdict = score(right + "Question: How many is 999999?\nAnswer: 999999", example)
    assert verdict.utility == 1
    assert "999999" in verdict.extraction.raw
    assert score("The answer is 999999.5", example).utility == 0


def test_humaneval(shared):
    problems = read_official_prompts("humaneval", shared / "data")
    task = published_task(LLADA.run("humaneval"), problems, 0)
    first = next(e for e in task.examples(WHOLE_SPLIT) if e.id == "HumanEval/0")
    assert (len(task.examples(WHOLE_SPLIT)), task.max_new_tokens, problems.turns) == (164, 512, ())
    assert first.prompt == f"Complete the following python code:\n{first.constraints['prompt']}"


def test_turns_come_before_every_prompt(scaled, tmp_path):
    model = load(str(scaled.llada(tmp_path / "llada")), device="cpu")
    turns = ({"role": "user", "content": "one"}, {"role": "assistant", "content": "two"})
    shown = with_turns(model, turns)
    assert shown.codec.encode("three") == model.codec.encode([*turns, {"role": "user", "content": "three"}])
    assert (shown.name, shown.max_length, shown.codec.mask) == (model.name, model.max_length, model.codec.mask)
    assert with_turns(model, ()) is model


def test_missing_data_says_where_to_put_it(tmp_path):
    with pytest.raises(MissingData, match=r"put .*train\.jsonl"):
        read_official_prompts("gsm8k", tmp_path)
