"""The page of the demonstration and its summaries, from results made by hand: nothing here runs a study."""

import csv
import io
import json
import re
from dataclasses import replace
from math import sqrt

import pytest

from tests.helpers import made_demo
from tests.helpers.made_demo import ROWS, rows
from unmask.base.errors import ConfigError
from unmask.lab.analysis.states import collect_state_evidence
from unmask.lab.demo import AT_ONCE, MODE
from unmask.report import files
from unmask.report.demo import QUESTIONS, demo_page, demo_verdicts, rows_csv, summarise, write_demo


@pytest.fixture(scope="module")
def results(known, known_store):
    return made_demo.results(known, collect_state_evidence(known_store, count=1))


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    return write_demo(results, tmp_path_factory.mktemp("report") / "new" / "folder")


@pytest.fixture(scope="module")
def text(written):
    return written.page.read_text(encoding="utf-8")


def test_csv_has_every_digit(written):
    values = list(csv.DictReader(io.StringIO(written.rows.read_text(encoding="utf-8"))))
    assert len(values) == len(ROWS)
    for value, row in zip(values, ROWS, strict=True):
        assert float(value["utility"]) == row.utility
        assert (value["forwards"] == "") == (row.forwards is None)
    third = replace(ROWS[0], utility=1 / 3)
    assert float(rows_csv([third]).splitlines()[1].split(",")[4]) == 1 / 3


def test_equal_results_give_equal_bytes(results, written, tmp_path):
    for before, after in zip(written, write_demo(results, tmp_path), strict=True):
        assert before.read_bytes() == after.read_bytes()


def test_file_in_place_of_the_folder_is_refused(results, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ConfigError, match=r"'.*taken' is a file; allowed: a folder"):
        write_demo(results, tmp_path / "taken")
    with pytest.raises(ConfigError, match="cannot be made"):
        files.folder(tmp_path / "taken" / "deeper")
    assert (tmp_path / "taken").read_text() == "mine"


def test_page_is_self_contained_with_every_part(text, results):
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)", text)
    assert not re.findall(r"https?:(?!//www.w3.org/)", text)
    assert text.count("<main") == text.count("<h1") == 1
    contents = text[text.index("<nav") : text.index("</nav>")]
    links = re.findall(r'href="#([^"]+)"', contents)
    assert links[:5] == ["verdicts", "runs", "states", "methods", "study"]
    assert all(f'id="{link}"' in text for link in links)
    without = demo_page(replace(results, evidence=None))
    assert '<section id="states"' not in without
    assert 'href="#states"' not in without


def test_runs_have_prompt_answer_and_values(text, results):
    part = text[text.index('<section id="runs"') : text.index('<section id="methods"')]
    for words in ("ab&lt;i&gt;c", "d &amp; e", "how WINO decides", ">0.25<", "not judged"):
        assert words in part
    (island,) = re.findall(r'id="runs-data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(island) == results.records


def test_missing_parts_are_named_first(results):
    text = demo_page(replace(results, report=replace(results.report, warnings=("3 of 4 <shards> are finished.",))))
    assert text.index("3 of 4 &lt;shards&gt; are finished.") < text.index('class="verdicts"')


def test_summaries_are_means_over_problems():
    by_label = {s.label: s for s in summarise(ROWS)}
    assert list(by_label) == [MODE, "slow & sure", "slower", "quick", "dice", AT_ONCE]
    sure, dice = by_label["slow & sure"], by_label["dice"]
    assert sure.utility == pytest.approx(0.8)
    assert sure.by_family == {"dense": 0.9, "far": 0.7}
    assert (sure.forwards, sure.tokens_per_forward, sure.cells["computed"]) == (4.0, 1.0, "exactly")
    assert (by_label[MODE].forwards, by_label[MODE].cells["tokens/forward"]) == (None, "")
    # The standard error of a mean of independent means.
    assert dice.stderr == pytest.approx(sqrt(2 * 0.03**2) / 2)
    assert {label for label, s in by_label.items() if s.frontier} == {AT_ONCE, "quick", "slow & sure"}
    twins = rows("one", "llada", (0.5, 0.5), 2.0) + rows("two", "dream", (0.5, 0.5 + 1e-12), 2.0)
    assert all(s.frontier for s in summarise(twins))


def test_verdicts_answer_every_question(known_report):
    cheap = rows("nearly", "dream", (0.898, 0.698), 3.0)
    first, *others = demo_verdicts(summarise([*ROWS, *cheap]), known_report.answers)
    assert [v.question for v in others] == list(QUESTIONS.values())
    assert [v.verdict for v in others] == [answer.verdict for answer in known_report.answers]
    assert "everything reaches a utility of 0.30, the best method 0.80" in first.verdict
    assert "nearly gets 0.80 with 3.0 forwards for 4 tokens" in first.verdict
    same = [*rows(MODE, "", (1, 1), None), *rows(AT_ONCE, "", (0.9, 0.9), 1), *rows("slow", "llada", (0.9, 0.9), 4)]
    assert demo_verdicts(summarise(same), ())[0].verdict.startswith("No: ")
