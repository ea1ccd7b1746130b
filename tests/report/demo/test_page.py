"""The page of the demonstration, around results made by hand."""

import json
import re
from dataclasses import replace

import pytest

from tests.helpers import made_demo
from unmask.lab.analysis.states import state_evidence
from unmask.lab.demo import MODE
from unmask.report.demo.page import GLOSSARY, page


@pytest.fixture(scope="module")
def results(known, known_store):
    return made_demo.results(known, state_evidence(known_store, count=1))


@pytest.fixture(scope="module")
def text(results):
    return page(results)


def test_it_is_self_contained(text):
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)", text)
    assert "http:" not in text.replace("http://www.w3.org/", "")
    assert "https:" not in text


def test_verdicts_two_pictures_and_a_glossary_come_first(text, results):
    first = text[text.index('<header class="demo"') : text.index('<section id="runs"')]
    for verdict in results.verdicts:
        assert verdict.question in first
    assert first.count("<li>") == len(results.verdicts) == 5
    alts = re.findall(r'<img alt="([^"]+)" src="data:image/svg\+xml;base64,', first)
    assert len(alts) == 2
    assert "forwards per answer" in alts[0]
    assert "region on fill" in alts[1]
    assert all(f"<dfn>{word}</dfn> {meaning}" in first for word, meaning in GLOSSARY.items())


def test_no_heap_of_numbers_comes_first(text):
    """Nobody reads numbers of four digits before knowing what they are about: one in a verdict is enough."""
    first = text[text.index("<main") : text.index('<section id="runs"')]
    assert len(re.findall(r"\d\.\d{4}", re.sub(r'src="[^"]*"', "", first))) <= 1


def test_runs_are_there_with_prompt_answer_and_record(text, results):
    part = text[text.index('<section id="runs"') : text.index('<section id="methods"')]
    assert "ab&lt;i&gt;c" in part
    assert "d &amp; e" in part
    assert "how WINO decides" in part
    assert ">0.25<" in part
    assert "not judged" in part
    (island,) = re.findall(r'id="runs-data">(.*?)</script>', text, re.S)
    assert json.loads(island) == results.records


def test_the_best_gain_and_the_worst_loss_are_there_with_their_branches(text, results):
    part = text[text.index('<section id="states"') : text.index('<section id="methods"')]
    gain, loss = results.evidence.gains.iloc[0], results.evidence.losses.iloc[0]
    assert gain.difference > 0 > loss.difference
    for one in (gain, loss):
        assert f'data-state="{one.key}"' in part
        assert f"{one.difference:+.2f}</b>" in part
        assert f"{one.candidate} instead of " in part
    (island,) = re.findall(r'id="states-data">(.*?)</script>', text, re.S)
    assert [state["key"] for state in json.loads(island)["states"]] == [s["key"] for s in results.evidence.states]


def test_without_gains_and_losses_there_is_no_such_part(results):
    text = page(replace(results, evidence=None))
    assert '<section id="states"' not in text
    assert 'href="#states"' not in text


def test_the_methods_best_first(text):
    part = text[text.index('<section id="methods"') : text.index('<section id="study"')]
    assert "slow &amp; sure ★" in part
    assert "slow & sure" not in part
    assert part.index(MODE) < part.index("slow &amp; sure ★") < part.index("quick ★")
    for words in ("± 0.021", "4 seeds", "block_length=null", "&#34;prompt_length&#34;: 1", 'alt="The step at which'):
        assert words in part


def test_the_study_comes_whole(text, results):
    part = text[text.index('<section id="study"') :]
    for answer in results.report.answers:
        assert answer.question in part
    contents = text[text.index("<nav") : text.index("</nav>")]
    links = re.findall(r'href="#([^"]+)"', contents)
    assert links[:6] == ["verdicts", "runs", "states", "methods", "study", "answers"]
    assert all(f'id="{link}"' in text for link in links)
    assert "fingerprint" in part
    assert text.count("<main") == text.count("</main>") == 1
    assert text.count("<h1") == 1


def test_what_is_missing_is_said_first(results):
    late = replace(results, report=replace(results.report, warnings=("3 of 4 <shards> are finished.",)))
    text = page(late)
    assert text.index("3 of 4 &lt;shards&gt; are finished.") < text.index('class="verdicts"')
