"""Python code in what a model wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from unmask.tasks.code_answers import CODE_LIMIT, find_code_stretches, find_completion, is_prose
from unmask.tasks.task import TEXT_LIMIT

HEAD = 'import math\n\n\ndef double_all(xs):\n    """Double every number."""\n'
BODY = "    ys = []\n    for x in xs:\n        ys.append(2 * x)\n\n    return ys\n"
FLAT = "ys = []\nfor x in xs:\n    ys.append(2 * x)\n\nreturn ys\n"
PROSE = "This doubles every number: it's simple.\n"


def result(text: str) -> list[int]:
    """What the completed function makes of [1, 2]."""
    completion = find_completion(text, HEAD, "double_all")
    namespace: dict = {}
    exec(HEAD + completion.normalised, namespace)
    return namespace["double_all"]([1, 2])


BODIES = {
    "as asked": BODY,
    "stripped": BODY.strip(),
    "at the margin": FLAT,
    "two spaces": BODY.replace("    ", "  "),
    "tabs": BODY.replace("    ", "\t"),
    "indented twice": BODY.replace("\n    ", "\n        ").replace("    ys = []", "        ys = []", 1),
    "windows": BODY.replace("\n", "\r\n"),
    "empty lines first": "\n\n" + BODY,
    "one line": "    return [2 * x for x in xs]",
    "one line at the margin": "return [2 * x for x in xs]",
    "bracket at the margin": "    return [\n2 * x for x in xs\n]\n",
    "string at the margin": '    note = """\nnothing: here\n"""\n' + BODY,
    "prose after": BODY + "\n" + PROSE,
    "prose at once": BODY.rstrip("\n") + "\n" + PROSE,
    "prose after the margin": FLAT + "\n" + PROSE,
    "prose before": "Here is the body:\n\n" + BODY,
    "prose around": "Here is the body:\n" + BODY + PROSE,
    "words that parse": BODY + "\nNote: doubled\nDone\n",
    "helper after": "    return [twice(x) for x in xs]\n\n\ndef twice(x):\n    return 2 * x\n",
    "helper after the margin": "return [twice(x) for x in xs]\n\n\ndef twice(x):\n    return 2 * x\n",
    "main": BODY + '\n\nif __name__ == "__main__":\n    print(input())\n',
    "doctest": BODY + "\n>>> double_all([1])\n[2]\n",
    "fence": f"```python\n{BODY}```",
    "fence and prose": f"Sure!\n```py\n{BODY}```\n{PROSE}",
    "tildes": f"~~~\n{BODY}~~~",
    "open fence": f"Sure:\n```python\n{BODY}",
    "closing fence only": f"{BODY}```\n{PROSE}",
    "answer tag": f"I think so. <answer>{BODY}</answer> Yes.",
    "answer tag and fence": f"<answer>\n```python\n{BODY}```\n</answer>",
    "open answer tag": f"<answer>\n{BODY}",
}
WHOLES = {
    "again": HEAD + BODY,
    "signature": "def double_all(xs):\n" + BODY,
    "prose around": "Here it is:\n\n" + HEAD + BODY + "\n" + PROSE,
    "fence": f"Sure!\n\n```python\n{HEAD}{BODY}```\n\n{PROSE}",
    "second fence": f"```\nprint(1)\n```\nbetter:\n```python\n{HEAD}{BODY}```",
    "correction": f"```python\n{HEAD}    return xs\n```\nNo:\n```python\n{HEAD}{BODY}```",
    "indented": "".join(f"    {line}\n" for line in (HEAD + BODY).split("\n")),
    "helper before": "def twice(x):\n    return 2 * x\n\ndef double_all(xs):\n    return [twice(x) for x in xs]\n",
    "own import": "from itertools import repeat\n\ndef double_all(xs):\n    return [sum(repeat(x, 2)) for x in xs]\n",
    "example of use": HEAD + BODY + "\n# Example\nprint(double_all([3]))\n",
    "table": "FACTOR = 2\ndef double_all(xs):\n    return [FACTOR * x for x in xs]\n",
}


@each_case("text", BODIES.values(), ids=BODIES)
def test_a_body_completes_the_function_in_any_dress(text):
    assert result(text) == [2, 4]


@each_case("text", WHOLES.values(), ids=WHOLES)
def test_a_whole_function_replaces_the_head(text):
    assert result(text) == [2, 4]


BROKEN = {
    "no colon": "def double_all(xs)\n    return [2 * x for x in xs]\n",
    "no colon under the head": HEAD.replace("(xs):", "(xs)") + BODY,
    "bracket left open": "def double_all(xs:\n" + BODY,
    "no def": "df double_all(xs):\n    return [2 * x for x in xs]\n",
    "import misspelt": "imprt collections\n" + HEAD + BODY,
    "Import spelt large": "Import collections\n" + HEAD + BODY,
    "from misspelt": "fro math import sqrt\n" + HEAD + BODY,
    "Def spelt large": "Def double_all(xs):\n    return [2 * x for x in xs]\n",
    "stray bracket after the body": BODY + ")\n",
    "stray bracket after the function": HEAD + BODY + "\n)\n",
    "stray bracket before": ")\n" + HEAD + BODY,
    "stray else": BODY + "else:\n    pass\n",
    "else without a block": HEAD + BODY + "else:\n",
    "cut short": BODY + "\n\ndef twice(x):\n    return (2 *\n",
    "example cut short": HEAD + BODY + "\nprint(double_all([1, 2]\n",
    "first line too deep": "      ys = []\n" + BODY,
    "body at the margin of its function": "def double_all(xs):\nreturn [2 * x for x in xs]\n",
    "words in lower case": BODY + "\nthis doubles every number\n",
    "prose that begins as code does": "x = 5 and so on:\n\n" + HEAD + BODY,
    "prose with a keyword": "def me a favour and read this:\n\n" + HEAD + BODY,
}
WRAPPINGS = {
    "alone": "{}",
    "prose before": "Here is the code:\n\n{}",
    "prose after": "{}\n\nThis doubles every number: it's simple.\n",
    "fence": "Sure!\n```python\n{}\n```\nThat is all.",
    "open fence": "Sure!\n```python\n{}",
    "answer tag": "<answer>\n{}\n</answer>",
}


@each_case("wrapping", WRAPPINGS.values(), ids=WRAPPINGS)
@each_case("text", BROKEN.values(), ids=BROKEN)
def test_broken_code_is_not_repaired(text, wrapping):
    completion = find_completion(wrapping.replace("{}", text), HEAD, "double_all")
    assert completion.normalised
    with pytest.raises(SyntaxError):
        compile(HEAD + completion.normalised, "completed", "exec")


@each_case("wrapping", WRAPPINGS.values(), ids=WRAPPINGS)
@each_case("text", [*BODIES.values(), *WHOLES.values(), *BROKEN.values()])
def test_every_line_of_the_code_stays(text, wrapping):
    """Nothing inside the stretch that is taken for code is left out or changed, but for its indentation."""
    whole = wrapping.replace("{}", text)
    completion = find_completion(whole, HEAD, "double_all")
    kept = [line.strip() for line in completion.normalised.split("\n") if line.strip()]
    assert kept == [line.strip() for line in completion.extracted.split("\n") if line.strip()]
    assert all(line in whole for line in kept)


def test_a_closed_block_is_code_from_end_to_end():
    completion = find_completion(f"```python\n{HEAD}{BODY}This is prose.\n```", HEAD, "double_all")
    with pytest.raises(SyntaxError):
        compile(HEAD + completion.normalised, "completed", "exec")


@pytest.mark.parametrize("text", ["I cannot do that.", "Sure!\n\nHere it is:", "- first\n- second", ">>> 3\nDone"])
def test_prose_alone_is_no_code(text):
    completion = find_completion(text, HEAD, "double_all")
    assert (completion.how, completion.normalised) == ("nothing", "")


def test_of_several_stretches_the_last_that_defines_the_function_counts():
    wrong = HEAD + "    return xs\n"
    assert result(f"{wrong}\nNo, this is wrong. Better:\n\n{HEAD}{BODY}") == [2, 4]
    assert result(f"import math\n\nHere is the function:\n\n{HEAD}{BODY}") == [2, 4]


@each_case(
    ("text", "how"),
    [
        (BODY, "whole text"),
        (f"```\n{BODY}```", "code fence"),
        (f"<answer>```\n{BODY}\n```</answer>", "answer tag"),
        ("", "nothing"),
        (" \n ", "nothing"),
        ("```\n```", "nothing"),
        ("x" * (CODE_LIMIT + 1), "too long"),
        ("x" * (TEXT_LIMIT + 1), "too long"),
    ],
)
def test_the_rule_that_found_code_is_named(text, how):
    assert find_completion(text, HEAD, "double_all").how == how


@given(
    st.text(max_size=200) | st.lists(st.sampled_from(["    ", "\n", "def ", "f", "(", ":", "```", "x"])).map("".join)
)
def test_no_text_raises(text):
    assert isinstance(find_completion(text, HEAD, "f").normalised, str)


# Prose told from code by its looks

PROSE_LINES = [
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
CODE_LINES = [
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


@each_case("line", PROSE_LINES)
def test_prose_is_told_by_its_looks(line):
    assert is_prose(line)


@each_case("line", CODE_LINES)
def test_code_is_never_taken_for_prose(line):
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
    assert find_code_stretches([*lines, "This is prose.", "and so on"]) == [lines, ["and so on"]]


@given(st.lists(st.text(alphabet="Aa \\\"'()[]#\u00e9=:.-`>", max_size=12), max_size=12))
def test_every_line_is_prose_or_kept(lines):
    kept = [line for stretch in find_code_stretches(lines) for line in stretch]
    left = iter(lines)
    assert all(line in left for line in kept)
    assert all(is_prose(line) or not line.strip() for line in set(lines) - set(kept))
