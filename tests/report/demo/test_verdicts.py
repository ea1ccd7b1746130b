"""One sentence for each question; never more than was shown."""

import pytest

from tests.helpers import made_findings
from tests.helpers.made_demo import ROWS, rows
from unmask.lab.analysis.findings import Findings
from unmask.lab.demo import AT_ONCE, MODE
from unmask.report.demo.summary import summarise
from unmask.report.demo.verdicts import DemoVerdict, verdicts


def said(findings, summaries=None):
    return {v.question: v.sentence for v in verdicts(summaries or summarise(ROWS), findings)}


def test_a_sentence_for_each_question(known):
    every = verdicts(summarise(ROWS), known)
    assert len(every) == 5
    assert all(v.sentence.endswith(".") and v.sentence.count(". ") == 0 for v in every)
    assert every[0].sentence.startswith("Yes, up to a point: ")
    assert "slow & sure gets 0.80 with 4.0 forwards for 4 tokens" in every[0].sentence


def test_more_forwards_that_do_not_help():
    same = [
        *rows(MODE, "", (1.0, 1.0), None),
        *rows(AT_ONCE, "", (0.9, 0.9), 1.0),
        *rows("slow", "llada", (0.9, 0.9), 4),
    ]
    assert said(Findings(opportunity=_empty()), summarise(same))["Do more forwards help?"].startswith("No: ")


def _empty():
    from types import SimpleNamespace

    return SimpleNamespace(cells=(), models=())


def test_a_gain_is_a_gain_only_on_enough_prompts(known, tmp_path):
    question = "Could another choice help?"
    assert said(known)[question].startswith("Yes: in hindsight, on ")
    assert "up to 0.70 (region on fill)" in said(known)[question]
    few = said(made_findings.hinted(tmp_path / "few", 5))
    assert few[question].startswith("A hint: ")
    assert "fewer than 10 prompts show it" in few[question]


def test_nothing_measured_is_not_known(tmp_path):
    nothing = said(made_findings.nothing(tmp_path))
    assert nothing["Could another choice help?"] == "Not known: nothing could be measured."
    assert nothing["Is that in few places?"].startswith("Not known: ")


def test_without_signals_nothing_is_predicted(known):
    assert said(known)["Can it be predicted?"].startswith("Not asked: ")
    assert said(known)["Does acting on it pay?"].startswith("Not measured: ")


@pytest.mark.parametrize(
    ("sentence", "lead"),
    [
        ("Yes: it does.", "Yes: "),
        ("It does.", ""),
        (f"{'very ' * 9}long: no answer.", ""),
        ("No, it costs: 3.", "No, it costs: "),
    ],
)
def test_the_lead_is_short(sentence, lead):
    verdict = DemoVerdict("?", sentence)
    assert verdict.lead == lead
    assert verdict.lead + verdict.rest == sentence
