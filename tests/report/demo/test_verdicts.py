"""One sentence for each question."""

import pytest

from tests.helpers.made_demo import ROWS, rows
from unmask.lab.demo import AT_ONCE, MODE
from unmask.report.demo.summary import summarise
from unmask.report.demo.verdicts import _PLAIN, DemoVerdict, verdicts


def test_a_sentence_for_each_question(known_report):
    every = verdicts(summarise(ROWS), known_report.answers)
    assert [v.question for v in every] == ["Do more forwards help?", *_PLAIN.values()]
    assert [v.sentence for v in every[1:]] == [answer.verdict for answer in known_report.answers]
    assert [answer.question for answer in known_report.answers] == list(_PLAIN)
    assert all(v.sentence.endswith(".") and v.sentence.count(". ") == 0 for v in every)


def test_the_best_and_what_is_as_good_for_less():
    cheap = rows("nearly", "dream", (0.898, 0.698), 3.0)
    first, *_ = verdicts(summarise([*ROWS, *cheap]), ())
    assert first.sentence.startswith("Yes, up to a point: ")
    assert "everything reaches a utility of 0.30, the best method 0.80" in first.sentence
    assert "nearly gets 0.80 with 3.0 forwards for 4 tokens" in first.sentence


def test_more_forwards_that_do_not_help():
    same = [*rows(MODE, "", (1, 1), None), *rows(AT_ONCE, "", (0.9, 0.9), 1), *rows("slow", "llada", (0.9, 0.9), 4)]
    first, *_ = verdicts(summarise(same), ())
    assert first.sentence.startswith("No: ")


@pytest.mark.parametrize(
    ("sentence", "lead"),
    [("Yes: it does.", "Yes: "), ("It does.", ""), (f"{'very ' * 9}long: no answer.", ""), ("No, no: 3.", "No, no: ")],
)
def test_the_lead_is_short(sentence, lead):
    verdict = DemoVerdict("?", sentence)
    assert verdict.lead == lead
    assert verdict.lead + verdict.rest == sentence
