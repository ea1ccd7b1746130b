"""Reports as a page."""

import base64
import gzip
import json
import re
import sys
from dataclasses import replace

import pytest

from tests.helpers import made_reports
from tests.helpers.markup import texts, tree
from unmask.report.csv import table_csv
from unmask.report.figures.numbers import figure_csv
from unmask.report.html import NoPlotly, packed, page, plotly_script
from unmask.report.latex import table_latex
from unmask.report.study import study_report
from unmask.report.verdicts import DetectionVerdict
from unmask.report.words.detection import EXTENSION


def unpacked(text, name):
    """What travels packed in a page, under that name."""
    (inside,) = re.findall(rf'<script type="text/plain" id="{name}">(.*?)</script>', text)
    return gzip.decompress(base64.b64decode(inside)).decode()


def heads(report):
    """Of the sections, after the four answers."""
    return texts(page(report), "h2")[len(report.answers) :]


def test_a_report():
    text = page(made_reports.report(made_reports.fruit()))
    assert "<title>Adaptation opportunity: fruit &lt;1&gt;</title>" in text
    assert "<p>It&#39;s below." in text or "<figcaption>It&#39;s below." in text
    assert '<td class="left">50 %_|off|\nplums</td><td>3</td><td>–</td><td>†</td>' in text
    assert texts(text, "h2") == ["How much?", "E1 Tables", "More", "Configuration"]
    assert "fruit: what <grows>." in texts(text, "p")
    assert texts(text, "option") == ["kind <1>", "kind <2>"]


def test_the_first_screen_has_verdicts_words_and_what_was_run():
    root = tree(page(made_reports.report()))
    main = next(root.iter("main"))
    order = [e.get("class", "").split()[0] for e in main if e.get("class")]
    assert order[:4] == ["warn", "answers", "glossary", "run"]
    card = [" ".join(e.itertext()) for e in next(e for e in root.iter("section") if e.get("class") == "answer")]
    assert [text.strip() for text in card] == ["How much?", "Yes.", "A lot.", "Really."]


def test_folded_and_empty_tables():
    root = tree(page(made_reports.report(made_reports.fruit((), folded=True, empty="None."))))
    (sheet,) = [e for e in root.iter("details") if e.get("id") == "fruit"]
    assert "open" not in sheet.attrib
    assert "None." in "".join(sheet.itertext())
    root = tree(page(made_reports.report(made_reports.fruit())))
    (sheet,) = [e for e in root.iter("details") if e.get("id") == "fruit"]
    assert "open" in sheet.attrib


def test_a_table_that_is_too_long_is_there_to_be_saved():
    sheet = made_reports.fruit(aside=True)
    text = page(made_reports.report(sheet))
    assert "<table>" not in text
    assert "Too long to be read here" in text
    assert json.loads(unpacked(text, "numbers"))["fruit"]["csv"] == table_csv(sheet)


def test_every_number_travels_in_all_formats(whole_report):
    numbers = json.loads(unpacked(page(whole_report), "numbers"))
    for sheet in whole_report.sheets:
        assert numbers[sheet.name]["csv"] == table_csv(sheet)
        assert numbers[sheet.name]["tex"] == table_latex(sheet)
        assert numbers[sheet.name]["md"].startswith("| ")
    for figure in whole_report.figures:
        assert numbers[f"figure:{figure.name}"] == {"csv": figure_csv(figure)}


def test_the_library_is_there_once(known_report):
    text = page(known_report)
    assert text.count('id="plotly"') == 1
    assert unpacked(text, "plotly") == plotly_script()
    assert len(text) < 2_600_000


def test_packing_gives_the_same_bytes():
    assert packed("a", "text") == packed.__wrapped__("a", "text")


@pytest.mark.parametrize("name", ["known_report", "broken_report", "whole_report"])
def test_is_well_formed_and_self_contained(name, request):
    text = page(request.getfixturevalue(name))
    root = tree(text)
    tags = {element.tag for element in root.iter()}
    assert not tags & {"link", "img", "iframe", "object", "image", "use"}
    links = [e.get("href") for e in root.iter() if e.get("href")]
    assert not {key for element in root.iter() for key in element.attrib} & {"src", "srcset", "onclick"}
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert not re.search(r"https?://|url\(|@import", text)


def test_names_and_reasons_are_escaped(broken_report, whole_report):
    assert "no &lt;file&gt; &amp; no hub" in page(broken_report)
    assert "<file>" not in page(broken_report)
    assert "not decoded &lt;end to end&gt; yet" in page(whole_report)


