"""A cell of a notebook in a real browser: the grid draws inside its frame, and nothing gets out of it."""

from unmask.api.load import load

EVIL = "</script><script>top.hacked=1</script><img src=x onerror='top.hacked=1'>"
REACH = "() => { try { return top.document.title; } catch (error) { return error.name; } }"


def test_the_grid_is_drawn_in_its_frame(tab, tmp_path):
    out = load("exact", n=8).generate("ab", policy="remdm", seed=3, record_top=4)
    out.trajectory.config["rows"][0]["prompt"] = EVIL
    (tmp_path / "cell.html").write_text(f"<!DOCTYPE html><body>{out._repr_html_()}</body>", encoding="utf-8")
    tab.goto((tmp_path / "cell.html").as_uri())
    frame = tab.frame_locator("iframe")
    frame.locator(".run-view").wait_for()
    assert frame.locator("dl.facts dd").first.inner_text() == EVIL
    assert frame.locator("img").count() == 0
    frame.locator(".run-bar input").fill("1")
    # Neither side reaches the other.
    assert tab.evaluate("typeof window.hacked") == "undefined"
    assert tab.evaluate("typeof unmaskGrid") == "undefined"
    assert tab.frames[1].evaluate(REACH) == "SecurityError"
