"""Canvases as they fill in, and standard streams that cannot hold every character."""

import io
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import rich.console
import torch
from rich.cells import cell_len

from unmask.api.load import load
from unmask.cli.terminal import (
    CELL_WIDTH,
    PLAIN_SIGNS,
    REMASKED_STYLE,
    DecodeScreen,
    prepare_streams,
    print_json,
    print_text,
    spell_settings,
    split_filled_text,
)
from unmask.core import State


@pytest.fixture(scope="module")
def model():
    return load("exact")


def watched(model, terminal, **options):
    """What a console received, and the styled lines of every step."""
    console = rich.console.Console(file=io.StringIO(), force_terminal=terminal, width=100)
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
            new = [
                at for at, style in enumerate(styles(line)) if style.startswith("black on") and style != REMASKED_STYLE
            ]
            assert new == seen.revealed_BL[row].nonzero().flatten().tolist()


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


class Chatty:
    """A codec as LLaDA's: a long mask sign, a line break, a wide sign, an escape, and a word for the end of a text."""

    mask, closing = "<|mdm_mask|>", ()
    words = ("\n", "[/b]", "c", " opposite", mask, "<|endoftext|>", "漢字漢字", "\x1b[2J")

    def decode(self, tokens):
        return "".join(self.words[token] for token in tokens)


def after_a_step(prompt, blanks, rows=1, last=(0, 1), prompts=()):
    """A watch on 80 x 24 whose rows had their last two tokens revealed, and row 0 as a plain line."""
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, width=80, height=24, color_system=None)
    state = State.from_canvases(
        [[*[2] * prompt, *[4] * blanks]] * rows,
        steps=blanks,
        mask_id=4,
        given=[[True] * prompt + [False] * blanks] * rows,
    )
    watch = DecodeScreen(Chatty(), console, prompts=prompts, fillers=[5])
    new_BL = torch.zeros_like(state.tokens_BL, dtype=torch.bool)
    new_BL[:, -2:] = True
    tokens_BL = state.tokens_BL.clone()
    tokens_BL[:, -2:] = torch.tensor(last)
    after = replace(state, tokens_BL=tokens_BL)
    watch._forwards = dict.fromkeys(range(rows), 1)
    step = SimpleNamespace(revealed_BL=new_BL, remasked_BL=~new_BL & False, confidence_BL=new_BL.float())
    watch._lines = {row: watch._draw_row(after, row, row, step) for row in range(rows)}
    return watch, watch._plain_line(step, 0, 0)


def cells(watch, row=0):
    """The cells of a row: each as wide as all others, wherever the line is cut."""
    text = watch._lines[row].plain
    assert cell_len(text) % CELL_WIDTH == 0
    found, rest = [], text
    while rest:
        size = next(n for n in range(1, len(rest) + 1) if cell_len(rest[:n]) == CELL_WIDTH)
        found.append(rest[:size])
        rest = rest[size:]
    return found


def test_every_position_is_one_cell_and_stays_where_it_is():
    before = cells(after_a_step(prompt=3, blanks=6, last=(4, 4))[0])
    words = ["\n", "[/b]", "c", " opposite", "<|endoftext|>", "漢字漢字", "\x1b[2J"]
    shown = ["↵", "[/b]", "c", " oppo…", "·", "漢字…", "�[2J"]
    for token, text in zip([0, 1, 2, 3, 5, 6, 7], shown, strict=True):
        watch, plain = after_a_step(prompt=3, blanks=6, last=(token, 4))
        now = cells(watch)
        assert now[-2].rstrip() == text, words
        assert now[:-2] == before[:-2] == [*["c".ljust(CELL_WIDTH)] * 3, *["░".ljust(CELL_WIDTH)] * 4]
        assert plain.startswith("step   0  row  0  c      c      c      ░ ")
        assert not {"\n", "\x1b"} & set(plain)


def test_a_prompt_is_shown_as_it_was_typed():
    """Not the tokens that a chat template made of it."""
    watch, plain = after_a_step(prompt=500, blanks=6, prompts=["What\nnow?\x1b[2J"])
    assert len(cells(watch)) == 6
    assert "c      c" not in plain
    head, *rest = [line.plain for line in watch._numbered_rows(10)]
    assert head == "  0  What↵now?�[2J"
    assert rest[0].startswith("     ░      ░      ░      ░      ↵      [/b]")


def test_a_pipe_has_the_prompt_once(model):
    console = rich.console.Console(file=io.StringIO(), width=100)
    with DecodeScreen(model.codec, console, prompts=["a", "bc"]) as watch:
        model.generate(["a", "bc"], on_step=watch, steps=3)
    lines = console.file.getvalue().splitlines()
    assert lines[:2] == ["prompt    row  0  a", "prompt    row  1  bc"]
    assert len(lines) == 2 + 2 * 3


def test_parts_of_a_text_are_those_that_were_filled_in(model):
    out = model.infill("a__b_", steps=2)
    free = out.trajectory.state.answer_BL[0].tolist()
    parts = split_filled_text(model.codec, out.tokens[0], free)
    assert "".join(text for text, _ in parts) == out.text
    assert [new for _, new in parts] == [False, True, False, True]
    assert [len(text) for text, _ in parts] == [1, 2, 1, 1]


@pytest.mark.parametrize(("blanks", "rows"), [(32, 1), (5000, 1), (2000, 3)])
def test_the_end_of_the_answer_is_on_a_small_screen(blanks, rows):
    watch, _ = after_a_step(prompt=500, blanks=blanks, rows=rows)
    with watch:
        watch._refresh()
        height = len(watch.console.render_lines(watch._live.renderable))
    text = watch.console.file.getvalue()
    assert text.count("↵      [/b]") >= rows
    assert height <= 24


def test_spell_settings():
    part = {"a": None, "b": True, "c": [0.5, 1], "d": {"name": "x", "e": "y"}, "f": {"g": 1}}
    assert spell_settings(part) == "a=none b=true c=[0.5,1] d=x d.e=y f.g=1"


# Standard streams that hold few characters, or none


def stdout(monkeypatch, encoding="ascii", errors="strict"):
    """Standard output of another kind; call it for what was written."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=errors)
    monkeypatch.setattr(sys, "stdout", stream)

    def written():
        stream.flush()
        return raw.getvalue().decode(encoding)

    return written


def test_signs_of_ours_become_plain_ones_and_the_rest_numbers(monkeypatch):
    written = stdout(monkeypatch)
    prepare_streams()
    print_text("1.000↑ 0.5↓ é 模 😀 \ud800")
    assert written() == "1.000^ 0.5v \\xe9 \\u6a21 \\U0001f600 \\ud800\n"
    assert all(plain.isascii() for plain in PLAIN_SIGNS.values())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "utf-16"])
def test_json_stays_json(monkeypatch, encoding):
    written = stdout(monkeypatch, encoding)
    prepare_streams()
    value = {"é模": '😀 ↑ " \\ \n', "half": "\ud800"}
    print_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(written()) == value


def test_streams_that_are_closed_are_nowhere(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    prepare_streams()
    with sys.stdout, sys.stderr:
        print_text("anything")
        print("anything", file=sys.stderr, flush=True)
