"""What a study says about diagnostics, from stores with planted truth."""

import re
from dataclasses import replace

from tests.helpers import made_findings
from tests.helpers import made_studies as made
from tests.helpers.made_findings import answers
from tests.helpers.markup import tree
from unmask.report.html import page
from unmask.report.study import study_report
from unmask.report.tables.shared import UNRELIABLE
from unmask.report.verdicts import DetectionVerdict, lift_verdict
from unmask.report.words.detection import EXTENSION


def test_both_answers(diagnosed, diagnosed_report):
    *_, predictable, pays = answers(diagnosed)
    assert predictable.startswith("In part: on 1 of 4 task-axis pairs of small the 95 % interval of AUROC")
    assert "of 4 settings, at most about 2.5 % each would show such an interval above 0.5 by chance" in predictable
    assert "region on find; the best of 4 looks better than it is" in predictable
    assert "where knowing the stage does not help, the interval still lies above 0.5 on 1 of 1." in predictable
    assert pays.startswith("One step at a time, yes on 1 of 4 task-axis pairs of small: there the 95 % interval")
    # Shut gates are none that chance could open.
    shut = sum(lift_verdict(c.raw) == DetectionVerdict.NEVER for c in diagnosed.detection.cells)
    by_chance = f"; of {4 - shut} open gates, about 2.5 % each would show such an interval above zero by chance;"
    assert (by_chance in pays) == (shut < 3)
    assert "the gate never opens, because validation gave no reason" in pays
    assert pays.endswith("was not measured; `end_to_end = true` in the study file asks for it.")
    assert any("exploratory screen" in text for text in diagnosed_report.notes)


def test_at_most_three_sentences(diagnosed, dream):
    for findings in (diagnosed, replace(dream, end_to_end=None)):
        for text in answers(findings):
            assert 1 <= len(re.findall(r"\.(?=\s[A-Z]|$)", text)) <= 3, text


def test_no_claim_without_a_signal(tmp_path):
    tables, read = made.diagnosed({"guess": "useless", "mute": "abstains"}, seed=3)
    *_, predictable, pays = answers(made_findings.diagnosed(tmp_path, tables, read))
    assert predictable.startswith("Not shown: on none of 2 task-axis pairs of small is there")
    assert pays.startswith("One step at a time, no significant lift: on none of 2 task-axis pairs of small does")
    assert "the largest is" not in pays


def test_few_prompts_are_a_hint(tmp_path):
    tables, read = made.diagnosed({"find": "finds"}, rate=0.25, prompts=24)
    for held in (tables, read):
        held["small", "find", "evaluation"] = {"region": made.planted(1, prompts=9)[held is read]}
    findings = made_findings.diagnosed(tmp_path, tables, read)
    assert lift_verdict(findings.detection.cells[0].raw) == DetectionVerdict.HINT
    assert list(study_report(findings).signs) == [UNRELIABLE]
    *_, predictable, pays = answers(findings)
    assert predictable.startswith("Not shown reliably: on none of 1 task-axis pair of small")
    assert "no significant lift: on none of 1 task-axis pair of small does the 95 %" in pays
    assert "lie above zero reliably; the largest estimate is" in pays
    assert "1 interval lies above zero, but on fewer than 10 prompts with a gain: a hint, no more." in pays


def test_the_extension_is_told_apart(dream):
    report = study_report(replace(dream, end_to_end=None))
    *_, native, pays = (answer.text for answer in report.answers)
    assert "on none of 1 task-axis pair" in native
    assert "no significant lift" in pays
    assert "commitment" not in native + pays
    (apart,) = [text for text in report.notes if text.startswith(EXTENSION)]
    assert "commitment on find" in apart
    assert "Predictable? In part: on 1 of 1 task-axis pair of small" in apart


def test_what_is_missing(tmp_path):
    tables, read = made.diagnosed({"find": "finds", "guess": "useless"})
    lost = ("small", "guess", "evaluation")
    rest = {key: held for key, held in tables.items() if key != lost}
    report = study_report(made_findings.diagnosed(tmp_path, rest, read, unfinished=[lost]))
    assert report.notes[-1] == "Diagnostics of 1 task-axis pair have no numbers; the tables have the reasons."
    tree(page(report))


def test_no_sign_without_need(diagnosed_report):
    assert diagnosed_report.signs == {}


def test_in_one_sentence(diagnosed, tmp_path):
    *_, predictable, pays = (answer.verdict for answer in study_report(diagnosed).answers)
    assert predictable == "In part: on 1 of 4 task-axis pairs a signal says better than chance where to act."
    assert pays == "One step at a time, yes on 1 of 4 task-axis pairs; whole answers were not decoded."
    tables, read = made.diagnosed({"guess": "useless"}, seed=3)
    *_, predictable, pays = (
        answer.verdict for answer in study_report(made_findings.diagnosed(tmp_path, tables, read)).answers
    )
    assert predictable.startswith("Not shown: on none of 1 task-axis pair ")
    assert pays == "Not shown: no gain of acting, one step at a time; whole answers were not decoded."
