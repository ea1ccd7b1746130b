"""JSON from files, read strictly: no key twice, no NaN, and one kind of error whatever is wrong.

Python's reader keeps the last of two equal keys without a word; a file that says two things is refused instead.
"""

import json
from collections.abc import Sequence
from typing import Any

DIGITS = 4300
"""Characters of a whole number; Python reads no longer one."""


def loads(text: str | bytes) -> Any:
    """The value of a JSON text; a byte order mark before it is dropped. Raises `ValueError`, and nothing else."""
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        return _DECODER.decode(plain.removeprefix("\ufeff"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON text; a key given twice is refused, because readers differ in which value they take."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in table if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:100]!r} is given twice")
    return table


def refuse_constant(name: str) -> float:
    """NaN and the infinities are Python's, not JSON's."""
    raise ValueError(f"{name} is no JSON number")


def whole_number(text: str) -> int:
    """A whole number, unless it is longer than Python reads."""
    if len(text) > DIGITS:
        raise ValueError(f"a whole number of {len(text)} characters, at most {DIGITS} are read")
    return int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=refuse_constant, parse_int=whole_number)
