"""The page of a run: its grid, its keys, play, and odd text."""

import pytest

from unmask.report.pages import RUN_MODULES, page, run_page

ODD = "</script><img src=x onerror='window.hurt=1'>\u202e\u2028"


def record(positions=9, steps=6, given=2):
    """A run that fills from the left, re-opens its second position once, and follows a gate."""
    made = []
    for number in range(1, steps + 1):
        at = given + number - 1
        changes = [[at, ODD if number == 1 else f" w{number}", 1 - number / (steps + 2)]] if at < positions else []
        if number == 3:
            changes.append([given, None, None])
        if number == 4:
            changes.append([given, "back", None])
        open_ = None if number == 1 else number % 2 == 0
        signal = None if number == 1 else number / 10
        made.append(
            {
                "step": number,
                "changes": changes,
                "policy": "selective" if number < 5 else "<b>other</b>",
                "why": f"region: the gate {'opened' if open_ else 'stayed shut'}" if number > 1 else "",
                "signal": signal,
                "threshold": None if signal is None else 0.35,
                "open": open_,
                "top": {str(at): [["<i>", 0.5], ["b", 0.25]]},
            }
        )
    last = positions - 1
    made[-1]["changes"].append([last, "<|end|>", 0.99])
    return {
        "format": 1,
        "model": "<b>model</b>",
        "policy": "selective",
        "prompt": ODD,
        "text": "w1 w2",
        "score": 0.5,
        "explanation": "half <right>",
        "tokens": ["a"] * given + [None] * (positions - given),
        "fixed": [True] * given + [False] * (positions - given),
        "filler": [False] * last + [True],
        "steps": made,
    }


@pytest.fixture
def run(tab, tmp_path):
    """A tab with the page of that run."""
    place = tmp_path / "run.html"
    place.write_text(run_page(record()), encoding="utf-8")
    tab.goto(place.as_uri())
    return tab


def at(tab):
    return tab.text_content(".run-bar output")


def ink(tab, x, y):
    """The colour of a point of the grid, in the canvas's own pixels."""
    return tab.evaluate(
        "([x, y]) => [...document.querySelector('.run-canvas').getContext('2d').getImageData(x, y, 1, 1).data]", [x, y]
    )


def test_odd_text_stays_text(run):
    assert run.evaluate("window.hurt") is None
    assert run.locator("img").count() == 0
    run.locator(".run-bar input").fill("1")
    assert run.text_content(".run-state").startswith(ODD)
    run.locator(".run-bar input").fill("5")
    assert "<b>other</b> acted" in run.text_content(".run-why")
    assert run.text_content("h1") == "<b>model</b> decoded by selective"


def test_the_keyboard_moves_through_steps_and_positions(run):
    grid = run.locator(".run-view")
    grid.focus()
    for key, place in (("Home", 0), ("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("PageDown", 6), ("Home", 0)):
        run.keyboard.press(key)
        assert at(run) == f"step {place} of 6"
    run.keyboard.press("ArrowDown")
    run.keyboard.press("ArrowRight")
    assert "Position 2: " in run.text_content(".run-cell")
    assert "filled in step 1, confidence 0.875" in run.text_content(".run-cell")
    assert 'most probable there: "<i>" 0.5, "b" 0.25' in run.text_content(".run-cell")
    run.keyboard.press("ArrowRight")
    assert run.text_content(".run-cell").startswith("Position 3: masked")


def test_play_goes_to_the_end_and_pauses(run):
    # Time stands still but for what is said here, however slow the machine is.
    run.clock.install(time=0)
    run.clock.pause_at(1000)
    run.get_by_label("First step").click()
    run.get_by_label("Play", exact=True).click()
    run.clock.run_for(800)
    assert at(run) == "step 2 of 6"
    run.get_by_label("Pause").click()
    run.clock.run_for(2000)
    assert at(run) == "step 2 of 6"
    run.locator(".run-view").focus()
    run.keyboard.press(" ")
    run.clock.run_for(5000)
    assert at(run) == "step 6 of 6"
    assert run.get_by_label("Play", exact=True).count() == 1


@pytest.fixture
def grid(tab, tmp_path):
    """A page of one's own around the grid of a run that goes on: nobody knows its last canvas."""
    script = (
        "window.grid = drawRun(document.querySelector('div'), readData('run'),"
        " {onPick: (step, position) => { window.picked = [step, position]; }});"
    )
    begun = {**record(), "filler": [False] * 9, "fillers": ["<|end|>"]}
    place = tmp_path / "own.html"
    text = page("own", "<div></div>", styles=["grid.css"], modules=RUN_MODULES, start=script, data={"run": begun})
    place.write_text(text, "utf-8")
    tab.goto(place.as_uri())
    return tab


def test_steps_are_added_as_they_happen(grid):
    assert grid.text_content(".run-state .filler") == "∎"
    grid.evaluate("grid.show(2)")
    said = {"policy": "hand", "why": "", "signal": None, "threshold": None, "open": None}
    grid.evaluate("(step) => grid.add(step)", {"step": 7, "changes": [[3, "new", 0.95]], **said})
    assert at(grid) == "step 2 of 7"
    assert "hand" in grid.text_content(".run-legend")
    grid.evaluate("grid.show(7)")
    assert "hand acted and filled 1 position." in grid.text_content(".run-why")
    # Who is at the end stays there.
    grid.evaluate("(step) => grid.add(step)", {"step": 8, "changes": [], **said})
    assert at(grid) == "step 8 of 8"


def test_a_long_run_draws_only_what_is_in_sight(tab, tmp_path):
    place = tmp_path / "long.html"
    place.write_text(run_page(record(positions=256 + 4, steps=128, given=4)), encoding="utf-8")
    tab.goto(place.as_uri())
    size = tab.evaluate("(({width, height}) => [width, height])(document.querySelector('.run-canvas'))")
    assert max(size) <= 1280
    reach = "(({scrollWidth, scrollHeight}) => [scrollWidth, scrollHeight])(document.querySelector('.run-view'))"
    assert tab.evaluate(reach)[1] >= 128 * 20
    tab.evaluate("document.querySelector('.run-view').scrollTo(0, 100 * 20)")
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    # The second column is filled by then, with the colour of the sure.
    red, _, blue, _ = ink(tab, 140, 37)
    assert blue > red
    assert tab.evaluate("document.querySelectorAll('*').length") < 1000
