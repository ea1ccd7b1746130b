"""What a study says about opportunity, from stores made by hand."""

import re

from tests.helpers import made_findings
from tests.helpers import made_studies as made
from tests.helpers.made_findings import answers, hinted, words
from tests.helpers.markup import tree
from unmask.report.html import page
from unmask.report.markdown import markdown
from unmask.report.study import study_report


def test_what_was_shown(known):
    text = words(known)
    assert "could gain on 2 of 6 task-axis pairs of small: there the 95 % interval" in text
    assert "0.7000 [0.7000, 0.7000] (region on fill, over the fixed action full)" in text
    assert "on top of a utility of 0.200; the best of 6 looks better than it is" in text
    assert "small (2 tasks, 40 evaluation prompts): score 0.0625 [0.0625, 0.0625], region 0.3500" in text
    assert "25.0 % to 100.0 % of states gain" in text
    assert "the best 10 % of states hold 10.0 % to 40.0 % of the opportunity" in text
    assert "Rollouts never differ in 480" in text
    assert "not complete" not in text


def test_four_questions_in_order(known_report, broken_report):
    for report in (known_report, broken_report):
        asked = [answer.question for answer in report.answers]
        assert asked == ["How much?", "How concentrated?", "Predictable?", "Does acting pay?"]
        assert all(1 <= len(re.findall(r"\.(?=\s[A-Z]|$)", answer.text)) <= 3 for answer in report.answers)
    *_, predictable, pays = known_report.answers
    assert predictable.text.startswith("Not asked: the study reads no diagnostics")
    assert pays.text.startswith("Not measured: the study reads no diagnostics")


def test_every_model_has_its_count(tmp_path):
    tables = made.known()
    tables |= {("other", *key[1:]): axes for key, axes in made.known().items()}
    for task in ("fill", "sort"):
        tables["other", task, "evaluation"] = tables["small", "sort", "evaluation"]
    both = made_findings.opportunity(tmp_path, tables, models={"small": "small", "other": "other"})
    much, concentrated, *_ = answers(both)
    assert "could gain on 2 of 6 task-axis pairs of small and none of 6 of other:" in much
    assert "(small, region on fill, over the fixed action full)" in much
    assert "the best of 12 looks better than it is" in much
    assert "other" not in concentrated


def test_no_claim_where_nothing_gains(tmp_path):
    text = words(hinted(tmp_path, 0))
    assert "No opportunity was shown: on none of 2 task-axis pairs" in text
    assert "could gain on" not in text
    assert "The largest" not in text
    assert "Not known: where no opportunity was shown" in text


def test_no_claim_where_intervals_include_zero(tmp_path):
    """2 of 20 prompts: a resample misses both in 12 %."""
    findings = hinted(tmp_path, 2)
    delta = findings.opportunity.cells[0].overall["delta"]
    assert delta.low == 0 < delta.value
    text = words(findings)
    assert "No opportunity was shown: on none of 2 task-axis pairs of small does the 95 % interval" in text
    assert "The largest estimate is 0.0125 [0.0000" in text
    assert "could gain on" not in text
    assert "by stage" not in text
    assert "Not known: where no opportunity was shown" in text


def test_a_hint_is_no_claim(tmp_path):
    """8 of 20 prompts: the interval leaves zero out, but rests on too few prompts."""
    findings = hinted(tmp_path, 8)
    assert findings.opportunity.cells[0].overall["delta"].positive
    text = words(findings)
    assert "No opportunity was shown reliably" in text
    assert "a hint, no more" in text
    assert "could gain on" not in text
    assert "by stage" not in text
    assert "On the pairs where there is a hint" in text
    assert "do not rely on the intervals: all of these" in text


def test_enough_prompts_are_a_claim(tmp_path):
    text = words(hinted(tmp_path, 14))
    assert "could gain on 1 of 2 task-axis pairs" in text
    assert "by stage, small, score: 0.0000 (masked 75–100 %), 0.0000 (masked 50–75 %)" in text


def test_what_is_missing_comes_first(broken_report):
    first, second = broken_report.warnings
    assert first.startswith("This study is not complete: 3 of 4 shards are finished.")
    assert "no numbers yet for sort of small" in first
    assert second == "Left out: gsm8k: no <file> & no hub"
    assert any("4 of" in text and "could not be judged" in text for text in broken_report.notes)


def test_a_name_is_not_a_model(tmp_path):
    """Whoever calls a small model LLaDA still reads what was loaded."""
    tables = {("LLaDA-8B", *key[1:]): axes for key, axes in made.known().items()}
    findings = made_findings.opportunity(tmp_path, tables, models={"LLaDA-8B": "/models/mini"})
    report = study_report(findings)
    assert "LLaDA-8B (/models/mini) (2 tasks, 40 evaluation prompts)" in words(findings)
    assert "numbers of LLaDA-8B (/models/mini) on these tasks and of no other model" in report.notes[-1]
    assert "<dd>LLaDA-8B (/models/mini), llada reference</dd>" in page(report)


def test_nothing_measured(tmp_path):
    report = study_report(made_findings.nothing(tmp_path))
    (text,) = report.warnings
    assert report.answers[0].text == "Not known: nothing could be measured."
    assert report.notes == ()
    assert text.startswith("Nothing could be measured.")
    assert "cannot be cross-fitted" in text
    tree(page(report))
    assert "Nothing could be measured; the reasons are below." in markdown(report)


def test_noise_is_told(tmp_path):
    report = study_report(made_findings.noisy(tmp_path))
    assert any("Rollouts differ at 80 of 480" in text for text in report.notes)


def in_short(findings):
    return [answer.verdict for answer in study_report(findings).answers][:2]


def test_in_one_sentence(known, tmp_path):
    much, concentrated = in_short(known)
    assert much.startswith("Yes, there is something to gain: on 2 of 6 task-axis pairs, in one step 0.7000 of a")
    assert concentrated == "Hardly: the best tenth of states holds 10 % to 40 % of the gain."
    much, concentrated = in_short(hinted(tmp_path / "8", 8))
    assert much == "Perhaps: 1 of 2 task-axis pairs hint at a gain, on too few prompts."
    assert concentrated.endswith("of the gain, as far as hints go.")
    much, concentrated = in_short(hinted(tmp_path / "0", 0))
    assert much == "No gain was shown on any of 2 task-axis pairs."
    assert concentrated == "Not known: there is no gain that could be concentrated."
    assert in_short(made_findings.nothing(tmp_path / "none"))[0] == "Not known: nothing could be measured."
