"""Scores: the paper's utilities, part by part."""

import json
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.tasks import CONTROLS, SPLITS, TASKS, Example, explain_verdict, find_task, score, score_all
from unmask.tasks.scorers import json_equal
from unmask.tasks.task import TEXT_LIMIT

CONSTRUCTED = [name for name, task in {**TASKS, **CONTROLS}.items() if task.generator]
SPANS = [name for name in CONSTRUCTED if name.startswith(("multi", "carry", "td07"))]


def some(name: str) -> tuple[Example, ...]:
    """Some examples. Made when asked for: who only collects the tests should not have to wait for them."""
    return find_task(name).examples("development")[:12]


def example(task: str, target: str, parts: list[str], **constraints) -> Example:
    return Example("", target, tuple(parts), constraints, 1, "x", task, "development", scorer=find_task(task).scorer)


def utility(task: str, target: str, parts: list[str], text: str, **constraints) -> float | None:
    return score(text, example(task, target, parts, **constraints)).utility


@each_case(
    ("task", "target", "parts", "text", "ours", "paper"),
    [
        ("unique-list-commit", "a, b", ["a", "b"], "a, b, c", 2 / 3, 1.0),
        ("unique-list-commit", "a, b", ["a", "b"], "b, b, c, d", 1 / 4, 1 / 2),
        ("unique-list-commit", "a, b", ["a", "b"], "a", 1 / 2, 1 / 2),
        ("unique-list-commit", "a, b", ["a", "b"], "c, c, c", 0.0, 0.0),
        ("html-close-tags", "</p></b>", ["</p>", "</b>"], "</p></i></b>", 1 / 3, 1 / 2),
        ("html-close-tags", "</p></b>", ["</p>", "</b>"], "</p></b></i> so", 0.0, 0.0),
        ("constrained-json-fill", '{"a": 1}', ["1"], '{"a": 1, "b": 2}', 1 / 2, 1.0),
        ("gsm8k", "3", ["3"], "3 or 4", 0.0, 0.0),
    ],
)
def test_the_papers_equation_divides_by_the_parts_that_were_asked_for(task, target, parts, text, ours, paper):
    """Eq. (eq:part_credit): parts beyond them cost nothing there. What is no answer at all stays 0."""
    verdict = score(f"<answer>{text}</answer>", example(task, target, parts))
    assert (verdict.utility, verdict.paper_utility) == (pytest.approx(ours), pytest.approx(paper))


# Every task


@each_case("name", CONSTRUCTED)
@each_case("split", SPLITS)
def test_gold_scores_one(name, split):
    for e in find_task(name).examples(split):
        verdict = score(f"Let me think.\n<answer>{e.target}</answer>", e)
        assert verdict.utility == 1.0, e.id
        assert verdict.extraction.how == "answer tag"
        assert verdict.extraction.extracted == e.target
        assert all(part.right for part in verdict.parts)
        assert len(verdict.parts) == len(e.parts)


@each_case("name", CONSTRUCTED)
@each_case(
    "garbage", ["", "\n", "I do not know.", "<answer></answer>", "<answer>%%%</answer>", "{", "\x00", "\\boxed{?}"]
)
def test_garbage_scores_zero(name, garbage):
    for e in some(name):
        assert score(garbage, e).utility == 0.0


@given(
    name=st.sampled_from(CONSTRUCTED),
    index=st.integers(0, 11),
    text=st.text(max_size=80),
    cut=st.integers(0, 200),
    shape=st.sampled_from(
        ["{}", "<answer>{}</answer>", "\\boxed{{{}}}", "<answer>{}", "[1]={}; [2]={}", '{{"a": "{}"}}']
    ),
)
def test_never_raises_and_stays_in_range(name, index, text, cut, shape):
    e = some(name)[index]
    for output in (text, shape.replace("{}", text), shape.replace("{}", e.target[:cut] + text + e.target[cut:])):
        verdict = score(output, e)
        assert 0.0 <= verdict.utility <= 1.0
        assert verdict.extraction.raw == output
        if verdict.utility == 1.0:
            assert all(part.right for part in verdict.parts)


