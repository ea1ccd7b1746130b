"""The page of a comparison in a browser: its figure, its tables, and names that look like HTML."""

import pytest

from tests.helpers.made_comparison import made
from unmask.lab.compare.summary import summarise
from unmask.report.compare import write_comparison

ODD = "<img src=x onerror=alert(1)>"
SPENT = {"reference": 8, "fast": 2, ODD: 4}
WORTH = {"reference": [0.5, 0.7], "fast": [0.4, 0.8], ODD: [0.1, 0.2]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A page of two tasks, whose policies have the same numbers."""
    tasks = ("one", "two")
    spent = {task: {name: [n, n] for name, n in SPENT.items()} for task in tasks}
    comparison = made(dict.fromkeys(tasks, WORTH), spent, written=3)
    folder = tmp_path_factory.mktemp("page")
    write_comparison(comparison, summarise(comparison, resamples=20), folder)
    return (folder / "compare.html").as_uri()


def names(tab):
    return tab.locator("details[open] tbody tr td:first-child").all_inner_texts()


@pytest.mark.parametrize("width", [360, 1280])
def test_figure_is_drawn_and_names_stay_text(tab, place, width):
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(place)
    assert tab.evaluate("document.querySelector('figure img').naturalWidth") > 100
    assert tab.locator("img").count() == 1
    assert ODD in names(tab)
    assert "Cheapest without a loss beyond noise: fast, 2.0 forwards" in tab.locator(".verdict").first.inner_text()
    # Nothing but the tables scrolls sideways.
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_tables_sort_and_the_configuration_is_there(tab, place):
    tab.goto(place)
    assert names(tab) == ["reference", "fast", ODD]
    head = tab.get_by_role("button", name="forwards").first
    head.click()
    assert names(tab) == ["fast", ODD, "reference"]
    head.press("Enter")
    assert names(tab) == ["reference", ODD, "fast"]
    assert tab.locator("th[aria-sort=descending]").count() == 1
    tab.locator("summary", has_text="configuration").click()
    assert '"seed": 0' in tab.locator("details pre").inner_text()
