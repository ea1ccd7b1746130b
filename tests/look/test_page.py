"""One page with everything inside."""

import json
import re

from unmask.look.page import asset, island, page

ODD = "</script><script>alert(1)</script> & \u2028 \u202e 𝔘 <!--"


def test_an_island_cannot_be_left():
    written = island("run", {"text": ODD})
    assert written.count("</script") == 1
    assert "<!--" not in written
    inside = re.fullmatch(r'<script type="application/json" id="run">(.*)</script>', written, re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == {"text": ODD}


def test_a_page_names_no_address():
    written = page("a < b", "<main></main>", scripts=["1"], data={"a": 1})
    assert "<title>a &lt; b</title>" in written
    assert not re.search(r"https?://", written)
    assert asset("base.css") in written
