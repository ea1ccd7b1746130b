"""Progress on a terminal, elsewhere, and not at all."""

import sys
from contextlib import contextmanager

import pytest

from unmask.cli import progress
from unmask.cli.progress import Pace, bar, note, watching


@contextmanager
def screen():
    yield lambda now: note(f"screen {now}")


@pytest.mark.parametrize(
    ("terminal", "options", "shown"),
    [
        (True, {}, "screen 3\n"),
        (False, {}, "line 3\n"),
        (True, {"live": False}, "line 3\n"),
        (False, {"live": True}, "screen 3\n"),
        (True, {"quiet": True}, ""),
        (False, {"quiet": True}, ""),
    ],
)
def test_what_is_watched(terminal, options, shown, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with watching(lambda now: note(f"line {now}"), screen, **options) as on_progress:
        on_progress(3)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", shown)


def test_pace(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    at_once, later = Pace(5.0), Pace(5.0, at_once=False)
    assert (at_once.due(), later.due()) == (True, False)
    assert (at_once.due(), later.due(whatever_the_time=True)) == (False, True)
    clock[0] = 105.0
    assert (at_once.due(), later.due()) == (True, True)


def test_a_bar_goes_to_stderr(capsys):
    with bar("starting", 4) as show:
        show(2, 4, "half of it")
    assert capsys.readouterr().out == ""
