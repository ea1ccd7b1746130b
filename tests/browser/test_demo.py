"""The demonstration's page in a browser: what the first screen holds, and the runs that it shows."""

import pytest

from tests.helpers import made_demo
from tests.helpers import made_studies as made
from unmask.lab.analysis import analyse
from unmask.lab.analysis.states import collect_state_evidence
from unmask.report.demo import write_demo


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    store = made.store(folder / "study", made.known())
    results = made_demo.results(analyse(store, resamples=100), collect_state_evidence(store, count=1))
    return write_demo(results, folder).page.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_has_the_verdicts_both_pictures_and_the_glossary(tab, address, scheme):
    tab.emulate_media(color_scheme=scheme)
    tab.goto(address)
    shown = [*tab.locator(".verdicts li").all(), *tab.locator(".pictures img").all(), tab.locator(".demo .glossary")]
    assert len(shown) == 5 + 2 + 1
    for part in shown:
        box = part.bounding_box()
        assert box["width"] > 100
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900
    assert all(tab.evaluate("Array.from(document.images, (i) => i.complete && i.naturalWidth > 0)"))


@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_the_page_never_scrolls_sideways(tab, address, width):
    tab.set_viewport_size({"width": width, "height": 800})
    tab.goto(address)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_button_shows_its_run(tab, address):
    tab.goto(address)
    grid, buttons = tab.locator(".run-grid"), tab.locator("button[data-run]")
    assert grid.count() == 1
    assert [b.get_attribute("aria-pressed") for b in buttons.all()] == ["true", "false"]
    first = grid.inner_text()
    assert "llada" in first
    buttons.nth(1).focus()
    tab.keyboard.press("Enter")
    assert [b.get_attribute("aria-pressed") for b in buttons.all()] == ["false", "true"]
    assert "wino" in grid.inner_text()
    assert "llada" not in grid.inner_text()


def test_a_state_is_chosen_and_arrow_keys_turn_over_states_only_there(tab, address):
    tab.goto(address)
    shown, buttons = tab.locator("#state output"), tab.locator("button[data-state]")
    assert shown.inner_text() == "state 1 of 2"
    buttons.nth(1).click()
    assert shown.inner_text() == "state 2 of 2"
    assert buttons.nth(1).get_attribute("aria-current") == "true"
    tab.locator("button[data-run]").first.focus()
    tab.keyboard.press("ArrowRight")
    assert shown.inner_text() == "state 2 of 2"
    tab.locator("#state").focus()
    tab.keyboard.press("ArrowRight")
    assert shown.inner_text() == "state 1 of 2"


def test_odd_prompts_stay_text(tab, address):
    tab.goto(address)
    assert tab.locator(".asked q").inner_text() == "ab<i>c"
    assert tab.locator("i", has_text="c").count() == 0
