"""Texts, numbers and arguments that programs do not expect, from hostile.json."""

import json
from pathlib import Path

MARK = "x-torture"
"""An element, an attribute and a command of this name must never come to life on a page."""


def _load(name: str) -> tuple[str, ...]:
    """Read one list; a text that repeats a piece is stored as [piece, times]."""
    lists = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="ascii"))
    return tuple(entry if isinstance(entry, str) else entry[0] * entry[1] for entry in lists[name])


TEXTS, NUMBERS, WORDS = _load("texts"), _load("numbers"), _load("words")
