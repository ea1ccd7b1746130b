"""The page of states: choosing one, what each candidate made of it, and odd text."""

import pandas as pd
import pytest

from unmask.lab.analysis.states import STATE_COLUMNS, StateEvidence
from unmask.report.pages import states_page

ODD = "</script><img src=x onerror='window.hurt=1'>\u202e"


def tried(name, utility, *, axis="score", kind="candidate", answer="", put=((2, " x"),), again=(), signal=None):
    outcome = {
        "rollouts": 2,
        "utility": utility,
        "reason": f"<i>{name}</i> scored",
        "answer": answer or f"answer of {name}",
    }
    outcome |= {"revealed": [list(pair) for pair in put], "remasked": list(again)}
    action = {"axis": axis, "name": name, "kind": kind, "outcomes": [outcome], "utility": utility}
    return action | {"difference": utility - 0.5, "signal": signal}


def state(prompt, number, *actions):
    return {
        "model": "mini",
        "task": "sort",
        "split": "evaluation",
        "prompt": prompt,
        "state": number,
        "step": 1,
        "masked": 3,
        "horizon": 4,
        "tokens": ["asked ", ODD, None, None, "kept", "<end>", "<end>", None],
        "fixed": [True, True, False, False, False, False, False, False],
        "fillers": ["<end>"],
        "actions": list(actions),
        "key": f"mini/sort/{prompt}/{number}",
    }


def evidence():
    first = state(
        "sort-1",
        0,
        tried("confidence", 0.5, kind="reference"),
        tried("margin", 1.0, put=((3, ODD),), answer=ODD),
        tried("uniform", 0.25, again=(4,)),
        tried("stability", 0.5, answer="answer of confidence"),
        tried("full", 0.5, axis="region", kind="reference"),
        tried("block:8", 0.5, axis="region", answer="answer of full"),
        tried("region", 0.75, axis="region", kind="proposal", signal=0.4),
    )
    second = state("sort-2", 3, tried("confidence", 0.5, kind="reference"), tried("margin", 0.0))
    columns = [*STATE_COLUMNS, "axis", "candidate", "difference", "utility", "reference", "key"]
    gain, loss = (
        pd.DataFrame(
            [("mini", "sort", "evaluation", p, n, "score", "margin", d, u, 0.5, f"mini/sort/{p}/{n}")], columns=columns
        )
        for p, n, d, u in (("sort-1", 0, 0.5, 1.0), ("sort-2", 3, -0.5, 0.0))
    )
    return StateEvidence("made", gain, loss, [first, second], 9, 2, [], [])


@pytest.fixture
def page(tab, tmp_path):
    place = tmp_path / "states.html"
    place.write_text(states_page(evidence()), encoding="utf-8")
    tab.goto(place.as_uri())
    return tab


def test_odd_text_stays_text(page):
    assert page.evaluate("window.hurt") is None
    assert page.locator("img, #state i").count() == 0
    card = page.locator("article", has_text="margin").first
    assert card.locator(".answer").text_content() == ODD
    assert "<i>margin</i> scored" in card.text_content()
    assert ODD in page.locator(".asked pre").text_content()


def test_the_reversal_stands_out_with_its_axis(page):
    said = page.locator("#state p", has_text="than the reference").text_content()
    assert (
        said == "Better than the reference: margin (score, +0.500). Worse than the reference: uniform (score, −0.250)."
    )
    assert page.locator("#state h3").all_text_contents() == ["The canvas at this state", "score", "region"]
    assert page.locator("article.is-better h4").first.text_content().startswith("margin")
    assert page.locator("article.is-worse h4").text_content().startswith("uniform")
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert "signal 0.400" in page.locator("article", has_text="proposed by the diagnostic").text_content()


def test_states_are_chosen_by_list_by_buttons_and_by_keys(page):
    head = page.locator("#state h2")
    assert head.text_content() == "mini on sort: sort-1, state 0"
    page.get_by_role("button", name="sort-2, state 3").click()
    assert head.text_content() == "mini on sort: sort-2, state 3"
    assert page.get_by_role("button", name="sort-2, state 3").get_attribute("aria-current") == "true"
    page.keyboard.press("ArrowRight")
    assert head.text_content() == "mini on sort: sort-1, state 0"
    page.keyboard.press("ArrowLeft")
    assert head.text_content() == "mini on sort: sort-2, state 3"
    page.get_by_label("Next state").click()
    assert page.locator(".state-bar output").text_content() == "state 1 of 2"
    # The button is still there to be pressed again.
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Next state"
