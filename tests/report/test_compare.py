"""Tables and files of a comparison: within the width of a terminal, signs explained, the own method labelled."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.helpers.made_comparison import made, timed
from unmask.lab.compare.summary import summarise, summarise_speed
from unmask.methods import RECONSTRUCTION
from unmask.report.compare import LABEL_LEGENDS, latex, remarks, screen_tables, sign_legends, write_comparison

NAMES = ["reference", *(f"method:threshold=0.{n}" for n in range(8)), "vsb"]


def shown(tasks, width):
    rows = {f"task-{t}": {name: [0.5, 1.0] for name in NAMES} for t in range(tasks)}
    times = [timed(task, name, 0, 2.0) for task in rows for name in NAMES]
    evaluation = made(rows, times=times, labels={"vsb": "reconstruction"})
    summary = summarise(evaluation, resamples=20)
    console = Console(width=width, record=True, file=io.StringIO())
    tables = screen_tables(summary, summarise_speed(evaluation, summary, resamples=20), width)
    for table in tables:
        console.print(table)
    return tables, console.export_text(), summary


@pytest.mark.parametrize("tasks", [1, 3, 10])
def test_tables_fit_into_100_columns(tasks):
    tables, text, _ = shown(tasks, 100)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    # No cell is broken: every policy has its number of lines, and every column its head.
    for name in NAMES:
        assert sum(line.startswith(name) for line in text.splitlines()) == len(tables)
    for words in ("/fwd", "prompt", "front"):
        assert words in text
    assert text.count("1000.0") == len(NAMES)
    assert len(tables) == (1 if tasks < 4 else 2)


def test_reconstructions_are_marked_and_explained():
    _, text, summary = shown(1, 100)
    assert "vsb†" in text
    assert LABEL_LEGENDS[RECONSTRUCTION] in sign_legends(summary)
    assert LABEL_LEGENDS[RECONSTRUCTION] not in sign_legends(summarise(made({"t": {"reference": [1.0]}}), resamples=5))


def test_settings_that_a_method_is_not_made_for_are_named():
    summary = summarise(made({"t": {"reference": [1.0]}}), resamples=5)
    lines = summary.lines.assign(made_for="temperature 1")
    assert [text for text in remarks(replace(summary, lines=lines)) if "reference is made for temperature 1" in text]


def test_files_for_a_paper_label_the_own_method(tmp_path):
    spent = {"t": {"reference": [8, 8], "lib/mine.py:Mine": [2, 2]}}
    worth = {"t": {"reference": [0.5, 0.7], "lib/mine.py:Mine": [0.4, 0.8]}}
    comparison = made(worth, spent, labels={"lib/mine.py:Mine": "own"})
    summary = summarise(comparison, resamples=20)
    assert r"\textbf{mine.py:Mine*}" in latex(comparison, summary)
    paths = {path.name: path for path in write_comparison(comparison, summary, tmp_path)}
    assert {"table.tex", "figure.svg", "figure.pdf", "compare.html"} <= paths.keys()
    drawn = paths["figure.svg"].read_text(encoding="utf-8")
    assert "mine.py:Mine*" in drawn
    assert "a method of your own" in drawn