def test_warns_before_anything_else(broken_report, known_report):
    text = page(broken_report)
    assert text.index("This study is not complete") < text.index('class="answers"')
    assert text.count('<p class="warn" role="note">') == 2
    assert '<p class="warn" role="note">' not in page(known_report)


def test_has_every_table_and_figure(known, known_report):
    text = page(known_report)
    root = tree(text)
    ids = {e.get("id") for e in root.iter()}
    assert {sheet.name for sheet in known_report.sheets} <= ids
    assert {f"fig-{figure.name}" for s in known_report.sections for figure in s.figures} <= ids
    opportunity = known.opportunity
    assert opportunity.manifest["fingerprint"] in text
    assert all(digest in text for digest in opportunity.hashes.values())
    assert f"unmask {opportunity.manifest['versions']['unmask']}" in text


def test_names_of_the_paper(known_report):
    text = page(known_report)
    assert "Opportunity of the strongest axis fig:e1-all" in texts(text, "h3")
    assert any(said.startswith("Anatomy of reversals tab:reversal-anatomy ") for said in texts(text, "summary"))


def test_is_the_same_every_time(known, known_report):
    assert page(known_report) == page(known_report) == page(study_report(known))


def test_sections_by_experiment(diagnosed_report, whole_report, dream_report):
    last = ["What was run, and what is missing", "Configuration"]
    assert heads(diagnosed_report) == ["E1 Opportunity", "E1 Concentration", "E2, E3 Diagnostics", *last]
    joint = "E4 End to end: all axes together, beyond the paper"
    assert heads(whole_report)[2:] == ["E2, E3 Diagnostics", "E4 End to end", joint, *last]
    apart = "revision extension of a monotone native decoder"
    assert heads(dream_report)[2:] == [
        "E2, E3 Diagnostics",
        f"E2, E3 Diagnostics: {apart}",
        "E4 End to end",
        f"E4 End to end: {apart}",
        *last,
    ]


def test_figures_of_every_setting(diagnosed_report):
    figures = json.loads(unpacked(page(diagnosed_report), "figures"))
    assert [len(figures[f"e3-setting-{at}"]) for at in range(4)] == [3] * 4
    assert set(figures) == {figure.name for figure in diagnosed_report.figures}


def test_never_and_no_lift_are_told(diagnosed_report):
    text = page(diagnosed_report)
    assert "never: " in text
    assert str(DetectionVerdict.NOTHING) in text
    assert "exploratory" in text


def test_the_extension_has_a_section_of_its_own(dream):
    report = study_report(replace(dream, end_to_end=None))
    native, apart = page(report).split('id="s-diagnostics-revision-extension-of-a-monotone-native-decoder"')
    assert EXTENSION in apart.replace("&#39;", "'")
    assert [f.choice for f in report.figures if f.name.startswith("e3-setting-revision")] == [
        "small: commitment on find"
    ]
    assert "fig-e3-setting-revision" in apart
    assert "fig-e3-setting-revision" not in native


def test_what_a_study_does_not_have_is_not_on_its_page(known_report, diagnosed_report):
    for word in ("Diagnostics", 'id="e2-', 'id="e3-', "AUROC"):
        assert word not in page(known_report)
    assert 'id="e4-' not in page(diagnosed_report)


def test_a_page_of_states_is_linked(known_report):
    assert page(known_report, "states.html").count('href="states.html"') == 2
    assert "states.html" not in page(known_report)


@pytest.mark.slow
def test_three_models_on_ten_tasks_stay_small(whole):
    """As many cells as the whole study of the paper: 30 model-task pairs with four axes each."""
    names = ("small", "large", "other")
    keys = [(name, f"some-task-{t}") for name in names for t in range(10)]

    def many(cells):
        return tuple(replace(cell, model=model, task=task) for model, task in keys for cell in cells[:4])

    opportunity, study = whole.opportunity, whole.opportunity.manifest["study"]
    models = [{**study["models"][0], "name": name} for name in names]
    manifest = {**opportunity.manifest, "study": {**study, "models": models}}
    full = replace(
        whole,
        opportunity=replace(opportunity, manifest=manifest, cells=many(opportunity.cells)),
        detection=replace(whole.detection, cells=many(whole.detection.cells)),
        end_to_end=replace(whole.end_to_end, cells=many(whole.end_to_end.cells), means=(), joints=()),
    )
    assert len(full.detection.cells) == 120
    assert len(page(study_report(full)).encode()) < 8_000_000


def test_without_plotly_it_says_so(known_report, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(NoPlotly, match=r"report.html needs plotly, which is not installed.*install it"):
        page(known_report)
