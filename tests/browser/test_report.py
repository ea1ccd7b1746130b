"""The report's page in a browser, as somebody who reads it uses it."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.helpers import made_findings, made_reports
from tests.helpers import made_studies as made
from unmask.report.csv import table_csv
from unmask.report.figures.numbers import figure_csv
from unmask.report.html import page
from unmask.report.latex import table_latex
from unmask.report.sheet import Sheet
from unmask.report.study import study_report

ODD = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt=1'> %{x} $x$ \u202eодд\u2028🙈"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A made study with diagnostics and whole answers."""
    tables, read = made.diagnosed(made_findings.KINDS, prompts=12)
    found = made_findings.diagnosed(tmp_path_factory.mktemp("study"), tables, read)
    return study_report(replace(found, end_to_end=made_findings.decoded()))


@pytest.fixture(scope="module")
def place(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(report), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(tab, place):
    tab.goto(place)
    return tab


def column(tab, sheet, at):
    return tab.eval_on_selector_all(f"#{sheet} tbody tr", f"rows => rows.map(row => row.cells[{at}].textContent)")


def drawn(tab, figure):
    """Come near a figure, and wait until it is there."""
    tab.locator(f"#fig-{figure}").scroll_into_view_if_needed()
    tab.wait_for_selector(f"#fig-{figure} .plots.drawn")
    return tab.locator(f"#fig-{figure}")


def test_sorting_by_mouse_and_keyboard(opened):
    before = column(opened, "e4-end-to-end", 1)
    head = opened.locator("#e4-end-to-end thead th", has_text="task")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(opened, "e4-end-to-end", 1) == sorted(before)
    opened.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column(opened, "e4-end-to-end", 1) == sorted(before, reverse=True)
    opened.keyboard.press("Enter")
    assert column(opened, "e4-end-to-end", 1) == before
    # Numbers by their value, whatever stands around them; what is none stays last.
    selective = opened.locator("#e4-end-to-end thead th").filter(has_text="Δ = Selective")
    at = selective.evaluate("th => th.cellIndex")
    selective.locator("button").click()
    values = [float(text.split(" ")[0]) for text in column(opened, "e4-end-to-end", at)]
    assert values == sorted(values)
    assert values[0] < 0 < values[-1]


def test_what_is_no_number_stays_last(tab, tmp_path):
    sheet = made_reports.fruit()
    (tmp_path / "p.html").write_text(page(made_reports.report(sheet)), encoding="utf-8")
    tab.goto((tmp_path / "p.html").as_uri())
    head = tab.locator("#fruit th button", has_text="taste")
    head.click()
    assert [text[:6] for text in column(tab, "fruit", 2)] == ["-0.125", "0.5000", "–"]
    head.click()
    assert [text[:6] for text in column(tab, "fruit", 2)] == ["0.5000", "-0.125", "–"]


def test_numbers_are_copied_and_saved(opened, report):
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    (sheet,) = [s for s in report.sheets if s.name == "opportunity"]
    buttons = opened.locator("#opportunity .formats")
    buttons.locator("[data-copy=tex]").click()
    opened.wait_for_selector("#opportunity .done:text('tex copied')")
    assert opened.evaluate("navigator.clipboard.readText()") == table_latex(sheet)
    with opened.expect_download() as saving:
        buttons.locator("[data-save=csv]").click()
    assert saving.value.suggested_filename == "opportunity.csv"
    assert saving.value.path().read_text(encoding="utf-8") == table_csv(sheet)
    figure = next(f for f in report.figures if f.name == "e3-setting-1")
    place = drawn(opened, "e3-setting")
    place.locator("select").select_option("e3-setting-1")
    with opened.expect_download() as saving:
        place.locator("[data-save=csv]").click()
    assert saving.value.path().read_text(encoding="utf-8") == figure_csv(figure)


def test_pointing_at_a_number_shows_n_interval_and_command(opened):
    figure = drawn(opened, "e1-gap")
    figure.locator(".point").first.hover(force=True)
    opened.wait_for_selector("#fig-e1-gap .hovertext")
    said = figure.locator(".hovertext").text_content()
    assert re.search(r"0\.\d{4} \[-?\d\.\d{4}, \d\.\d{4}\]", said)
    assert "n: 12 prompts, 48 states" in said
    assert "unmask study run FILE --out" in said


def test_another_setting_by_keyboard(opened):
    figure = drawn(opened, "e3-setting")
    titles = [figure.locator(".gtitle").nth(0).text_content()]
    figure.locator("select").focus()
    opened.keyboard.press("End")
    opened.wait_for_function("() => document.querySelector('#fig-e3-setting .plots').dataset.figure === 'e3-setting-3'")
    opened.wait_for_selector("#fig-e3-setting .gtitle")
    titles.append(figure.locator(".gtitle").nth(0).text_content())
    assert figure.locator(".plot").count() == 3
    assert titles[1] == "Calibration; the gate never opens"


def test_figures_wait_until_they_come_near(opened):
    assert opened.evaluate("window.Plotly === undefined || document.querySelectorAll('.plots:not(.drawn)').length > 0")
    for figure in ("e1-gap", "e1-stages", "e3-setting", "e4-gain-0"):
        assert drawn(opened, figure).locator("svg.main-svg").count() > 0


def test_keyboard_reaches_answers_sections_and_tables(opened):
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.textContent") == "Skip to the answers"
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "answers"
    link = opened.locator("nav a", has_text="End to end").first
    link.focus()
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "s-end-to-end"
    # A table that is wider than the page can be scrolled without a mouse.
    opened.locator("#e4-end-to-end .wide").focus()
    opened.keyboard.press("ArrowRight")
    opened.wait_for_function("() => document.querySelector('#e4-end-to-end .wide').scrollLeft > 0")


def test_a_link_opens_what_is_folded(opened):
    assert opened.locator("#stages").evaluate("e => e.open") is False
    opened.locator("#fig-e1-stages figcaption a").click()
    opened.wait_for_function("() => document.getElementById('stages').open")


def test_odd_text_stays_text(tab, tmp_path):
    fruit = made_reports.fruit()
    sheet = Sheet("fruit", ODD, ODD, fruit.columns, [made_reports.Fruit(ODD, 1, None)])
    figure, gallery = made_reports.figures()
    (_, dots), *_ = figure.panels[0].rows
    chart = replace(figure.panels[0], rows=[(ODD, [replace(dots[0], series=ODD, about=(ODD,))])], x=ODD)
    odd = replace(figure, title=ODD, caption=ODD, panels=(chart,))
    plain = made_reports.report(sheet, study=ODD, command=(ODD,), warnings=(ODD,), facts={ODD: ODD})
    first, *others = plain.sections
    report = replace(plain, sections=(replace(first, title=ODD, figures=(odd, gallery)), *others))
    (tmp_path / "p.html").write_text(page(report), encoding="utf-8")
    tab.goto((tmp_path / "p.html").as_uri())
    assert tab.text_content("#fruit td") == ODD
    figure = drawn(tab, "taste")
    assert figure.locator(".ytick text").text_content() == ODD
    figure.locator(".point").first.hover(force=True)
    tab.wait_for_selector("#fig-taste .hovertext")
    # Long lines are broken at spaces.
    said = figure.locator(".hovertext").text_content()
    assert said.replace(" ", "").count(ODD.replace(" ", "")) == 2
    assert tab.evaluate("window.hurt") is None
    assert tab.locator("img").count() == 0


def test_on_a_narrow_screen_it_is_said_below(opened):
    opened.set_viewport_size({"width": 360, "height": 900})
    figure = drawn(opened, "e1-gap")
    figure.locator(".point").first.hover(force=True)
    opened.wait_for_function("() => document.querySelector('#fig-e1-gap .said').textContent.includes('n: 12 prompts')")
    assert figure.locator(".said").is_visible()


@pytest.mark.parametrize("width", [360, 1920])
def test_no_sideways_scroll_of_the_page(opened, width):
    opened.set_viewport_size({"width": width, "height": 900})
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for figure in ("e1-gap", "e3-setting"):
        drawn(opened, figure)
    wide = opened.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    over = opened.locator(".wide.over")
    if width == 360:
        assert over.count() > 0
        assert opened.locator("#opportunity .sideways").is_visible()
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
    drawn(opened, "e1-gap")
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert opened.evaluate(NAMELESS) == []
    levels = opened.evaluate(HEADINGS)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert opened.evaluate(FAINT) == []
    # What is focused comes in the order of the page.
    assert opened.locator("[tabindex]").evaluate_all("all => all.every(e => e.tabIndex <= 0)")


def test_figures_follow_the_colour_scheme(opened):
    ink = "e => getComputedStyle(e).fill"
    opened.emulate_media(color_scheme="light")
    tick = drawn(opened, "e1-gap").locator(".ytick text").first
    assert tick.evaluate(ink) == "rgb(34, 34, 34)"
    opened.emulate_media(color_scheme="dark")
    changed = "() => getComputedStyle(document.querySelector('#fig-e1-gap .ytick text')).fill !== 'rgb(34, 34, 34)'"
    opened.wait_for_function(changed)
    assert tick.evaluate(ink) == "rgb(230, 230, 230)"


def test_printing_opens_everything(opened):
    opened.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
    opened.emulate_media(media="print")
    assert not opened.locator("nav").is_visible()
    assert opened.locator("#pairs .formats").is_hidden()
