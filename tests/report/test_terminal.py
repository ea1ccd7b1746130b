"""The view of canvases as they fill in."""

import io

import pytest
from rich.console import Console

from unmask.catalog import load
from unmask.report.terminal import REMASKED, Watch, settings_line


@pytest.fixture(scope="module")
def model():
    return load("exact")


def watched(model, terminal, **options):
    """What a console received, and the styled lines of every step."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    frames = []
    with Watch(model.codec, console) as watch:

        def on_step(traj):
            watch(traj)
            frames.append({row: line.copy() for row, line in watch._lines.items()})

        out = model.generate(on_step=on_step, **options)
    return console.file.getvalue(), frames, out


def styles(line):
    return [next((str(s.style) for s in line.spans if s.start <= at < s.end), "") for at in range(len(line))]


def test_lines_follow_the_run(model):
    _, frames, out = watched(model, True, prompt=["a", "bc"], steps=3)
    for step, (frame, seen) in enumerate(zip(frames, out.trajectory.steps, strict=True)):
        for row, line in frame.items():
            after = out.trajectory.row(row)
            canvas = list(after.canvases())[step + 1].tolist()
            assert line.plain == model.codec.decode(canvas)
            new = [at for at, style in enumerate(styles(line)) if style.startswith("black on") and style != REMASKED]
            assert new == seen.revealed_BL[row].nonzero().flatten().tolist()


def test_remasked_positions_are_marked(model):
    _, frames, out = watched(model, True, prompt="c", policy="revised", steps=7)
    seen = [step.remasked_BL[0] & ~step.revealed_BL[0] for step in out.trajectory.steps]
    assert any(bool(marks.any()) for marks in seen)
    for frame, marks in zip(frames, seen, strict=True):
        marked = [at for at, style in enumerate(styles(frame[0])) if style == REMASKED]
        assert marked == marks.nonzero().flatten().tolist()


def test_finished_rows_keep_their_last_line(model):
    _, frames, out = watched(model, True, prompt=["a", "dcba"], max_new_tokens=4, policy="wino", block_length=4)
    assert [frames[-1][row].plain for row in (0, 1)] == list(out.canvases)


def test_terminal_is_redrawn(model):
    text, _, out = watched(model, True, prompt="a", steps=2)
    assert "\x1b[" in text
    assert f"forwards {out.forwards}" in text


def test_plain_lines_elsewhere(model):
    text, _, out = watched(model, False, prompt="a", steps=2)
    lines = text.splitlines()
    assert "\x1b" not in text
    assert len(lines) == 2
    assert out.canvases[0] in lines[-1]
    assert "+3" in lines[-1]


def test_settings_line():
    part = {"a": None, "b": True, "c": [0.5, 1], "d": {"name": "x", "e": "y"}, "f": {"g": 1}}
    assert settings_line(part) == "a=none b=true c=[0.5,1] d=x d.e=y f.g=1"
