"""JSON that says two things, or nothing that JSON can say, is refused."""

import json

import pytest

from tests.helpers.cases import each_case
from unmask import strict_json


@each_case("value", [None, 1, -2.5, "x", [1, {"a": []}], {"a": {"b": 1}, "b": {"b": 1}}, "9" * 5000, 1e300])
def test_what_json_writes_is_read(value):
    assert strict_json.loads(json.dumps(value)) == value
    assert strict_json.loads(json.dumps(value).encode()) == value


def test_a_byte_order_mark_is_dropped():
    assert strict_json.loads("\ufeff[1]") == strict_json.loads(b"\xef\xbb\xbf[1]") == [1]
    assert strict_json.loads('["\ufeff"]') == ["\ufeff"]


@each_case(
    ("text", "message"),
    [
        ('{"a": 1, "a": 1}', "the key 'a' is given twice"),
        ('[{"b": {"c": 1, "d": 2, "c": 3}}]', "the key 'c' is given twice"),
        ('{"\\ud800": 1, "\\ud800": 2}', "given twice"),
        ("NaN", "NaN is no JSON number"),
        ('{"a": -Infinity}', "-Infinity is no JSON number"),
        ("9" * 5000, "a whole number of 5000 characters, at most 4300"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "Expecting"),
        ("", "Expecting value"),
        (b"\xff", "utf-8"),
    ],
)
def test_refused(text, message):
    with pytest.raises(ValueError, match=message):
        strict_json.loads(text)
