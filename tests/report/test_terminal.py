"""The view of canvases as they fill in."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from unmask.catalog import load
from unmask.core import State
from unmask.report.terminal import REMASKED, DecodeScreen, settings_line


@pytest.fixture(scope="module")
def model():
    return load("exact")


def watched(model, terminal, **options):
    """What a console received, and the styled lines of every step."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    frames = []
    with DecodeScreen(model.codec, console) as watch:

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


def test_a_search_shows_its_best_path_and_the_size_of_its_tree(model):
    told, frames, out = watched(model, False, prompt=["a", "dc"], max_new_tokens=4, policy="soar", threshold=1.0)
    ends = {row: model.codec.decode(out.trajectory.state.tokens_BL[row].tolist()) for row in range(2)}
    lines = told.splitlines()
    for row in range(2):
        last = [line for line in lines if f"row  {row}" in line][-1]
        tree = int(out.trajectory.row(row).steps[-1].action.notes["tree"])
        assert f"(forwards {out.row_forwards[row]}, tree {tree})" in last
        assert frames[-1][row].plain in ends[row]
    assert "tree" not in watched(model, False, prompt="a", policy="llada", steps=3)[0]
    assert "tree" in watched(model, True, prompt="a", policy="medal", steps=3)[0]


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


class Chatty:
    """A codec as LLaDA's: a long mask sign, a line break, and prompts of many lines."""

    mask, closing = "<|mdm_mask|>", ()

    def decode(self, tokens):
        return "".join({4: self.mask, 0: "\n", 1: "[/b]"}.get(token, "abcd"[token % 4]) for token in tokens)


def after_a_step(prompt, blanks, rows=1):
    """A watch on 80 x 24 whose rows had a line break and a tag revealed, and row 0 as a plain line."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, color_system=None)
    state = State.from_canvases(
        [[*[2] * prompt, *[4] * blanks]] * rows,
        steps=blanks,
        mask_id=4,
        given=[[True] * prompt + [False] * blanks] * rows,
    )
    watch = DecodeScreen(Chatty(), console)
    new_BL = torch.zeros_like(state.tokens_BL, dtype=torch.bool)
    new_BL[:, -2:] = True
    tokens_BL = state.tokens_BL.clone()
    tokens_BL[:, -2:] = torch.tensor([0, 1])
    after = replace(state, tokens_BL=tokens_BL)
    watch._forwards = dict.fromkeys(range(rows), 1)
    step = SimpleNamespace(revealed_BL=new_BL, remasked_BL=~new_BL & False, confidence_BL=new_BL.float())
    watch._lines = {row: watch._coloured(after, step, row) for row in range(rows)}
    return watch, watch._plain(after, step, 0, 0)


def test_a_masked_token_is_one_cell_and_a_line_break_a_sign():
    watch, plain = after_a_step(prompt=3, blanks=6)
    assert watch._lines[0].plain == "ccc░░░░↵[/b]"
    assert "ccc░░░░↵[/b]  +2" in plain
    assert "\n" not in plain


def test_a_long_prompt_is_folded_to_its_end():
    watch, plain = after_a_step(prompt=500, blanks=6)
    assert watch._lines[0].plain == "…" + "c" * 59 + "░░░░↵[/b]"
    assert "  …cccc" in plain
    assert plain.index("░░░░↵[/b]") < 100
    assert styles(watch._lines[0])[:60] == ["dim"] * 60
    assert "dim" not in styles(watch._lines[0])[64:]


@pytest.mark.parametrize(("blanks", "rows"), [(32, 1), (5000, 1), (2000, 3)])
def test_the_end_of_the_answer_is_on_a_small_screen(blanks, rows):
    watch, _ = after_a_step(prompt=500, blanks=blanks, rows=rows)
    with watch:
        watch._refresh()
        height = len(watch.console.render_lines(watch._live.renderable))
    text = watch.console.file.getvalue()
    assert text.count("↵[/b]") >= rows
    assert height <= 24


def test_settings_line():
    part = {"a": None, "b": True, "c": [0.5, 1], "d": {"name": "x", "e": "y"}, "f": {"g": 1}}
    assert settings_line(part) == "a=none b=true c=[0.5,1] d=x d.e=y f.g=1"
