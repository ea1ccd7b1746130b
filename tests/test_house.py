"""What keeps the code readable: sizes, names, and words that have one home."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.helpers.paths import SRC
from unmask.axes import AXES

HOME = SRC / "unmask"
FILES = sorted(HOME.rglob("*.py"))
TREES = {path.relative_to(HOME): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
LONGEST_FUNCTION, LONGEST_FILE = 60, 450


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path}:{node.lineno} {node.name}, {lines} lines"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert not long


def test_no_file_is_longer_than_one_reads_at_once():
    lengths = {path: len((HOME / path).read_text(encoding="utf-8").splitlines()) for path in TREES}
    assert not {path: n for path, n in lengths.items() if n > LONGEST_FILE and "words" not in path.parts}
    engine = {path: n for path, n in lengths.items() if path.parts[:2] == ("lab", "branch")}
    assert engine
    assert max(engine.values()) <= 300


def test_no_two_classes_share_a_name():
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{path}:{node.lineno}")
    assert not {name: places for name, places in homes.items() if len(places) > 1}


def literals(tree: ast.AST) -> set[str]:
    """Texts in the code, docstrings and messages apart: those are longer than a name."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize("axis", [axis for axis in AXES if axis != "score"])
def test_an_axis_is_spelt_in_its_own_rooms_only(axis):
    """`score` is a common word; the others are names of axes wherever they stand alone."""
    # A diagnostic has a name of its own, an action has fields, a method has a row in the paper's taxonomy.
    rooms = {"axes", "diagnostics"}
    files = {Path("transition.py")}
    assert not [
        str(path)
        for path, tree in TREES.items()
        if axis in literals(tree) and path.parts[0] not in rooms and path not in files
    ]
