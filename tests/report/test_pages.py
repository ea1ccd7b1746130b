"""Pages with everything inside: what came from a model is text there, and nothing is fetched."""

import json
import re

from unmask.api.load import load
from unmask.report.pages import asset, island, page, run_page, runs_page
from unmask.report.run_data import run_data

ODD = "</script><script>alert(1)</script> & \u2028 \u202e 𝔘 <!--"


def test_text_cannot_leave_an_island():
    written = island("run", {"text": ODD})
    assert written.count("</script") == 1
    assert "<!--" not in written
    inside = re.fullmatch(r'<script type="application/json" id="run">(.*)</script>', written, re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == {"text": ODD}


def test_page_names_no_address():
    written = page("a < b", "<main></main>", modules=["dom.js"], start="1", data={"a": 1})
    assert "<title>a &lt; b</title>" in written
    assert not re.search(r"https?://", written)
    assert asset("base.css") in written


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
