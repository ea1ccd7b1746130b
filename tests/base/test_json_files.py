"""Ambiguous JSON is refused, and so is a hashed file that was changed after it was written."""

import json
from pathlib import Path

import pytest

from unmask.base.json_files import HashMismatch, from_hashed_json, hash_body, parse_json, to_hashed_json, to_plain


@pytest.mark.parametrize("value", [None, -2.5, "x", [1, {"a": []}], {"a": {"b": 1}, "b": {"b": 1}}, "9" * 5000, 1e300])
def test_json_round_trips(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(b"\xef\xbb\xbf" + json.dumps(value).encode()) == value


REFUSED = {
    '{"a": 1, "a": 1}': "'a' is given twice",
    '[{"b": {"c": 1, "d": 2, "c": 3}}]': "'c' is given twice",
    "NaN": "NaN",
    '{"a": -Infinity}': "-Infinity",
    "9" * 5000: "4300",
    "[" * 100_000: "nested too deeply",
    "{": "Expecting",
    "": "Expecting value",
    b"\xff": "utf-8",
}


def test_ambiguous_or_broken_json_is_refused():
    for text, message in REFUSED.items():
        with pytest.raises(ValueError, match=message):
            parse_json(text)


def test_plain_values_have_json_types():
    value = {"path": Path("a/b"), "pair": (1, 2.5), 3: None, "half": "\ud800"}
    assert to_plain(value) == {"path": "a/b", "pair": [1, 2.5], "3": None, "half": "\ufffd"}


BODY = {"name": "a", "values": [1, 0.5, None]}
WRITTEN = """{
  "format": "unmask-test-1",
  "hash": "95fafba1f214c494a0cbf8a1096a1ae1a60d4273f64a7623f608d0e0b52b6e7f",
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


def test_the_bytes_of_hashed_files_never_change():
    assert to_hashed_json("unmask-test-1", BODY) == WRITTEN
    assert from_hashed_json("unmask-test-1", WRITTEN, dict, kind="test") == BODY
    assert hash_body("unmask-test-1", dict(reversed(BODY.items()))) == hash_body("unmask-test-1", BODY)
    assert hash_body("unmask-test-2", BODY) != hash_body("unmask-test-1", BODY)


def test_a_changed_hashed_file_is_refused():
    changes = [('"name": "a"', '"name": "a", "name": "a"'), ('"a"', '"b"'), ("test-1", "test-2")]
    changes += [('"format"', '"kind"'), ('"hash"', '"sum"')]
    for text in ("[1]", WRITTEN[:-20], *(WRITTEN.replace(*change, 1) for change in changes)):
        with pytest.raises(HashMismatch):
            from_hashed_json("unmask-test-1", text, dict, kind="test")


def test_a_body_with_entries_that_are_not_read_is_refused():
    def fail(body):
        raise RuntimeError("no")

    with pytest.raises(HashMismatch, match="entries"):
        from_hashed_json("unmask-test-1", WRITTEN, dict, kind="test", to_body=lambda body: {"name": body["name"]})
    with pytest.raises(HashMismatch, match="'size'"):
        from_hashed_json("unmask-test-1", WRITTEN, lambda body: body["size"], kind="test")
    with pytest.raises(RuntimeError):
        from_hashed_json("unmask-test-1", WRITTEN, fail, kind="test")
    with pytest.raises(HashMismatch):
        from_hashed_json("unmask-test-1", WRITTEN, fail, kind="test", refusals=(RuntimeError,))
