"""The report's page in a browser, as somebody who reads it uses it."""

from itertools import pairwise

import pytest

from tests.helpers import made_studies as made
from tests.helpers.stored_study import StoredStudy
from unmask.lab.analysis import analyse
from unmask.report.study import page, study_report

ODD = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt=1'> %{x} $x$"


@pytest.fixture(scope="module")
def report():
    """A study that has everything."""
    return study_report(analyse(StoredStudy(), resamples=20, draws=5))


@pytest.fixture(scope="module")
def place(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(report), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(tab, place):
    tab.goto(place)
    return tab


def column(tab, table, at):
    return tab.eval_on_selector_all(f"#{table} tbody tr", f"rows => rows.map(row => row.cells[{at}].textContent)")


def test_sorting_by_mouse_and_keyboard(opened):
    before = column(opened, "e4-end-to-end", 1)
    head = opened.locator("#e4-end-to-end thead th", has_text="task")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(opened, "e4-end-to-end", 1) == sorted(before)
    opened.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    opened.keyboard.press("Enter")
    assert column(opened, "e4-end-to-end", 1) == before
    # Numbers by their value, whatever stands around them; what is none stays last.
    auroc = opened.locator("#e2-selection thead th", has_text="recovered gap")
    opened.evaluate("document.getElementById('e2-selection').open = true")
    at = auroc.evaluate("th => th.cellIndex")
    auroc.locator("button").click()
    cells = column(opened, "e2-selection", at)
    known = [float(text.split(" ")[0]) for text in cells if text != "–"]
    assert known == sorted(known)
    assert cells == [text for text in cells if text != "–"] + ["–"] * cells.count("–")
    assert "–" in cells


def test_one_filter_over_all_tables(opened):
    opened.locator(".filter select[name=model]").select_option("mini-dream")
    opened.locator(".filter select[name=axis]").select_option("region")
    shown = opened.eval_on_selector_all(
        "#opportunity tbody tr:not([hidden])",
        "rows => rows.map(row => row.cells[0].textContent + row.cells[2].textContent)",
    )
    assert set(shown) == {"mini-dreamregion"}
    # Tables without these columns keep their rows.
    assert opened.locator("#models tbody tr[hidden]").count() == 1
    assert opened.locator("#cost tbody tr:not([hidden])").count() == 1
    opened.locator(".filter select[name=model]").select_option("")
    opened.locator(".filter select[name=axis]").select_option("")
    assert opened.locator("tbody tr[hidden]").count() == 0


def test_a_table_is_saved_with_all_digits(opened, report):
    (table,) = [one for one in report.tables if one.name == "opportunity"]
    with opened.expect_download() as saving:
        opened.locator("#opportunity [data-save]").click()
    assert saving.value.suggested_filename == "opportunity.csv"
    assert saving.value.path().read_text(encoding="utf-8") == table.to_csv()


def test_keyboard_reaches_answers_sections_and_tables(opened):
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.textContent") == "Skip to the answers"
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "answers"
    link = opened.locator("nav a", has_text="End to end").first
    link.focus()
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "s-end-to-end"
    # On a phone a table that is wider than the page can be scrolled without a mouse.
    opened.set_viewport_size({"width": 400, "height": 900})
    opened.locator("#e4-end-to-end .wide").focus()
    opened.keyboard.press("ArrowRight")
    opened.wait_for_function("() => document.querySelector('#e4-end-to-end .wide').scrollLeft > 0")


def test_odd_text_stays_text(tab, tmp_path):
    known = made.known()
    tables = {("small", ODD, split): known["small", "fill", split] for split in ("validation", "evaluation")}
    found = analyse(made.store(tmp_path / "s", tables), resamples=20)
    (tmp_path / "p.html").write_text(page(study_report(found)), encoding="utf-8")
    tab.goto((tmp_path / "p.html").as_uri())
    assert tab.text_content("#opportunity tbody td:nth-child(2)") == ODD
    assert tab.evaluate("window.hurt") is None
    assert tab.locator("img:not([src^='data:image/svg+xml'])").count() == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_no_sideways_scroll_of_the_page(opened, width):
    opened.set_viewport_size({"width": width, "height": 900})
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    if width == 1280:
        wider = "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.ariaLabel)"
        assert opened.eval_on_selector_all(".wide", wider) == []
    if width == 360:
        assert opened.locator(".wide.over").count() > 0
        opened.wait_for_selector("#opportunity .sideways", state="visible")
        assert opened.locator("nav a", has_text="End to end").first.is_visible()


NAMELESS = """() => [...document.querySelectorAll("a, button, select, summary, [role]")]
  .filter(e => e.role !== "status" && !(e.labels && e.labels.length))
  .filter(e => !(e.getAttribute("aria-label") || e.textContent).trim())
  .map(e => e.outerHTML.slice(0, 80))"""
HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4")].map(h => Number(h.tagName[1]))"""
FAINT = """() => {
  const rgb = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => rgb(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] !== 0) return c; } return "rgb(255,255,255)"; };
  const faint = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || !e.checkVisibility() || e.closest("script, noscript, .heatmaplayer, option")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(e.closest("svg") ? style.fill : style.color), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(e.textContent.slice(0, 40) + " " + style.color + " " + behind(e));
  }
  return faint;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_on_light_and_dark(opened, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert opened.evaluate(NAMELESS) == []
    levels = opened.evaluate(HEADINGS)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert opened.evaluate(FAINT) == []
    # What is focused comes in the order of the page.
    assert opened.locator("[tabindex]").evaluate_all("all => all.every(e => e.tabIndex <= 0)")
    assert opened.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0 && i.alt)")


def test_printing_opens_everything_and_keeps_figures(opened):
    opened.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
    opened.emulate_media(media="print")
    assert not opened.locator("nav").is_visible()
    assert opened.locator("#opportunity .formats").is_hidden()
    assert opened.locator("#fig-e1-all img").is_visible()
