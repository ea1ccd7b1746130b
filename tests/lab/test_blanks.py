"""Tasks that ask to fill: texts with blanks in comparisons, studies and gates."""

import json

import pytest

from tests.helpers.compared import compare, rows
from tests.helpers.own_tasks import parsed
from unmask import load
from unmask.api import infill_request
from unmask.lab.calibrate import calibrate
from unmask.lab.store import Store
from unmask.lab.study.prompts import answer_text, example_request
from unmask.lab.study.protocol import run_study
from unmask.methods import LLaDA
from unmask.tasks import own_task, score

TEXTS = ("a[MASK*2]b[MASK]c", "[MASK]ab[MASK*2]", "ba[MASK*2]a[MASK]", "c[MASK]c[MASK*2]")


@pytest.fixture
def letters(tmp_path):
    """A task for the exact model: two runs of blanks among letters."""
    rows = [{"text": text, "target": ["ab", "c"], "id": f"p{n}"} for n, text in enumerate(TEXTS)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return own_task("mine", str(tmp_path / "mine.jsonl"), scorer="blanks")


@pytest.fixture(scope="module")
def model():
    return load("exact", n=6, vocab=3)


def fills_of(text, filled):
    """Cut an infilled text at the places of its blanks: every letter is a token."""
    canvas = "".join(
        "_" if letter == "_" else letter for letter in text.replace("[MASK*2]", "__").replace("[MASK]", "_")
    )
    runs, last = [], ""
    for blank, letter in zip(canvas, filled, strict=True):
        if blank == "_":
            runs = [*runs[:-1], runs[-1] + letter] if last == "_" else [*runs, letter]
        last = blank
    return "\n".join(runs)


def test_the_request_is_that_of_infill(model, letters):
    for example in letters.examples("validation"):
        request = example_request(model, letters, 2, example)
        plain = infill_request(model, example.prompt, 2)
        assert (request.canvas, request.given, request.key) == (plain.canvas, plain.given, plain.key)
        assert (request.id, request.steps) == (example.id, 2)
        first, last = request.answer
        assert not request.given[first]
        assert not request.given[last - 1]
        assert all(request.given[:first])
        assert all(request.given[last:])
        # No more steps than blanks, whatever the task's number is.
        assert example_request(model, letters, 9, example).steps == 3


def test_an_answer_is_spelled_run_by_run(model, letters):
    example = next(e for split in ("validation", "evaluation") for e in letters.examples(split) if e.id == "p0")
    request = example_request(model, letters, 3, example)
    assert request.canvas[slice(*request.answer)] == (3, 3, 1, 3)
    # A filled letter that stands between the blanks too does not confuse the runs.
    assert answer_text(model.codec, request, [1, 1, 1, 1]) == "bb\nb"
    assert score("ab\nc", example).utility == 1.0
    assert score("ab\nb", example).utility == 0.5


def test_compare_decodes_as_infill_does(model, letters):
    found = compare(model, [letters], split="validation", policies={"reference": LLaDA()}, steps=2)
    examples = {e.id: e for e in letters.examples("validation")}
    assert {row.prompt for row in rows(found)} == set(examples)
    for row in rows(found):
        example = examples[row.prompt]
        filled = model.infill(example.prompt, policy="llada", steps=2).text
        assert row.answer == fills_of(example.prompt, filled)
        assert row.utility == score(row.answer, example).utility


def test_a_gate_is_made_for_texts_with_blanks(model, letters, tmp_path):
    gate = calibrate(
        model,
        task=letters,
        axis="region",
        work_dir=tmp_path / "work",
        prompts=2,
        states=2,
        rollouts=1,
        steps_share=0.67,
    )
    assert gate.task == "mine"
    assert {state["prompt"] for state in Store.open(tmp_path / "work").read_arrow("states").to_pylist()} <= {
        e.id for e in letters.examples("validation")
    }
    assert model.infill(TEXTS[0], gate=gate).text


def test_a_study_fills_and_scores(tmp_path, tiny_load):
    texts = [f"Say w[MASK*{2 + n % 2}] and then [MASK*3] no. {n}" for n in range(8)]
    rows = [{"text": text, "target": ["x", "y"], "id": f"p{n}"} for n, text in enumerate(texts)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    study = parsed(tmp_path, own__mine__horizon=..., own__mine__score="blanks")
    assert study.task("mine").max_new_tokens == 6
    store = Store.create(tmp_path / "study", study.config)
    assert run_study(study, store, tiny_load).complete
    branches = store.read_arrow("branches").to_pylist()
    assert {row["reason"] for row in branches} <= {f"{n} of 2 blanks right" for n in range(3)}
    # One line for each of the two runs.
    assert all(row["answer"].count("\n") == 1 for row in branches)
