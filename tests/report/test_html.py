"""Reports as a page."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.helpers import made_reports
from tests.helpers.made_findings import SVG
from unmask.report.html import page
from unmask.report.study import study_report
from unmask.report.verdicts import DetectionVerdict
from unmask.report.words.detection import EXTENSION


def heads(report):
    return [h.text for h in ElementTree.fromstring(page(report)).iter() if h.tag == "h2"]


def test_a_report():
    text = page(made_reports.report(made_reports.fruit()))
    ElementTree.fromstring(text)
    assert "<title>Adaptation opportunity: fruit &lt;1&gt;</title>" in text
    assert "<figcaption>above</figcaption>\n<svg/>\n<figcaption>It's below.</figcaption>" in text
    assert '<td class="left">50 %_|off|\nplums</td><td>3</td><td>–</td><td>†</td>' in text
    assert '<p class="note">How to read.</p>\n<details open="open"><summary>1 picture</summary>' in text
    assert "--sweet: #0072b2; --sour: #c24e00; }" in text


def test_colours_begin_anew_where_there_are_more_axes():
    text = page(made_reports.report(axes=("a", "b", "c", "d", "e")))
    assert "--a: #0072b2;" in text
    assert "--e: #0072b2; }" in text


def test_folded_and_empty_tables():
    text = page(made_reports.report(made_reports.fruit((), folded=True, empty="None.")))
    assert "<details><summary>What was eaten</summary>" in text
    assert "<p>None.</p>" in text
    assert "What was eaten" not in page(made_reports.report(made_reports.fruit(aside=True)))


@pytest.mark.parametrize("name", ["known_report", "broken_report", "whole_report"])
def test_is_well_formed_and_self_contained(name, request):
    text = page(request.getfixturevalue(name))
    root = ElementTree.fromstring(text)
    tags = {element.tag.split("}")[-1] for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "image", "use"}
    assert not {key for element in root.iter() for key in element.attrib} & {"src", "href", "srcset", "onclick"}
    assert set(re.findall(r"https?://[^\"<\s]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import", text)
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))


def test_names_and_reasons_are_escaped(broken_report, whole_report):
    assert "no &lt;file&gt; &amp; no hub" in page(broken_report)
    assert "<file>" not in page(broken_report)
    assert "not decoded &lt;end to end&gt; yet" in page(whole_report)


def test_warns_before_anything_else(broken_report, known_report):
    text = page(broken_report)
    assert text.index("This study is not complete") < text.index("<svg")
    assert text.count('class="warn"') == 2
    assert 'class="warn"' not in page(known_report)


def test_has_every_table_but_the_long_one(known, known_report):
    text = page(known_report)
    for sheet in known_report.sheets:
        assert (f'<h3 id="{sheet.name}">' in text or f"<summary>{sheet.title}</summary>" in text) != sheet.aside
    opportunity = known.opportunity
    assert opportunity.manifest["fingerprint"] in text
    assert all(digest in text for digest in opportunity.hashes.values())
    assert f"unmask {opportunity.manifest['versions']['unmask']}" in text


def test_is_the_same_every_time(known, known_report):
    assert page(known_report) == page(known_report) == page(study_report(known))


def test_diagnostics(diagnosed_report):
    root = ElementTree.fromstring(page(diagnosed_report))
    titles = [h.text for h in root.iter() if h.tag == "h2"]
    assert titles[:4] == [answer.question for answer in diagnosed_report.answers]
    assert titles[4:] == ["small", "Tables", "Diagnostics", "Configuration"]
    assert len([f for f in root.iter() if f.tag == f"{SVG}svg"]) == 2 + 4


def test_never_and_no_lift_are_told(diagnosed_report):
    text = page(diagnosed_report)
    assert "never: " in text
    assert str(DetectionVerdict.NOTHING) in text
    assert "exploratory" in text


def test_the_extension_has_a_section_of_its_own(dream):
    report = study_report(replace(dream, end_to_end=None))
    native, apart = page(report).split("<h2>Diagnostics: revision extension of a monotone native decoder</h2>")
    assert EXTENSION in apart.replace("&#39;", "'")
    assert "commitment on find</figcaption>" in apart
    assert "commitment on find</figcaption>" not in native


def test_sections_of_whole_answers(whole_report, dream_report):
    joint = "End to end: all axes together, beyond the paper"
    assert heads(whole_report)[-5:] == ["Tables", "Diagnostics", "End to end", joint, "Configuration"]
    apart = "revision extension of a monotone native decoder"
    assert heads(dream_report)[-5:-1] == ["Diagnostics", f"Diagnostics: {apart}", "End to end", f"End to end: {apart}"]


def test_what_a_study_does_not_have_is_not_on_its_page(known_report, diagnosed_report):
    for word in ("Diagnostics", "e2-", "e3-", "svg .band", "AUROC"):
        assert word not in page(known_report)
    assert "e4-" not in page(diagnosed_report)


def test_the_rest_of_the_page_does_not_change(diagnosed, diagnosed_report):
    """What diagnostics add lies between the style and the tables; nothing is taken away but two answers."""
    alone = study_report(replace(diagnosed, detection=None))
    plain, more = page(alone).splitlines(), page(diagnosed_report).splitlines()
    plain = [line for line in plain if "the study reads no diagnostics" not in line]
    left = iter(more)
    assert all(line in left for line in plain)
