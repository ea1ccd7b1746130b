"""Files that vouch for themselves: strict JSON of a format, a body, and the body's hash. Changed by hand, refused."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_MALFORMED: tuple[type[Exception], ...] = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class HashMismatch(ValueError):
    """A text is not what `to_hashed_json` wrote."""


def to_hashed_json(format: str, body: Mapping[str, Any]) -> str:
    """The file's text; the same body gives the same bytes."""
    whole = {"format": format, "hash": digest(format, body), "body": body}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def from_hashed_json(
    format: str,
    text: str,
    kind: str,
    build: Callable[[dict[str, Any]], T],
    body_of: Callable[[T], dict[str, Any]],
    refusals: tuple[type[Exception], ...] = (),
) -> T:
    """What a file describes, a `kind`; refused unless the value would write just this body.

    Where a body is malformed `build` may raise what comes of that, or `refusals` of its own.
    """
    body = _opened(format, text, f"{kind} file")
    try:
        value = build(body)
        same = body_of(value) == body
    except _MALFORMED + refusals as error:
        raise HashMismatch(f"the {kind} file does not describe a {kind} ({error})") from error
    if not same:
        raise HashMismatch(f"the {kind} file has entries that no calibration writes")
    return value


def digest(format: str, body: Mapping[str, Any]) -> str:
    """Of everything that the body says."""
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{format}\n{plain}".encode()).hexdigest()


def _opened(format: str, text: str, name: str) -> dict[str, Any]:
    """The body of a file of this format, unchanged since it was written; `name` is what messages call the file."""
    try:
        whole = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise HashMismatch(f"the {name} is not strict JSON ({error})") from error
    if not isinstance(whole, dict) or "format" not in whole:
        raise HashMismatch("the file names no format")
    if whole["format"] != format:
        raise HashMismatch(
            f"format of the {name} is {whole['format']!r}; allowed: {format!r}; this version reads {format}"
        )
    if set(whole) != {"format", "hash", "body"} or not isinstance(whole["body"], dict):
        raise HashMismatch(f"entries of the {name} are {sorted(whole)}; allowed: format, hash and body")
    if whole["hash"] != digest(format, whole["body"]):
        raise HashMismatch(f"the {name} was edited: its hash is not that of its body")
    return whole["body"]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError(f"an entry is there twice: {names}")
    return dict(pairs)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")
