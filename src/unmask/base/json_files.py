"""JSON read strictly, plain values, and files that carry a hash of their content.

Python's reader keeps the last of two equal keys and reads NaN. A file that says two things, or something that JSON
cannot say, is refused here instead. Every failure to read is a `ValueError`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from unmask.base.files import storable

T = TypeVar("T")
MAX_DIGITS = 4300
"""Longest whole number that is read, in characters; `int` itself refuses longer ones."""


_MALFORMED: tuple[type[Exception], ...] = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What comes of building a value from a body that is not one."""


class HashMismatch(ValueError):
    """A text is not what `to_hashed_json` wrote."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, without a byte order mark before it; every failure is a `ValueError`."""
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        return _DECODER.decode(plain.removeprefix("\ufeff"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; refuse a key that is given twice, because readers differ in which value they take."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in table if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:100]!r} is given twice")
    return table


def refuse_constant(name: str) -> float:
    """Refuse NaN and the infinities, which are Python's and not JSON's."""
    raise ValueError(f"{name} is no JSON number")


def parse_integer(text: str) -> int:
    """Read a whole number, unless it is longer than `int` reads."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a whole number of {len(text)} characters, at most {MAX_DIGITS} are read")
    return int(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant, parse_int=parse_integer
)


def to_plain(value: Any) -> Any:
    """Return a value as it comes back from JSON: tuples are lists, types that JSON lacks are texts.

    Lone surrogates in texts, which UTF-8 cannot encode, are replaced.
    """
    return json.loads(storable(json.dumps(value, default=str, ensure_ascii=False)))


def to_hashed_json(format: str, body: Mapping[str, Any]) -> str:
    """Return a file's text: format, hash of the body, body. The same body gives the same bytes."""
    whole = {"format": format, "hash": hash_body(format, body), "body": body}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def hash_body(format: str, body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything that a body says, whatever the order of its keys."""
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{format}\n{plain}".encode()).hexdigest()


def from_hashed_json(
    format: str,
    text: str,
    build: Callable[[dict[str, Any]], T],
    *,
    kind: str,
    to_body: Callable[[T], Mapping[str, Any]] = dict,  # type: ignore[assignment]
    refusals: tuple[type[Exception], ...] = (),
) -> T:
    """Build the value that a file describes; raise `HashMismatch` if the file is not exactly what was written.

    A body that `build` accepts and `to_body` writes differently is refused too: it has entries that nobody wrote.
    `kind` is the file's name in messages. `refusals` are errors of `build` that mean a malformed body.
    """
    try:
        whole = parse_json(text)
    except ValueError as error:
        raise HashMismatch(f"the {kind} file is not strict JSON ({error})") from error
    if not isinstance(whole, dict) or "format" not in whole:
        raise HashMismatch("the file names no format")
    if whole["format"] != format:
        raise HashMismatch(
            f"format of the {kind} file is {whole['format']!r}; allowed: {format!r}; this version reads {format}"
        )
    body = whole.get("body")
    if set(whole) != {"format", "hash", "body"} or not isinstance(body, dict):
        raise HashMismatch(f"entries of the {kind} file are {sorted(whole)}; allowed: format, hash and body")
    if whole["hash"] != hash_body(format, body):
        raise HashMismatch(f"the {kind} file was edited: its hash is not that of its body")
    try:
        value = build(body)
        same = to_body(value) == body
    except _MALFORMED + refusals as error:
        raise HashMismatch(f"the {kind} file does not describe a {kind} ({error})") from error
    if not same:
        raise HashMismatch(f"the {kind} file has entries that no calibration writes")
    return value
