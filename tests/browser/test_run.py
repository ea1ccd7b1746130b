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


def test_everything_is_reached_with_tab_and_has_a_name(run):
    names = []
    for _ in range(8):
        run.keyboard.press("Tab")
        names.append(run.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert names[:6] == ["First step", "Step back", "Play", "Step forward", "Last step", "Step"]
    assert names[6] == "The canvas after this step"
    assert names[7].startswith("Grid of steps and positions")


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


def test_marks_of_gates_re_masks_and_fillers(run):
    assert run.get_attribute(".run-signal", "aria-label").endswith("the gate opened at steps 2, 4, 6.")
    assert run.locator(".run-signal circle.open").count() == 3
    assert run.locator(".run-signal circle.shut").count() == 2
    run.locator(".run-bar input").fill("3")
    assert run.locator(".run-state .again").count() == 1
    run.locator(".run-bar input").fill("6")
    assert run.text_content(".run-state .filler") == "∎"
    assert run.locator(".run-state .new").count() == 1


CONTRASTS = """() => [...document.querySelectorAll('.run-scale i, .run-state, .run-legend, .run-cell')].map((on) => {
  const paint = document.createElement('canvas').getContext('2d');
  const light = (colour) => {
    paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const under = (e) => (/, 0\\)|transparent/.test(getComputedStyle(e).backgroundColor) && e.parentElement
    ? under(e.parentElement) : getComputedStyle(e).backgroundColor);
  const [one, other] = [light(getComputedStyle(on).color), light(under(on))].sort((a, b) => b - a);
  return (one + 0.05) / (other + 0.05);
})"""


def test_text_on_every_strength_can_be_read(run):
    for scheme in ("light", "dark"):
        run.emulate_media(color_scheme=scheme)
        ratios = run.evaluate(CONTRASTS)
        assert len(ratios) == 8
        assert min(ratios) >= 4.5, scheme


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


def test_a_click_picks_a_cell(grid):
    grid.locator(".run-canvas").click(position={"x": 50, "y": 20 + 2 * 20 + 8})
    assert grid.evaluate("window.picked") == [2, 2]


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
