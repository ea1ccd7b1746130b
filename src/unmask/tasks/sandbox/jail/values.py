"""Plain values as JSON, so that an answer can leave the worker without taking behaviour along.

Types survive where `==` or a test can tell them apart: a tuple is not a list. A class of the completion's own
becomes the built-in it derives from or, failing that, an `Opaque`, which equals nothing but itself: an `__eq__`
that always says yes stays behind.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import exceptions, library

DEPTH = 100
"""Levels of nesting that cross the pipe."""
ITEMS = 100_000
"""Values an iterator is asked for."""
ITEM_BYTES = 2 << 20
"""What they may take in all."""
ITEMS_S = 1.0
"""Processor time for which it is asked."""


class BadValue(Exception):
    """Something that cannot cross the pipe, or that came across it damaged."""


class Opaque:
    """Stands for a value of a type that does not cross the pipe."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name} object>"


class OpaqueItems(Opaque):
    """Stands for a collection of the completion's own: its items can be had, as often as one likes."""

    def __init__(self, name: str, items: list[Any], end: object):
        super().__init__(name)
        self.items, self.end = items, end

    def __iter__(self) -> Iterator[Any]:
        return again(self.items, self.end)


class EndlessIterator(Exception):
    """An iterator of the completion is asked for more values than crossed the pipe."""


def dumps(value: object, *, strict: bool) -> bytes:
    """Encode a value. A foreign type is an error if `strict`, else it becomes opaque."""
    return json.dumps(encode(value, strict=strict), separators=(",", ":")).encode("ascii")


def loads(data: bytes) -> Any:
    """Decode what a process we do not trust has sent; anything odd is a `BadValue`."""
    try:
        return decode(json.loads(data))
    except Exception as error:
        raise BadValue(f"unreadable value ({type(error).__name__})") from None


def encode(value: Any, *, strict: bool, depth: int = 0) -> Any:
    """The JSON form: scalars as they are, everything else as `[kind, content]`."""
    if depth > DEPTH:
        raise BadValue(f"a value nested more than {DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int.__int__(value)
        # Many digits are slow to read in decimal, and Python refuses to beyond a point.
        return number if number.bit_length() <= 64 else ["integer", hex(number)]
    # Methods of the base classes, because a subclass may have changed its own.
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    taken = None if type(value) in _PLAIN else library.apart(value)
    if taken:
        return ["library", [taken[0], *(encode(part, strict=strict, depth=depth + 1) for part in taken[1])]]
    for base, kind, parts in _NESTED:
        if isinstance(value, base):
            return [kind, [encode(part, strict=strict, depth=depth + 1) for part in parts(value)]]
    for base, kind, text in _TEXTS:
        if isinstance(value, base):
            return [kind, text(value)]
    return _encode_rarity(value, strict, depth)


def _encode_rarity(value: Any, strict: bool, depth: int) -> Any:
    if value is Ellipsis or value is NotImplemented:
        return ["constant", str(value)]
    if isinstance(value, BaseException):
        return ["exception", [encode(part, strict=strict, depth=depth + 1) for part in exceptions.apart(value)]]
    if isinstance(value, Iterator):
        return ["iterator", _items(value, strict, depth)]
    name = str(type(value).__name__)[:100]
    if strict:
        raise BadValue(f"a value of type {name}")
    # Not a class, whose items are those of an enumeration.
    if isinstance(value, Iterable) and not isinstance(value, type):
        return ["items", [name, *_items(_each(value), strict, depth)]]
    return ["opaque", name]


def _items(value: Iterator[object], strict: bool, depth: int) -> list[Any]:
    """The items, as far as they are asked for, and how they end: null, a limit or an exception.

    Generators and the like are run out here, so that `list(answer)` in a test works as on the original, and so that
    the first items of an endless one can be had.
    """
    items: list[Any] = []
    room, stop = ITEM_BYTES, time.process_time() + ITEMS_S
    try:
        for item in value:
            if len(items) == ITEMS:
                return [["list", items], f"{ITEMS} values"]
            if room < 0:
                return [["list", items], f"{ITEM_BYTES} bytes of values"]
            if time.process_time() > stop:
                return [["list", items], f"the values of {ITEMS_S:g} s of processor time"]
            items.append(encode(item, strict=strict, depth=depth + 2))
            room -= len(json.dumps(items[-1])) if isinstance(items[-1], list | str) else 20
    except BadValue:
        raise
    except Exception as error:
        # The original would fail only once it gets there.
        return [["list", items], encode(error, strict=False, depth=depth + 1)]
    return [["list", items], None]


def _each(value: Iterable[object]) -> Iterator[object]:
    """Asks for an iterator only when the first item is wanted, so that a failure at that is one of the iteration."""
    yield from value


def again(items: list[Any], end: object) -> Iterator[Any]:
    """The items once more, and what came after them."""
    yield from items
    if isinstance(end, BaseException):
        raise end
    if end is not None:
        raise EndlessIterator(f"the completion's iterator was asked for {end} and no more")


def decode(data: Any, depth: int = 0) -> Any:
    """The inverse of `encode`."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if depth > DEPTH or not isinstance(data, list) or len(data) != 2 or not isinstance(data[0], str):
        raise BadValue("unreadable value")
    kind, content = data
    if kind in _FROM_TEXT and isinstance(content, str):
        return _FROM_TEXT[kind](content)
    if kind in _FROM_PARTS and isinstance(content, list):
        return _FROM_PARTS[kind]([decode(part, depth + 1) for part in content])
    raise BadValue("value of unknown kind")


def _flat(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [part for pair in pairs for part in pair]


def _paired(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


_NESTED: list[tuple[type, str, Callable[[Any], Iterable[Any]]]] = [
    (list, "list", list.__iter__),
    (tuple, "tuple", tuple.__iter__),
    (dict, "dict", lambda value: _flat(dict.items(value))),
    (set, "set", set.__iter__),
    (frozenset, "frozenset", frozenset.__iter__),
    (deque, "deque", deque.__iter__),
    (range, "range", lambda value: (value.start, value.stop, value.step)),
    (complex, "complex", lambda value: (value.real, value.imag)),
    (type({}.keys()), "keys", iter),
    (type({}.values()), "values", iter),
    (type({}.items()), "pairs", _flat),
]
_PLAIN = {base for base, _, _ in _NESTED}
_TEXTS: list[tuple[type, str, Callable[[Any], str]]] = [
    (bytes, "bytes", bytes.hex),
    (bytearray, "bytearray", bytearray.hex),
]
_FROM_PARTS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": _paired,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "range": lambda parts: range(*parts),
    "complex": lambda parts: complex(*parts),
    "keys": lambda parts: dict.fromkeys(parts).keys(),
    "values": lambda parts: dict(enumerate(parts)).values(),
    "pairs": lambda parts: _paired(parts).items(),
    "iterator": lambda parts: again(*parts),
    "items": lambda parts: OpaqueItems(*parts),
    "exception": lambda parts: exceptions.together(*parts),
    "library": lambda parts: library.together(parts[0], parts[1:]),
}
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "integer": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "opaque": Opaque,
    "constant": lambda text: {"Ellipsis": ..., "NotImplemented": NotImplemented}[text],
}
