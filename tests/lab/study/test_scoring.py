"""One judge for studies, gates and comparisons: every answer once, and never 0 for what nobody could tell."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from tests.helpers.tiny_studies import table
from unmask.base.errors import ConfigError, UnknownName
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig, prompts
from unmask.lab.study.prompts import score_answers
from unmask.lab.study.protocol import run_study
from unmask.tasks import Example, Scorer, code_answers, find_task


@pytest.fixture(scope="module")
def members():
    return find_task("carry-rtl").examples("validation")[:2]


@pytest.fixture
def judged(monkeypatch):
    """Texts and prompts that were scored, in order."""
    pairs_seen = []

    def scores(pairs, jobs, scoring):
        pairs_seen.extend((text, example.id) for text, example in pairs)
        return [(len(text) / 10, f"length of {text}") for text, _ in pairs]

    monkeypatch.setattr(prompts, "score_texts", scores)
    return pairs_seen


def model():
    """Answers are their tokens, spelt out."""
    return SimpleNamespace(codec=SimpleNamespace(answer=lambda tokens: "".join(map(str, tokens))))


def test_equal_answers_to_a_prompt_are_judged_once(members, judged):
    one, other = (example.id for example in members)
    known = {}

    def scored(*answers):
        frame = pd.DataFrame(answers, columns=["prompt", "answer"], index=range(7, 7 + len(answers)))
        frame = score_answers(frame, members, codec=model().codec, known=known)
        return list(frame[["text", "utility", "reason"]].itertuples(index=False, name=None))

    first = scored((one, (1, 2)), (one, (1, 2)), (other, (1, 2)), (one, (3,)))
    assert first == [
        ("12", 0.2, "length of 12"),
        ("12", 0.2, "length of 12"),
        ("12", 0.2, "length of 12"),
        ("3", 0.1, "length of 3"),
    ]
    assert judged == [("12", one), ("12", other), ("3", one)]
    assert scored((one, (3,)), (other, (4,)))[0] == first[3]
    assert judged[3:] == [("4", other)]


def test_without_an_evaluator_there_is_no_utility(members, monkeypatch):
    """What can be judged without it is, one by one."""
    right, wrong = ("right", members[0]), ("wrong", members[1])

    def score_all(pairs, jobs):
        if wrong in pairs:
            raise ConfigError("jsonschema is not installed")
        return [SimpleNamespace(utility=1.0, reason="compared") for _ in pairs]

    monkeypatch.setattr(prompts, "score_all", score_all)
    (good, bad) = prompts.score_texts([right, wrong], None)
    assert good == (1.0, "compared")
    assert math.isnan(bad[0])
    assert bad[1] == "jsonschema is not installed"


def test_a_misspelt_sandbox_is_refused_and_no_utility(monkeypatch):
    """NaN would say that nobody could tell, of every answer alike."""
    monkeypatch.setenv("UNMASK_SANDBOX", "of")
    constraints = {"prompt": "def f():\n", "entry_point": "f", "test": "def check(candidate): pass\n"}
    scorer = Scorer("test pass", code_answers.score_program, code_answers.score_programs)
    example = Example("Write f.", "    return 1\n", ("",), constraints, 1, scorer=scorer)
    with pytest.raises(UnknownName, match=r"UNMASK_SANDBOX.*'of'.*off"):
        prompts.score_texts([("    return 1\n", example)], None)


def test_scoring_changes_what_surplus_costs_and_nothing_else():
    members = find_task("unique-list-commit").examples("validation")[:1]
    (example,) = members
    answers = [", ".join(parts) for parts in (example.parts, (*example.parts, "zebra"), example.parts[:1])]
    pairs = [(f"<answer>{text}</answer>", example) for text in answers]
    ours, paper = (prompts.score_texts(pairs, 1, scoring) for scoring in ("ours", "paper"))
    k = len(example.parts)
    assert [utility for utility, _ in ours] == [1.0, k / (k + 1), 1 / k]
    assert [utility for utility, _ in paper] == [1.0, 1.0, 1 / k]
    assert [reason for _, reason in ours] == [reason for _, reason in paper]
    codec = SimpleNamespace(answer=lambda tokens: pairs[tokens[0]][0])
    frame = pd.DataFrame({"prompt": [example.id], "answer": [(1,)]})
    assert score_answers(frame, members, codec=codec, workers=1, scoring="paper")["utility"].tolist() == [1.0]


HALF_A_CHARACTER = "    raise ValueError('\\ud800')\n"
"""A completion whose error no file can hold."""


class Writes:
    """A codec that reads one answer into whatever was decoded."""

    def __init__(self, codec, text):
        self.codec, self.written = codec, text

    def __getattr__(self, name):
        return getattr(self.codec, name)

    def answer(self, tokens):
        return self.written


@pytest.fixture
def raising(tiny_model, shared):
    if not (shared / "data").is_dir():
        pytest.skip("needs the data sets: there is no folder 'shared/data' beside the checkout")
    return lambda text: replace(tiny_model, codec=Writes(tiny_model.codec, text))


@pytest.mark.parametrize("text", [HALF_A_CHARACTER, "    return '\ud800'\n"])
def test_no_answer_stops_a_study(raising, text, tiny_folder, shared, tmp_path):
    study = StudyConfig.parse(
        table(
            models__0__model=str(tiny_folder),
            tasks=["humaneval"],
            axes=["score"],
            diagnostics=["score"],
            splits={"validation": 2, "evaluation": 1},
            steps={"share": 0.5, "tasks": {"humaneval": 2}},
            states=1,
            rollouts=1,
            engine__bucket=2048,
        )
    )
    store = Store.create(tmp_path / "out", study.config)
    model = raising(text)
    assert run_study(study, store, lambda spec: model, data_dir=shared / "data").complete
    rows = store.read_arrow("branches").to_pylist()
    assert {row["utility"] for row in rows} == {0.0}
    assert all(row["reason"].startswith(("error: ", "fail: ")) for row in rows)
