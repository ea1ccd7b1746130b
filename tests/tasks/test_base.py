"""Examples, hashes and the table of tasks."""

import ast
import os
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import UnknownName
from unmask.tasks import CONTROLS, LEVELS, SPLITS, TASKS, Draft, Example, examples, find, listing, show
from unmask.tasks.base import canonical, digest

PAPER = {
    "CSV Missing Cells": (16, "constructed", "one cell", "binary"),
    "HumanEval": (256, "official", "Python completion", "test pass"),
    "Multi-Span Cloze": (64, "constructed", "indexed spans", "partial"),
    "GSM8K": (256, "official", "numeric answer", "binary"),
    "Carry RTL": (32, "constructed", "three carry bits", "partial"),
    "TD07 Sparse Mask": (48, "constructed", "three spans", "partial"),
    "JSON Mode Eval": (128, "public", "schema JSON", "field credit"),
    "Constrained JSON Fill": (96, "constructed", "constrained JSON", "partial"),
    "Unique List Commit": (48, "constructed", "ordered list", "partial"),
    "HTML Close Tags": (48, "constructed", "closing-tag suffix", "exact/partial"),
}
CONSTRUCTED = [name for name, task in {**TASKS, **CONTROLS}.items() if task.generator]


def test_table_is_the_papers():
    table = {t.title: (t.horizon, t.source, t.output, t.utility) for t in TASKS.values()}
    assert table == PAPER
    assert list(table) == list(PAPER)


def test_table_in_tex_agrees(shared):
    tex = (shared / "paper.tex").read_text(encoding="utf-8")
    tex = tex[tex.index(r"\label{tab:task_details}") :]
    tex = tex[: tex.index(r"\end{table}")]
    rows = [[cell.strip() for cell in row.split("&")] for row in tex.split(r"\\") if row.count("&") == 4]
    rows = [[re.sub(r"^\\midrule\s*", "", row[0]), *row[1:]] for row in rows if "Horizon" not in row[1]]
    assert [(t.title, str(t.horizon), t.source, t.output, t.utility) for t in TASKS.values()] == [
        tuple(row) for row in rows
    ]


def test_listing():
    rows = listing()
    assert [row["name"] for row in rows] == [*TASKS, *CONTROLS]
    assert [row["name"] for row in rows if row["control"]] == list(CONTROLS)
    named = {"name", "title", "horizon", "source", "output", "utility", "counts", "version", "control"}
    assert rows[0].keys() == named
    canonical(rows)
    counts = {row["name"]: row["counts"] for row in rows}
    assert counts["json-mode-eval"]["evaluation"] == 68
    for name in CONSTRUCTED:
        assert find(name).counts["evaluation"] >= 100
        assert find(name).counts["validation"] >= 50


def test_every_task_has_a_judge():
    for task in (*TASKS.values(), *CONTROLS.values()):
        assert callable(task.judge.one), task.name
        assert task.utility == task.judge.name


def test_only_its_own_file_names_a_task():
    """Everybody else asks the task; a literal would not follow when a task is renamed or a new one takes its part."""
    home = Path(__import__("unmask").__file__).parent
    names = {*TASKS, *CONTROLS}
    places: dict[str, set[str]] = {name: set() for name in names}
    for path in home.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if any(name in source for name in names) else ():
            if isinstance(node, ast.Constant) and node.value in names:
                places[node.value].add(str(path.relative_to(home)))
    assert all(len(files) == 1 for files in places.values()), places
    assert all(file.startswith(("tasks/constructed/", "tasks/official/")) for (file,) in places.values()), places


def test_unknown_names():
    with pytest.raises(UnknownName, match="did you mean carry-rtl"):
        find("carry-rt")
    with pytest.raises(UnknownName, match="unknown split 'test'; known: development, evaluation, validation"):
        show("carry-rtl", 1, "test")


@each_case("name", CONSTRUCTED)
def test_examples_are_what_a_draft_promises(name):
    assert all(1 <= e.level <= 4 for split in SPLITS for e in examples(name, split))
    assert {e.level for e in examples(name, "evaluation")} == set(LEVELS)
    for e in show(name, 20):
        assert "<answer>" in e.prompt
        assert "</answer>" in e.prompt
        assert e.parts
        assert all(isinstance(part, str) for part in e.parts)
        canonical(e.constraints)
        # What a reader of the answer would trip over.
        assert e.target == e.target.strip()
        assert "answer>" not in e.target


def test_example_is_a_frozen_draft():
    assert [f.name for f in fields(Example)] == [f.name for f in fields(Draft)] + ["id", "task", "split"]
    with pytest.raises(FrozenInstanceError):
        show("carry-rtl", 1)[0].target = "x"  # type: ignore[misc]


def test_canonical_is_one_spelling():
    assert canonical({"b": [1, 2.5], "a": "é"}) == r'{"a":"\u00e9","b":[1,2.5]}'
    with pytest.raises(ValueError, match="JSON"):
        canonical(float("nan"))


def test_digest_keeps_parts_apart():
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a") == digest("a")
    assert len(digest()) == 32


def test_no_data_file_in_the_package():
    home = os.path.dirname(__import__("unmask").__file__)
    kinds = {os.path.splitext(f)[1] for _, _, files in os.walk(os.path.join(home, "tasks")) for f in files}
    assert kinds <= {".py", ".pyc"}