def test_outputs_beyond_the_limit_score_zero():
    for name in CONSTRUCTED:
        e = some(name)[0]
        long = f"<answer>{e.target}</answer>".rjust(1_000_000)
        verdict = score(long, e)
        assert verdict.utility == 0.0
        assert str(TEXT_LIMIT) in verdict.reason
        assert len(verdict.parts) == len(e.parts)
        assert score(f"<answer>{e.target}</answer>".rjust(TEXT_LIMIT), e).utility == 1.0


# Indexed spans


@pytest.mark.parametrize("name", SPANS)
@given(data=st.data())
def test_part_credit_counts_parts(name, data):
    e = data.draw(st.sampled_from(some(name)))
    kept = data.draw(st.lists(st.booleans(), min_size=len(e.parts), max_size=len(e.parts)))
    given_parts = [part if keep else "wrong!" for part, keep in zip(e.parts, kept, strict=True)]
    order = data.draw(st.permutations(range(len(given_parts))))
    text = ";\n".join(f"[{k + 1}] = {given_parts[k].upper()}" for k in order)
    verdict = score(f"<answer>{text}</answer>", e)
    assert verdict.utility == sum(kept) / len(kept)
    assert [part.right for part in verdict.parts] == kept


# Lists and tags


@each_case(
    ("text", "expected"),
    [
        ("</em></p></article>", 1),
        ("</em> </P>\n</article>", 1),
        ("</em></p>", 2 / 3),
        ("</em></article></p>", 1 / 3),
        ("</article></p></em>", 1 / 3),
        ("</em></p></article></html>", 3 / 4),
        ("</p></article>", 0),
        ("<em></em></p></article>", 0),
        ("</em></p></article> done", 0),
    ],
)
def test_tags_are_scored_by_position(text, expected):
    text = f"<answer>{text}</answer>"
    assert utility("html-close-tags", "</em></p></article>", ["</em>", "</p>", "</article>"], text) == expected


# JSON

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-100, 100)
    | st.floats(-9, 9).map(lambda x: round(x, 3))
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=8), json_values, min_size=1, max_size=5)


@given(gold=objects, data=st.data())
def test_field_credit_counts_fields(gold, data):
    kept = [key for key in gold if data.draw(st.booleans())]
    text = json.dumps({key: gold[key] if key in kept else "other!" for key in gold})
    for name in ("constrained-json-fill", "json-mode-eval"):
        assert utility(name, json.dumps(gold), [""] * len(gold), text, schema={}) == len(kept) / len(gold)


