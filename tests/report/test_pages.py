"""Pages with everything inside: what came from a model is text there, and nothing is fetched."""

import json
import re

from tests.helpers import made_studies as made
from unmask.api.load import load
from unmask.lab.analysis.states import collect_state_evidence
from unmask.report.pages import embed_json, page, read_asset, run_page, runs_page, states_page
from unmask.report.run_data import run_data

ODD = "</script><script>alert(1)</script> & \u2028 \u202e 𝔘 <!--"


def test_text_cannot_leave_an_island():
    written = embed_json("run", {"text": ODD})
    assert written.count("</script") == 1
    assert "<!--" not in written
    inside = re.fullmatch(r'<script type="application/json" id="run">(.*)</script>', written, re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == {"text": ODD}


def test_page_names_no_address():
    written = page("a < b", "<main></main>", modules=["dom.js"], start="1", data={"a": 1})
    assert "<title>a &lt; b</title>" in written
    assert not re.search(r"https?://", written)
    assert read_asset("base.css") in written


def test_page_of_a_run_holds_its_texts_escaped():
    exact = load("exact", n=10)
    run = exact.generate(["ab", "cda"]).trajectory
    odd = run_data(run, 0, exact.codec, prompt="</script><b>&", explanation="<i>")
    written = run_page(odd)
    assert "<dd>&lt;/script&gt;&lt;b&gt;&amp;</dd>" in written
    assert "<i>" not in written
    several = runs_page([odd, run_data(run, 1, exact.codec)], "more <elsewhere>")
    assert all(f'id="run-{row}"' in several for row in (0, 1))
    assert "more &lt;elsewhere&gt;" in several


def test_states_are_listed_in_their_order(known_store):
    evidence = collect_state_evidence(known_store)
    written = states_page(evidence)
    listed = re.findall(r'data-state="([^"]+)"', written)
    assert listed == [*evidence.gains["key"], *evidence.losses["key"]]
    data = re.search(r'<script type="application/json" id="states">(.*?)</script>', written, re.DOTALL)
    assert data is not None
    assert [state["key"] for state in json.loads(data[1])["states"]] == [state["key"] for state in evidence.states]
    assert "tokenizer of small is not on this machine, so tokens are shown as numbers" in written


def test_states_name_what_is_missing_and_stay_text(tmp_path):
    odd = 'x"><script>alert(1)</script>'
    flat = {"score": {"confidence": made.flat(0.5, 2), odd: made.flat(0.5, 2)}}
    tables = {("small", odd, split): flat for split in ("validation", "evaluation")}
    store = made.store(tmp_path / "study", tables, unfinished=[("small", "later", "evaluation")])
    written = states_page(collect_state_evidence(store))
    assert "No candidate was better than the reference at any state." in written
    assert "Small on later is not finished: " in written
    assert "<script>alert" not in written
