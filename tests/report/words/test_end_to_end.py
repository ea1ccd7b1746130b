"""What a study says about whole answers, from results made by hand."""

import re
from dataclasses import replace

import pytest

from tests.helpers.made_findings import answers, cell, mean
from tests.helpers.markup import tree
from unmask.lab.analysis.end_to_end import CONTROLS, EndToEndFindings
from unmask.lab.analysis.opportunity import Missing
from unmask.report.html import page
from unmask.report.markdown import markdown
from unmask.report.study import study_report
from unmask.report.tables.shared import PARTIAL
from unmask.report.words.detection import EXTENSION
from unmask.report.words.end_to_end import BEYOND
from unmask.stats import Estimate


def last_answer(diagnosed, cells, gain=None):
    """Of these cells and their mean."""
    decoded = EndToEndFindings(tuple(cells), (), (mean(cells, gain=gain),), ())
    return answers(replace(diagnosed, end_to_end=decoded))[-1]


def test_the_last_answer(whole):
    pays = answers(whole)[-1]
    assert "selective − fixed is -0.0100 [-0.0400, 0.0200] over 4 tasks of small (no significant lift: 2 " in pays
    assert ": 2 better, 1 worse, 1 same; intervals exclude 0 on 1 above, 1 below); of 3 open gates" in pays
    assert "; 1 of the intervals rests on fewer than 10 prompts that differ: a hint, no more; " in pays
    assert "; small without gone." in pays
    # The reference, then the controls.
    ends = [whole.end_to_end.means[0].difference["selective", to] for to in ("reference", *CONTROLS)]
    shown = [f"{e.value:.4f} [{e.low:.4f}, {e.high:.4f}]" for e in ends]
    assert pays.endswith(
        f"Selective differs from the reference by {shown[0]} (not significant), from the best fixed action end to "
        f"end by {shown[1]} (not significant) and from a random gate of equal coverage by {shown[2]} (not "
        "significant) with small."
    )
    assert "not measured" not in pays


def test_at_most_three_sentences(whole, dream):
    for findings in (whole, dream):
        for text in answers(findings):
            assert 1 <= len(re.findall(r"\.(?=\s[A-Z]|$)", text)) <= 3, text


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Estimate(0.1, 0.05, 0.2), "a significant lift"),
        (Estimate(-0.1, -0.2, -0.05), "a significant loss"),
        (Estimate(0.1, 0.0, 0.2), "no significant lift"),
    ],
)
def test_claims_follow_the_interval(diagnosed, gain, said):
    pays = last_answer(diagnosed, [cell("find", gain=gain)], gain)
    assert f"over 1 task of small ({said}: " in pays
    assert "by chance" not in pays.split("End to end")[1]


def test_few_prompts_are_a_hint(diagnosed):
    up = Estimate(0.1, 0.05, 0.2)
    pays = last_answer(diagnosed, [cell("same", gain=up)], up)
    assert "over 1 task of small (no more than a hint, fewer than 10 prompts differ: " in pays
    assert "a significant" not in pays.split("End to end")[1]


def test_chance_is_named_where_something_was_found(diagnosed):
    pays = last_answer(diagnosed, [cell("guess"), cell("mute")])
    assert "by chance" not in pays.split("End to end")[1]
    pays = last_answer(diagnosed, [cell("guess"), cell("find")])
    assert "of 2 open gates, about 2.5 % each would show such an interval above zero by chance" in pays


def test_without_any_number(diagnosed):
    lost = Missing("small", "find", "region", "not decoded end to end yet")
    report = study_report(replace(diagnosed, end_to_end=EndToEndFindings((), (), (), (lost,))))
    assert "End to end: not known" in report.answers[-1].text
    assert "None: no axis could be chosen; the reasons are below." in markdown(report)
    tree(page(report))


def test_what_is_missing_or_not_judged(whole_report):
    notes = whole_report.notes
    assert any("5 of 243 prompts, counted once for each axis, are left out" in text for text in notes)
    assert notes[-1] == "End to end without numbers: gone of small (region); the tables have the reasons."


def test_joint_is_beyond_the_paper(whole_report):
    (text,) = [text for text in whole_report.notes if text.startswith(BEYOND)]
    assert "Of 1 model-task pair, the interval of joint − reference lies above zero on 1 and below on 0" in text
    assert not any("joint" in answer.text for answer in whole_report.answers)


def test_the_extension_is_told_apart(dream_report):
    assert not any("0.7700" in answer.text for answer in dream_report.answers)
    (text,) = [text for text in dream_report.notes if text.startswith(EXTENSION)]
    assert "selective − fixed is 0.7700 [0.6600, 0.8800] over 1 task of small (a significant lift: " in text


def test_signs(whole_report, diagnosed_report):
    assert list(whole_report.signs) == [PARTIAL]
    assert diagnosed_report.signs == {}


@pytest.mark.parametrize(
    ("task", "gain", "said"),
    [
        ("find", Estimate(0.1, 0.05, 0.2), "Yes: adapting changes the utility of whole answers by +0.100 (1 task)."),
        ("find", Estimate(-0.1, -0.2, -0.05), "No, it costs: adapting changes the utility of whole answers by -0.100"),
        ("find", Estimate(0.1, 0.0, 0.2), "Not shown: adapting changes the utility of whole answers by +0.100, which"),
        ("same", Estimate(0.1, 0.05, 0.2), "Perhaps: adapting changes the utility of whole answers by +0.100, but few"),
        (
            "mute",
            Estimate(0.0, 0.0, 0.0),
            "No: validation prompts gave no gate a reason to open, so nothing is adapted",
        ),
    ],
)
def test_in_one_sentence(diagnosed, task, gain, said):
    cells = [cell(task, gain=gain)]
    decoded = EndToEndFindings(tuple(cells), (), (mean(cells, gain=gain),), ())
    assert study_report(replace(diagnosed, end_to_end=decoded)).answers[-1].verdict.startswith(said)
