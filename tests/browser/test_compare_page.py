"""The page of a comparison in a browser: its figure, its tables, and names that look like HTML."""

import pytest

from tests.helpers.made_comparison import made
from unmask.lab.compare.summary import summarise
from unmask.report.compare_page import compare_page, plotly_script

ODD = "<img src=x onerror=alert(1)>"
SPENT = {"reference": 8, "fast": 2, ODD: 4}
WORTH = {"reference": [0.5, 0.7], "fast": [0.4, 0.8], ODD: [0.1, 0.2]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A page of two tasks, whose policies have the same numbers."""
    tasks = ("one", "two")
    spent = {task: {name: [n, n] for name, n in SPENT.items()} for task in tasks}
    evaluation = made(dict.fromkeys(tasks, WORTH), spent, written=3)
    file = tmp_path_factory.mktemp("page") / "compare.html"
    text = compare_page(evaluation, summarise(evaluation, resamples=20), plotly_script())
    file.write_text(text, encoding="utf-8")
    return file.as_uri()


def names(tab):
    return tab.locator("details[open] tbody tr td:first-child").all_inner_texts()


@pytest.mark.parametrize("width", [360, 1280])
def test_the_figure_is_drawn_and_names_stay_text(tab, place, width):
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(place)
    tab.wait_for_selector("#figure svg .scatterlayer .point")
    assert tab.locator("#figure .scatterlayer .trace").nth(1).locator(".point").count() == 3
    assert tab.locator("img").count() == 0
    assert ODD in names(tab)
    assert "Cheapest without a loss beyond noise: fast, 2.0 forwards" in tab.locator(".verdict").inner_text()
    # Nothing but the tables scrolls sideways.
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_another_task_and_another_order(tab, place):
    tab.goto(place)
    assert names(tab) == ["reference", "fast", ODD]
    head = tab.get_by_role("button", name="forwards per answer").first
    head.click()
    assert names(tab) == ["reference", ODD, "fast"]
    head.press("Enter")
    assert names(tab) == ["fast", ODD, "reference"]
    assert tab.locator("th[aria-sort=ascending]").count() == 1
    tab.get_by_label("Task").select_option(index=2)
    assert tab.get_by_label("Task").input_value() == "2"
    assert tab.locator("#figure .scatterlayer .trace").nth(1).locator(".point").count() == 3


def test_the_configuration_is_there(tab, place):
    tab.goto(place)
    tab.get_by_text("The resolved configuration").click()
    assert '"seed": 0' in tab.locator("details pre").inner_text()
