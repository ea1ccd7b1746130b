"""Where answers are found, and how they are read."""

import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from unmask.tasks import extract

words = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="<>\\{}"), max_size=30)


@each_case(
    ("text", "how", "answer"),
    [
        ("<answer>25</answer>", "answer tag", "25"),
        ("It is <answer> 25\n</answer> I think.", "answer tag", "25"),
        ("<answer>1</answer> no: <answer>2</answer>", "answer tag", "2"),
        ("<ANSWER>25</Answer>", "answer tag", "25"),
        ("<answer>a<answer>b</answer>", "answer tag", "b"),
        ("<answer>a</answer>b</answer>", "answer tag", "a"),
        ("<answer>a</answer> then <answer>b", "answer tag", "a"),
        ("<answer></answer>", "answer tag", ""),
        ("so <answer>25", "open answer tag", "25"),
        ("25</answer> done", "open answer tag", "25"),
        (r"thus \boxed{25}.", "boxed", "25"),
        (r"\boxed{1} and \boxed{2}", "boxed", "2"),
        (r"\boxed{a{b}c}", "boxed", "a{b}c"),
        (r"\boxed{\boxed{5}}", "boxed", "5"),
        (r"\boxed {x\}y}", "boxed", r"x\}y"),
        (r"\boxed{1} then \boxed{2", "boxed", "1"),
        (r"<answer>1</answer> \boxed{2}", "answer tag", "1"),
        ("first\n\n second \n\n", "last line", "second"),
        ("```\n25\n```", "last line", "25"),
        (r"\boxed{2", "last line", r"\boxed{2"),
        ("", "nothing", ""),
        (" \n\t ", "nothing", ""),
    ],
)
def test_answers_are_found_by_the_first_rule_that_fits(text, how, answer):
    assert extract.find_answer(text) == extract.RawAnswer(how, answer)


@given(words, words, words)
def test_answer_tags_win_over_what_surrounds_them(before, answer, after):
    assert extract.find_answer(f"{before}<answer>{answer}</answer>{after}") == extract.RawAnswer(
        "answer tag", answer.strip()
    )


@each_case(
    ("text", "values"),
    [
        ("[1]=gate; [2]=courier", {1: ("gate",), 2: ("courier",)}),
        ("[1]=gate;[2]=courier;", {1: ("gate",), 2: ("courier",)}),
        ("[1] = gate\n[ 2 ]  =\n  the  tall courier\n", {1: ("gate",), 2: ("the tall courier",)}),
        ("[2]=b; [1]=a", {1: ("a",), 2: ("b",)}),
        ("[1]=Gate; [1]=gate", {1: ("Gate",)}),
        ("[1]=gate; [1]=door", {1: ("gate", "door")}),
        ("[1]=a [2]=b", {1: ("a",), 2: ("b",)}),
        ("[1]=; [2]=b", {1: ("",), 2: ("b",)}),
        ("[1]=b = c; [2]=[x]", {1: ("b = c",), 2: ("[x]",)}),
        ("[1]=gate\nThat is all.", {1: ("gate",)}),
        ("gate, courier", {}),
        ("[12345]=x", {}),
        ("[1]: x", {}),
    ],
)
def test_spans_are_read_with_all_their_values(text, values):
    assert dict(extract.parse_spans(text)) == values


@each_case(
    ("text", "value"),
    [
        ("25", 25),
        ("25.", 25),
        ("$1,234.50", Fraction("1234.5")),
        ("1,234,567 dollars", 1234567),
        ("-3", -3),
        ("−3 degrees", -3),
        ("-$5", -5),
        ("$-5", -5),
        ("25%", 25),
        ("25 %", 25),
        (".5", Fraction(1, 2)),
        ("0.50", Fraction(1, 2)),
        ("1/2", Fraction(1, 2)),
        ("10/2.", 5),
        (r"\frac{10}{4}", Fraction(5, 2)),
        (r"\$2{,}125", 2125),
        ("5 + 3 = 8", 8),
        ("10 - 4", 4),
        ("5-7", 7),
        ("3,5", 5),
        ("1,234, and", 1234),
        ("12,", 12),
        ("a total of 7 apples", 7),
        ("2e3", 2000),
        ("3 eggs", 3),
        ("7 * 8 = 56 eggs", 56),
        ("€40", 40),
        ("**18**", 18),
        ("1/0", None),
        ("9" * 1000, None),
        ("none", None),
        ("", None),
    ],
)
def test_the_last_number_is_read_exactly(text, value):
    assert extract.parse_number(text) == value


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{:,}", "{}", "${:,}", "{}.00", "{:,} apples", "= {}."]))
def test_a_number_is_the_same_in_every_spelling(value, spelling):
    assert extract.parse_number(spelling.format(value)) == value