@each_case(
    ("a", "b", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (0.0, -0.0, True),
        ("1", 1, False),
        ("a", "A", False),
        ("a", "a ", False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], [1.0, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": [True]}, {"a": [1]}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({}, [], False),
        (2**60, float(2**60), True),
        (2**60 + 1, float(2**60), False),
    ],
)
def test_json_values_are_equal_by_meaning(a, b, equal):
    assert json_equal(a, b) is equal
    assert json_equal(b, a) is equal


GOLD = '{"event": "seminar", "start": 18, "end": 20, "room": "C"}'


@each_case(
    ("text", "expected"),
    [
        (GOLD, 1),
        (f"```json\n{GOLD}\n```", 1),
        (f"The object is {GOLD}.", 1),
        (GOLD.replace("18", "18.0"), 1),
        (GOLD.replace("20", "21"), 0.75),
        (GOLD.replace("20", '"20"'), 0.75),
        ('{"event": "seminar", "start": 18}', 0.5),
        (GOLD.replace("}", ', "note": ""}'), 0.8),
        (GOLD[:-1], 0),
        (f"[{GOLD}]", 0),
        ("[]", 0),
        ("{}", 0),
    ],
)
def test_surplus_fields_cost_in_constrained_json(text, expected):
    assert utility("constrained-json-fill", GOLD, [""] * 4, text) == expected


SCHEMA = {
    "type": "object",
    "properties": {"ssid": {"type": "string"}, "band": {"type": "integer"}, "on": {"type": "boolean"}},
    "required": ["ssid", "band"],
}


@each_case(
    ("text", "expected", "reason"),
    [
        ('{"ssid": "x", "band": 5}', 1, "2 of 2 fields"),
        ('{"band": 5.0, "ssid": "x"}', 1, "2 of 2 fields"),
        ('{"ssid": "X", "band": 5}', 0.5, "1 of 2 fields"),
        ('{"ssid": "x", "band": 5, "on": true}', 1, "2 of 2 fields"),
        ('{"ssid": "y", "band": 6}', 0, "0 of 2 fields"),
        ('{"ssid": "x"}', 0, "breaks the schema: 'band' is a required property"),
        ('{"ssid": "x", "band": "5"}', 0, "breaks the schema"),
        ('{"ssid": "x", "band": 5', 0, "not JSON"),
        ('["x", 5]', 0, "not an object"),
        ("", 0, "empty"),
    ],
)
def test_json_mode_gives_nothing_against_the_schema(text, expected, reason):
    e = example("json-mode-eval", '{"ssid": "x", "band": 5}', ["", ""], schema=SCHEMA)
    verdict = score(text, e)
    assert verdict.utility == expected
    assert reason in verdict.reason


HOSTILE = {
    "halves of characters": '{"ssid": "\ud800", "b\udfff": "\\ud800"}',
    "escaped halves": r'{"ssid": "\ud800", "\udfff": ["\ud800"], "band": "\ud800"}',
    "NUL": '{"ssid": "\0", "band": 5}\0',
    "10 MB": '{"ssid": "' + "x" * 10**7 + '"}',
    "deep": '{"ssid": ' * 100_000,
    "deep inside": '{"ssid": "x", "band": ' + "[" * 500 + "]" * 500 + "}",
    "a long number": '{"ssid": "x", "band": ' + "9" * 5000 + "}",
    "a number as long as can be": '{"ssid": "x", "band": ' + "9" * 4300 + "}",
    "a large float": '{"ssid": "x", "band": 1e999}',
    "a large float that is whole": '{"ssid": "x", "band": 1e308}',
    "NaN": '{"ssid": "x", "band": NaN}',
    "infinity": '{"ssid": "x", "band": -Infinity}',
    "many braces": "{" * 200_000,
    "one key a thousand times": "{" + '"ssid": "x",' * 1000 + '"ssid": 1}',
}


@each_case("name", ["json-mode-eval", "constrained-json-fill"])
@each_case("text", HOSTILE.values(), ids=HOSTILE)
def test_no_json_is_worse_than_wrong(name, text):
    e = example(name, '{"ssid": "x", "band": 5}', ["", ""], schema=SCHEMA)
    verdict = score(text, e)
    assert verdict == score_all([(text, e)])[0]
    assert verdict.utility < 1
    assert verdict.reason
    for written in texts(list(astuple(verdict))):
        written.encode("utf-8")
    for line in explain_verdict(verdict):
        line.encode("utf-8")


def texts(value):
    """Every text in a verdict."""
    if isinstance(value, str):
        return [value]
    return [text for part in value for text in texts(part)] if isinstance(value, tuple | list) else []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "refers to 'http://127.0.0.1:9/schema.json'.*nothing is fetched"),
        ({"properties": {"ssid": {"$ref": "file:///etc/passwd"}}}, "refers to 'file:///etc/passwd'"),
        ({"$ref": "#"}, "cannot be applied .RecursionError"),
        ({"$ref": "#/nowhere"}, "cannot be applied"),
        ({"type": "no such type"}, "cannot be applied"),
        ({"properties": {"ssid": {"pattern": "("}}}, "cannot be applied"),
    ],
)
def test_a_schema_that_cannot_judge_is_the_examples_fault(schema, message):
    e = example("json-mode-eval", '{"ssid": "x"}', [""], schema=schema)
    with pytest.raises(ConfigError, match=message):
        score('{"ssid": "x"}', e)
