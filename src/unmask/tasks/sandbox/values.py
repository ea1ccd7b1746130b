"""Encode plain values as JSON, so that a worker's answer carries values and no code.

Types survive where `==` or a test can tell them apart: a tuple is not a list. A value of another class arrives as the
built-in it derives from or, failing that, as an `Opaque`, which equals nothing but itself: an `__eq__` that always says
yes stays behind. Imported by the interpreter that runs a completion: it needs the standard library alone.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

DEPTH = 100
"""Deepest nesting of a value that is sent between the processes."""
ITEMS = 100_000
"""Most values that are taken from an iterator. All of them are sent, so that `list(answer)` works in a test."""


class BadValue(Exception):
    """Error for a value that cannot be sent between the processes, or that arrived damaged."""


class Opaque:
    """Stand-in for a value of a type that cannot be sent between the processes."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name} object>"


def dumps(value: object, *, strict: bool) -> bytes:
    """Encode a value as JSON bytes. A type that cannot be sent is an error if `strict`, else becomes an `Opaque`."""
    return json.dumps(_encode_value(value, strict, 0), separators=(",", ":")).encode("ascii")


def loads(data: bytes) -> Any:
    """Decode a value that an untrusted process sent; raise `BadValue` for anything malformed."""
    try:
        return _decode_value(json.loads(data), 0)
    except Exception as error:
        raise BadValue(f"unreadable value ({type(error).__name__})") from None


def _encode_value(value: Any, strict: bool, depth: int) -> Any:
    """Convert a value to plain JSON: scalars as they are, everything else as `[kind, content]`."""
    if depth > DEPTH:
        raise BadValue(f"a value nested more than {DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    # Methods of the base classes throughout, because a subclass may have changed its own.
    if isinstance(value, int):
        number = int.__int__(value)
        # Many digits are slow to read in decimal, and Python refuses to beyond a point.
        return number if number.bit_length() <= 64 else ["integer", hex(number)]
    if isinstance(value, float):
        # NaN and infinities too: Python's JSON writes and reads them, and no other program reads this.
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return ["bytes", bytes.hex(value)]
    for kind, (base, parts, _) in _NESTED.items():
        if isinstance(value, base):
            return [kind, [_encode_value(part, strict, depth + 1) for part in parts(value)]]
    if isinstance(value, Iterator):
        # One more than allowed, so that an endless iterator is told from one that is just long.
        items = list(islice(value, ITEMS + 1))
        if len(items) > ITEMS:
            raise BadValue(f"an iterator of more than {ITEMS} values")
        return ["iterator", [_encode_value(item, strict, depth + 1) for item in items]]
    name = str(type(value).__name__)[:100]
    if strict:
        raise BadValue(f"a value of type {name}")
    return ["opaque", name]


def _decode_value(data: Any, depth: int) -> Any:
    if data is None or isinstance(data, bool | int | float | str):
        return data
    # Anything but a pair fails here or below, and `loads` says so: the sender may have written the frame by hand.
    kind, content = data
    if depth > DEPTH:
        raise BadValue("too deep")
    if kind in _SCALARS and isinstance(content, str):
        return _SCALARS[kind](content)
    parts = [_decode_value(part, depth + 1) for part in content]
    return iter(parts) if kind == "iterator" else _NESTED[kind][2](parts)


_SCALARS: dict[str, Callable[[str], Any]] = {
    "integer": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "opaque": Opaque,
}
_NESTED: dict[str, tuple[type, Callable[[Any], Iterable[Any]], Callable[[list[Any]], Any]]] = {
    "list": (list, list.__iter__, list),
    "tuple": (tuple, tuple.__iter__, tuple),
    "dict": (dict, lambda value: [part for pair in dict.items(value) for part in pair], lambda flat: _pair_up(flat)),
    "set": (set, set.__iter__, set),
    "frozenset": (frozenset, frozenset.__iter__, frozenset),
    "range": (range, lambda value: (value.start, value.stop, value.step), lambda parts: range(*parts)),
    "complex": (complex, lambda value: (value.real, value.imag), lambda parts: complex(*parts)),
}


def _pair_up(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
