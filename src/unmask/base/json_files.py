"""Strict reading of JSON, and files that contain a hash of their content.

Python's reader keeps the last of two equal keys, and reads NaN. Both are refused here, because readers in other
languages would get other values. Every failure to read is a `ValueError`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from unmask.base.files import replace_surrogates

T = TypeVar("T")
_MALFORMED: tuple[type[Exception], ...] = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Exceptions of building a value from a malformed body."""


class HashMismatch(ValueError):
    """The text of a file is not the one that `to_hashed_json` wrote."""


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text; a byte order mark is skipped. Every failure is a `ValueError`."""
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        return _DECODER.decode(plain.removeprefix("\ufeff"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build the dictionary of a JSON object, and refuse a key that occurs twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in table if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:100]!r} is given twice")
    return table


def refuse_nan_and_infinity(name: str) -> float:
    """Refuse NaN and the infinities, which Python reads although JSON does not have them."""
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=refuse_duplicates, parse_constant=refuse_nan_and_infinity)


def to_plain(value: Any) -> Any:
    """Convert a value to JSON types: tuples become lists, and unknown types become texts.

    Lone surrogates in texts, which UTF-8 cannot encode, are replaced.
    """
    return json.loads(replace_surrogates(json.dumps(value, default=str, ensure_ascii=False)))


def to_hashed_json(format: str, body: Mapping[str, Any]) -> str:
    """Return the text of a file with format, hash of the body, and body. Equal bodies give equal bytes."""
    whole = {"format": format, "hash": hash_body(format, body), "body": body}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def hash_body(format: str, body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a body, which does not depend on the order of its keys."""
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
    """Build a value from the text of its file; raise `HashMismatch` if the text is not exactly as it was written.

    A body that `to_body` would write differently is refused too: it has entries that `build` ignored. `kind` is the
    name of the file in messages. `refusals` are exceptions of `build` that mean a malformed body.
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
