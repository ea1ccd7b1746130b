"""JSON that says two things is refused, and so is a file with a hash that was changed after it was written."""

import json
from pathlib import Path

import pytest

from unmask.base.json_files import HashMismatch, from_hashed_json, hash_body, parse_json, to_hashed_json, to_plain


@pytest.mark.parametrize(
    "value", [None, 1, -2.5, "x", [1, {"a": []}], {"a": {"b": 1}, "b": {"b": 1}}, "9" * 5000, 1e300]
)
def test_what_json_writes_is_read(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value).encode()) == value


def test_a_byte_order_mark_is_dropped():
    assert parse_json("\ufeff[1]") == parse_json(b"\xef\xbb\xbf[1]") == [1]
    assert parse_json('["\ufeff"]') == ["\ufeff"]


@pytest.mark.parametrize(
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
        parse_json(text)


def test_plain_values_are_what_json_gives_back():
    value = {"path": Path("a/b"), "pair": (1, 2.5), 3: None, "half": "\ud800"}
    assert to_plain(value) == {"path": "a/b", "pair": [1, 2.5], "3": None, "half": "\ufffd"}


BODY = {"name": "a", "values": [1, 0.5, None]}
WRITTEN = """{
  "format": "unmask-test-1",
  "hash": "%s",
  "body": {
    "name": "a",
    "values": [
      1,
      0.5,
      null
    ]
  }
}
"""


def test_the_bytes_of_hashed_files_are_pinned():
    """The hash is part of manifests, gates and shards that exist."""
    written = to_hashed_json("unmask-test-1", BODY)
    assert written == WRITTEN % "95fafba1f214c494a0cbf8a1096a1ae1a60d4273f64a7623f608d0e0b52b6e7f"
    assert from_hashed_json("unmask-test-1", written, dict, kind="test") == BODY
    assert hash_body("unmask-test-1", dict(reversed(BODY.items()))) == hash_body("unmask-test-1", BODY)
    assert hash_body("unmask-test-2", BODY) != hash_body("unmask-test-1", BODY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-20], "the test file is not strict JSON"),
        (lambda text: text.replace('"name": "a"', '"name": "a", "name": "a"'), "the key 'name' is given twice"),
        (lambda text: text.replace('"name": "a"', '"name": "b"'), "the test file was edited"),
        (
            lambda text: text.replace("test-1", "test-2"),
            "format of the test file is 'unmask-test-2'; allowed: 'unmask-te",
        ),
        (lambda text: text.replace('"format"', '"kind"'), "the file names no format"),
        (
            lambda text: text.replace('"hash"', '"sum"'),
            r"entries of the test file are .*; allowed: format, hash and body",
        ),
        (lambda text: "[1]", "the file names no format"),
    ],
)
def test_a_changed_hashed_file_is_refused(change, message):
    with pytest.raises(HashMismatch, match=message):
        from_hashed_json("unmask-test-1", change(to_hashed_json("unmask-test-1", BODY)), dict, kind="test")


def test_a_body_that_is_read_differently_than_written_is_refused():
    text = to_hashed_json("unmask-test-1", BODY)
    with pytest.raises(HashMismatch, match="has entries that no calibration writes"):
        from_hashed_json("unmask-test-1", text, dict, kind="test", to_body=lambda body: {"name": body["name"]})
    with pytest.raises(HashMismatch, match=r"does not describe a test \('size'\)"):
        from_hashed_json("unmask-test-1", text, lambda body: body["size"], kind="test")
    with pytest.raises(RuntimeError):
        from_hashed_json("unmask-test-1", text, _fail, kind="test")
    with pytest.raises(HashMismatch, match="does not describe a test"):
        from_hashed_json("unmask-test-1", text, _fail, kind="test", refusals=(RuntimeError,))


def _fail(body):
    raise RuntimeError("no")
