"""The explorer as somebody uses it: from a prompt to a branch that changes the score."""

import re

import pytest

from tests.helpers.view_server import exact, mini, serving

ODD = "</pre><script>window.hurt = 1</script><img src=x onerror='window.hurt=1'>\u202e\U0001f600\u2028 two words"


@pytest.fixture(scope="module")
def client(view_study):
    with serving({"mini": mini(), "exact": exact()}, view_study) as client:
        yield client


@pytest.fixture
def opened(tab, client):
    tab.set_default_timeout(30_000)
    tab.goto(client.server.address)
    tab.wait_for_selector("button.pick")
    return tab


def score(text):
    return float(re.search(r"score ([\d.]+)", text)[1])


def own_prompt(page, prompt, **fields):
    page.get_by_role("tab", name="Your own prompt").click()
    form = page.locator("form", has=page.locator("#own-prompt"))
    for label, value in fields.items():
        box = form.get_by_label(label.replace("_", " "), exact=True)
        (box.select_option if label == "Model" else box.fill)(value)
    page.fill("#own-prompt", prompt)
    form.get_by_role("button", name="Decode and watch").click()
    page.wait_for_selector("#branching:not([hidden])")


def pick_masked_cell(page, step):
    """Choose the first masked position of a row of the grid with the keyboard, and return it."""
    page.locator("#grid .run-view").focus()
    page.keyboard.press("Home")
    for _ in range(step):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    while not (words := page.inner_text("#grid .run-cell")).endswith("masked"):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    return int(re.search(r"Position (\d+)", words)[1])


def test_a_prompt_of_a_task_a_branch_and_another_score(opened):
    opened.get_by_role("tab", name="A task").click()
    panel = opened.locator("[role=tabpanel]:not([hidden])")
    panel.get_by_label("Task", exact=True).select_option("unique-list-commit")
    panel.get_by_label("Steps").fill("6")
    panel.locator("tr", has_text="unique-list-commit-v").nth(2).get_by_role("button").click()
    opened.wait_for_selector("#branching:not([hidden])")
    before = score(opened.inner_text("#outcome .score"))
    opened.get_by_role("button", name="First step").first.click()
    opened.select_option("#instead", label="cardinality: share:1.0")
    opened.get_by_role("button", name="Branch", exact=True).click()
    opened.wait_for_selector(".verdict.better, .verdict.worse, .verdict.same")
    after = [score(text) for text in opened.locator(".future .score").all_inner_texts()]
    assert after[0] == before
    assert after[1] != before
    assert f"{before:.3g}" in opened.inner_text("#verdict")
    assert opened.locator(".future mark").count() > 0


def test_odd_prompts_stay_text_and_have_no_score_and_a_token_by_hand_changes_them(opened):
    own_prompt(opened, ODD, New_tokens="6", Steps="3")
    assert opened.text_content("#prompt") == ODD
    assert "no score" in opened.inner_text("#outcome .score")
    place = pick_masked_cell(opened, 1)
    opened.wait_for_selector("#offers button")
    assert opened.input_value("#position") == str(place)
    opened.locator("#offers button").nth(1).click()
    opened.get_by_role("button", name="Branch", exact=True).click()
    opened.wait_for_selector(".verdict.same")
    assert f"by hand at position {place}" in opened.inner_text(".future >> nth=1")
    assert opened.evaluate("window.hurt") is None


def test_it_plays_and_stops_and_a_branch_is_branched_again(opened):
    own_prompt(opened, "ab", Model="exact", Steps="6")
    bar = opened.locator("#grid .run-bar")
    bar.get_by_role("button", name="First step").click()
    bar.get_by_role("button", name="Play").click()
    bar.locator("output", has_text=re.compile("step [2-5] of")).wait_for()
    bar.get_by_role("button", name="Pause").click()
    step = int(bar.locator("input").input_value())
    assert f"after {step} of 6 steps" in opened.inner_text("#where")
    opened.select_option("#instead", label="dream")
    opened.select_option("#span", "rest")
    opened.get_by_role("button", name="Branch", exact=True).click()
    opened.get_by_role("button", name="Go on from this branch").click()
    assert f"dream from step {step + 1} on" in opened.inner_text("#outcome .score")
    bar.get_by_role("button", name="Last step").click()
    assert opened.get_by_role("button", name="Branch", exact=True).is_disabled()


def test_a_copy_opens_without_the_server(tab, tmp_path):
    with serving() as client:
        tab.goto(client.server.address)
        tab.wait_for_selector("button.pick")
        own_prompt(tab, "ab")
        tab.select_option("#instead", label="dream")
        tab.get_by_role("button", name="First step").first.click()
        tab.get_by_role("button", name="Branch", exact=True).click()
        with tab.expect_download() as saved:
            tab.get_by_role("button", name="Save a read-only copy of both").click()
        copy = tmp_path / "copy.html"
        saved.value.save_as(copy)
        tab.goto("about:blank")
    tab.goto(copy.as_uri())
    assert tab.locator(".future canvas").count() == 2
    assert tab.locator(".future .run-bar").first.get_by_role("button", name="Play").is_visible()
    assert "A read-only copy" in tab.inner_text("footer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_has_names_and_no_sideways_scroll(opened, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": 360, "height": 800})
    own_prompt(opened, "ab", Model="exact")
    pick_masked_cell(opened, 1)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360
    nameless = opened.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea")].filter((one) => one.checkVisibility() &&
        !(one.labels && one.labels.length) && !one.getAttribute("aria-label") && !one.textContent.trim()).length"""
    )
    assert nameless == 0
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement !== document.body")
