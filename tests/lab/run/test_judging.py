"""One judge for studies, gates and comparisons: every answer once, and never 0 for what nobody could tell."""

import math
from types import SimpleNamespace

import pytest

from unmask.errors import ConfigError
from unmask.lab.run import judging
from unmask.lab.run.judging import Judge, JudgedAnswer
from unmask.tasks import examples


@pytest.fixture(scope="module")
def members():
    return examples("carry-rtl", "validation")[:2]


@pytest.fixture
def judged(monkeypatch):
    """Texts and prompts that were scored, in order."""
    pairs_seen = []

    def scores(pairs, jobs):
        pairs_seen.extend((text, example.id) for text, example in pairs)
        return [(len(text) / 10, f"length of {text}") for text, _ in pairs]

    monkeypatch.setattr(judging, "scores", scores)
    return pairs_seen


def model():
    """Answers are their tokens, spelt out."""
    return SimpleNamespace(codec=SimpleNamespace(answer=lambda tokens: "".join(map(str, tokens))))


def test_equal_answers_to_a_prompt_are_judged_once(members, judged):
    one, other = (example.id for example in members)
    judge = Judge(model(), members)
    first = judge.judge([(one, (1, 2)), (one, [1, 2]), (other, (1, 2)), (one, (3,))])
    assert first == [
        JudgedAnswer("12", 0.2, "length of 12"),
        JudgedAnswer("12", 0.2, "length of 12"),
        JudgedAnswer("12", 0.2, "length of 12"),
        JudgedAnswer("3", 0.1, "length of 3"),
    ]
    assert judged == [("12", one), ("12", other), ("3", one)]
    assert judge.judge([(one, (3,)), (other, (4,))])[0] == first[3]
    assert judged[3:] == [("4", other)]


def test_without_an_evaluator_there_is_no_utility(members, monkeypatch):
    """What can be judged without it is, one by one."""
    right, wrong = ("right", members[0]), ("wrong", members[1])

    def score_all(pairs, jobs):
        if wrong in pairs:
            raise ConfigError("jsonschema is not installed")
        return [SimpleNamespace(utility=1.0, reason="compared") for _ in pairs]

    monkeypatch.setattr(judging, "score_all", score_all)
    (good, bad) = judging.scores([right, wrong], None)
    assert good == (1.0, "compared")
    assert math.isnan(bad[0])
    assert bad[1] == "jsonschema is not installed"


def test_a_verdict_without_a_utility_is_none(members, monkeypatch):
    unknown = SimpleNamespace(utility=None, reason="timed out")
    monkeypatch.setattr(judging, "score_all", lambda pairs, jobs: [unknown for _ in pairs])
    ((utility, reason),) = judging.scores([("x", members[0])], 1)
    assert math.isnan(utility)
    assert reason == "timed out"
