"""The frame of every page, in a browser."""

from unmask.report.pages import page


def test_odd_text_stays_text(tab, tmp_path):
    odd = "</script><script>window.hurt = 1</script>\u2028"
    script = "document.querySelector('p').textContent = JSON.parse(document.getElementById('it').textContent)"
    place = tmp_path / "page.html"
    place.write_text(page(odd, "<main><p></p></main>", scripts=[script], data={"it": odd}), encoding="utf-8")
    tab.goto(place.as_uri())
    assert tab.text_content("p") == odd
    assert tab.evaluate("window.hurt") is None
