"""What is printed reaches a terminal that holds few characters, and one that is gone."""

import io
import json
import sys

import pytest

from unmask.report.console import PLAINER, Console, prepare, say, say_json


def stdout(monkeypatch, encoding="ascii", errors="strict"):
    """Standard output of another kind; call it for what was written."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=errors)
    monkeypatch.setattr(sys, "stdout", stream)

    def written():
        stream.flush()
        return raw.getvalue().decode(encoding)

    return written


def test_without_it_the_arrow_is_an_error(monkeypatch):
    stdout(monkeypatch)
    with pytest.raises(UnicodeEncodeError):
        say("1.000↑")


def test_signs_of_ours_become_plain_ones_and_the_rest_numbers(monkeypatch):
    written = stdout(monkeypatch)
    prepare()
    say("1.000↑ 0.5↓ é 模 😀 \ud800")
    assert written() == "1.000^ 0.5v \\xe9 \\u6a21 \\U0001f600 \\ud800\n"
    assert all(plain.isascii() for plain in PLAINER.values())


def test_rich_writes_the_same_way(monkeypatch):
    written = stdout(monkeypatch)
    prepare()
    Console(width=20).print("a↑ é")
    assert written() == "a^ \\xe9\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "utf-16"])
def test_json_stays_json(monkeypatch, encoding):
    written = stdout(monkeypatch, encoding)
    prepare()
    value = {"é模": '😀 ↑ " \\ \n', "half": "\ud800"}
    say_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(written()) == value


def test_half_a_character_does_not_stop_utf8(monkeypatch):
    written = stdout(monkeypatch, "utf-8", "surrogateescape")
    prepare()
    say("\ud800 é")
    assert written() == "\\ud800 é\n"


def test_streams_that_are_closed_are_nowhere(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    prepare()
    with sys.stdout, sys.stderr:
        say("anything")
        print("anything", file=sys.stderr, flush=True)