@pytest.mark.parametrize(
    ("text", "how", "answer"),
    [
        ("<answer>5</answer>\n#### 6", "answer tag", "5"),
        ("5 and 6\n#### 7 \nBye 8", "#### line", "7"),
        ("so\n  ####7\n9", "#### line", "7"),
        ("#### $1,234.50.\nBye 8", "#### line", "$1,234.50."),
        ("#### -3%\nBye 8", "#### line", "-3%"),
        ("#### 1\n#### 2\nBye 8", "#### line", "2"),
        ("#### Final Answer\n42", "last line", "42"),
        ("#### Step 2\nmore\nThe answer is 42.", "last line", "The answer is 42."),
        ("#### 2. Add them\nThis gives 42", "last line", "This gives 42"),
        ("#### 5\n#### Step 3\nso it is", "#### line", "5"),
        ("See item #### 3 of the list\nand 42", "last line", "and 42"),
        ("##### 3\n42", "last line", "42"),
        ("####\n42", "last line", "42"),
        ("the total is 5\nThank you.", "last line", "the total is 5"),
        ("none", "last line", "none"),
    ],
)
def test_numbers_are_found_in_tags_boxes_and_marked_lines(text, how, answer):
    assert extract.find_number(text) == extract.RawAnswer(how, answer)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a,b, c ,", ("a", "b", "c")),
        ("a,,", ("a", "")),
        ("a,,b", ("a", "", "b")),
        ("a,\nb", ("a", "b")),
        ("", ()),
        (" ", ()),
        ("a b", ("a b",)),
    ],
)
def test_items_stand_between_commas(text, items):
    assert extract.parse_items(text) == items


@each_case(
    ("text", "names"),
    [
        ("</em></p>", ("em", "p")),
        (" </em>\n</ P > ", ("em", "p")),
        ("</h1></my-tag>", ("h1", "my-tag")),
        ("", ()),
        ("<em></em>", None),
        ("so </em>", None),
        ("</em", None),
        ("</>", None),
    ],
)
def test_only_closing_tags_are_read(text, names):
    assert extract.parse_closing_tags(text) == names


@each_case(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": {"b": [1, "}"]}}\n```', {"a": {"b": [1, "}"]}}),
        ('Here: {"a": "say \\"}\\" twice"} and that is it', {"a": 'say "}" twice'}),
        ('{"a": 1}\n{"a": 2}', {"a": 2}),
        ('It\'s "quoted {" prose, then {"a": 1}', {"a": 1}),
        ('{"a": 1} where {x} is a variable', {"a": 1}),
        ('a stray { and {"a": 1}', {"a": 1}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("{}", {}),
        ('{x {"a": 1}}', {"a": 1}),
        ("\\frac{1}{2} " * 50 + '{"a": 1}', {"a": 1}),
        ('{"a": {"b": 1}, "c": "cut sho', None),
        ('{"a": {"b": 1},}', None),
        ('{"a": 1} or else {"a": {"b": 2}', {"a": 1}),
        ('{"a": 1', None),
        ("{'a': 1}", None),
        ('{"a": 1,}', None),
        ('{"a": NaN}', None),
        ('{"a": -Infinity}', None),
        ('{"a": 1e999}', None),
        ('{"a": ' + "9" * 5000 + "}", None),
        ('{"a": "line\nbreak"}', None),
        ("[1]", None),
        ("", None),
        ("}{", None),
        ('{"a": ' * 65 + "1" + "}" * 65, None),
    ],
)
def test_the_last_json_object_is_read_strictly(text, value):
    parsed = extract.parse_json_object(text)
    assert parsed.value == value
    assert bool(parsed.problem) == (value is None)


HOSTILE = (
    *("<answer>", "</answer>", "<", "\\boxed{", "\\boxed ", "\\", "{", "}", '{"a":', '{"', '"', '\\"'),
    *('{"a":{},', '{"\\"', "[", "[1]=", "[1] ", "[ ", "1,", "1,111", "-", "$", "1/", "1.", "1e", ".", "####"),
    *("\\frac{1}{", "</", "</a ", "</a>", "```\n", " ", "\n", "\t\n", "\x00", "\u2028", "é"),
)


@pytest.mark.slow
def test_hostile_texts_take_linear_time():
    """No timing: a quadratic rule would need hours for these, and the limit is minutes."""
    code = (
        "import sys\n"
        "from unmask.tasks.extract import *\n"
        "from unmask.tasks.code_answers import CODE_LIMIT, find_completion\n"
        "from unmask.tasks.task import TEXT_LIMIT\n"
        "for unit in eval(sys.stdin.read()):\n"
        "    text = unit * (TEXT_LIMIT // len(unit)) + 'x'\n"
        "    for read in (find_answer, find_number, parse_number, parse_spans, parse_items, parse_closing_tags, "
        "parse_json_object):\n"
        "        read(text), read(text + '</answer>')\n"
        '    find_completion(text[:CODE_LIMIT], \'def f():\\n    """Do."""\\n\', \'f\')\n'
    )
    subprocess.run([sys.executable, "-c", code], input=repr(HOSTILE), text=True, check=True, timeout=300)


@given(st.text(max_size=300) | st.lists(st.sampled_from(HOSTILE), max_size=60).map("".join))
def test_no_text_raises(text):
    answer = extract.find_answer(text)
    extract.parse_spans(answer.text)
    extract.parse_items(answer.text)
    extract.parse_closing_tags(answer.text)
    extract.parse_number(extract.find_number(text).text)
    extract.parse_json_object(extract.find_json_object(text).text)
