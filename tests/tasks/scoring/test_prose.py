"""Prose told from code by its looks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from unmask.tasks.scoring.prose import is_prose, stretches

PROSE = [
    "Here is the code:",
    "This doubles every number: it's simple.",
    "Note: doubled",
    "Done",
    "Sure!",
    "I cannot do that.",
    "I'm sure, it works",
    "Example: f(2) = 4",
    "Time complexity: O(n)",
    "For example, the list [1, 2] gives 3.",
    "If you call it with 3, it returns 4.",
    "From here on it is easy.",
    "Import the module first.",
    "Class names are free",
    "Explanation - in short",
    "- first, it sorts",
    "* then it adds",
    "1. Sort the list.",
    "2) Add.",
    "> quoted",
    ">>> f(3)",
    "`f` returns 3",
    "**Explanation**",
    "---",
    "\u8fd9\u4e2a\u51fd\u6570\u8fd4\u56de\u4e09\u3002",
    "\u00dcbrigens: das stimmt",
]
CODE = [
    "",
    "    Indented text is never prose.",
    "\tTabs too",
    "import math",
    "imprt math",
    "Import math",
    "Import numpy as np",
    "From math import sqrt",
    "def f(x)",
    "Def f(x):",
    "Class Foo:",
    "class Foo:",
    ")",
    "else:",
    "@cache",
    "# This is a comment.",
    "FACTOR = 2",
    "FACTOR += 2",
    "A, B = 1, 2",
    "A, *B = xs",
    "N: int = 3",
    "CACHE: dict[str, int] = {}",
    "TABLE = [",
    "Foo()",
    "Foo.bar()",
    "Foo[0] = 1",
    "x = 5 and so on",
    "this is lower case",
    "retrun ys",
    "print(3)",
    "\u00e9 = 3",
]


@each_case("line", PROSE)
def test_prose(line):
    assert is_prose(line)


@each_case("line", CODE)
def test_code(line):
    assert not is_prose(line)


@pytest.mark.parametrize(
    "code",
    [
        'x = """\nThis is a string.\n"""',
        'x = """It is \\"""\nThis is still one.\n"""',
        "x = [\nTrue, False,\n]",
        "x = {  # A bracket (in a comment\nNone: 1\n}",
        "x = '('\n# Not open",
    ],
)
def test_inside_strings_and_brackets_there_is_no_prose(code):
    lines = code.split("\n")
    assert stretches([*lines, "This is prose.", "and so on"]) == [lines, ["and so on"]]


def test_stretches_are_what_is_between_prose():
    assert stretches(["Sure:", "", "a = 1", "Then:", "", "", "b = 2", "Done"]) == [["", "a = 1"], ["", "", "b = 2"]]
    assert stretches(["Sure:", "", "Done"]) == []
    assert stretches([]) == []


@given(st.lists(st.text(alphabet="Aa \\\"'()[]#\u00e9=:.-`>", max_size=12), max_size=12))
def test_every_line_is_prose_or_kept(lines):
    kept = [line for stretch in stretches(lines) for line in stretch]
    left = iter(lines)
    assert all(line in left for line in kept)
    assert all(is_prose(line) or not line.strip() for line in set(lines) - set(kept))
