"""The page of states, without a browser."""

import json
import re

from tests.helpers import made_studies as made
from unmask.lab.analysis.states import state_evidence
from unmask.report.pages import states_page


def test_the_lists_are_in_the_page_in_their_order(known_store):
    told = state_evidence(known_store)
    written = states_page(told)
    listed = re.findall(r'data-state="([^"]+)"', written)
    assert listed == [*told.gains["key"], *told.losses["key"]]
    island = re.search(r'<script type="application/json" id="states">(.*?)</script>', written, re.DOTALL)
    assert island is not None
    assert [state["key"] for state in json.loads(island[1])["states"]] == [state["key"] for state in told.states]
    assert "tokenizer of small is not on this machine, so tokens are shown as numbers" in written


def test_a_study_in_which_nothing_differs_and_part_is_missing(tmp_path):
    flat = {"score": {"confidence": made.flat(0.5, 2), "margin": made.flat(0.5, 2)}}
    tables = {("small", "<b>sort", split): flat for split in ("validation", "evaluation")}
    store = made.store(tmp_path / "study", tables, unfinished=[("small", "later", "evaluation")])
    written = states_page(state_evidence(store))
    assert "No candidate was better than the reference at any state." in written
    assert "No candidate was worse than the reference at any state." in written
    assert "Small on later is not finished: " in written
    assert "<b>sort" not in written


def test_names_from_a_study_file_stay_text(tmp_path):
    odd = 'x"><script>alert(1)</script>'
    tables = {
        ("small", odd, split): {"score": {"confidence": made.flat(0.5, 2), odd: made.flat(1.0, 2)}}
        for split in ("validation", "evaluation")
    }
    written = states_page(state_evidence(made.store(tmp_path / "study", tables)))
    assert "<script>alert" not in written
    assert "x&quot;&gt;&lt;script&gt;alert(1)" in written
