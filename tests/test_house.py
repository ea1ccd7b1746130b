"""What keeps the code readable: sizes, names, and words that have one home."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.helpers.paths import DOCS, SRC, TESTS
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


TENSORS = {"core", "axes", "mechanisms", "transition.py", "decode.py", "denoisers", "checkpoints", "policies"}
TENSORS |= {"runner.py", "past.py", "recorded.py"}
TENSORS |= {"diagnostics", "train", "lab/branch"}
TABLES = {"stats", "lab/analysis", "lab/store"}
SHAPED = re.compile(r"_?[a-z][a-z0-9_]*_([A-Z0-9]+)_?")


def documented_letters() -> tuple[set[str], set[str]]:
    """The letters with a meaning among tensors and in tables, from the one list of them."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z](?:, [A-Z])*) \|(.*)\|(.*)\|$", text, re.MULTILINE)
    named = [(set(letters.split(", ")), among.strip(), inside.strip()) for letters, among, inside in rows]
    listed = [letter for letters, _, _ in named for letter in letters]
    assert len(listed) == len(set(listed))
    tensors = {letter for letters, among, _ in named if among for letter in letters}
    return tensors, {letter for letters, _, inside in named if inside for letter in letters}


def used_letters(tree: ast.AST) -> set[str]:
    """Letters of the axes that names of arguments, variables and attributes end in."""
    names = {getattr(node, field, None) for node in ast.walk(tree) for field in ("id", "arg", "attr")}
    shapes = (SHAPED.fullmatch(name) for name in names if name)
    return {letter for shape in shapes if shape for letter in shape[1] if letter.isalpha()}


def test_a_shape_letter_is_in_the_list_and_the_list_in_use():
    tensors, tables = documented_letters()
    used: dict[str, set[str]] = {"tensors": set(), "tables": set()}
    for path, tree in TREES.items():
        rooms = {path.parts[0], "/".join(path.parts[:2])}
        letters = used_letters(tree)
        assert letters <= tensors | tables, path
        for name, domain in (("tensors", TENSORS), ("tables", TABLES)):
            if rooms & domain:
                used[name] |= letters
    assert used == {"tensors": tensors, "tables": tables}


def test_every_equation_names_tests_that_exist():
    """docs/maths.md: tests by name, and all equations of the diagnostics."""
    text = (DOCS / "maths.md").read_text(encoding="utf-8")
    defined = {name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = set(re.findall(r"\b(test_\w+)(?!\w|\.py)", text)) - {path.stem for path in TESTS.rglob("test_*.py")}
    assert len(named) > 50
    assert not named - defined
    labels = re.findall(
        r"`(eq:\w+)`", "".join(path.read_text() for path in (SRC / "unmask" / "diagnostics").glob("*.py"))
    )
    assert not {label for label in labels if f"`{label}`" not in text}
