"""Values of the standard library's types, taken apart into plain parts and put together again.

Whoever has such a value has imported its module: a module that is not loaded is not asked for its types, because
importing them all would cost every run.
"""

import builtins
import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

# What tests may use beside its items; any other factory stays behind.
_FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple, bool)}


def apart(value: Any) -> tuple[str, list[Any]] | None:
    """The kind of a value and its parts; None if it is of none of the kinds known here."""
    for kind, (module, name, parts) in _APART.items():
        found = getattr(sys.modules.get(module), name, None)
        if found is not None and isinstance(value, found):
            with contextlib.suppress(Exception):
                return kind, parts(value)
    if isinstance(value, tuple) and _is_named(type(value)):
        return "namedtuple", [type(value).__name__, list(getattr(value, "_fields", ())), *tuple.__iter__(value)]
    return ("builtin", [value.__name__]) if _is_builtin(value) else None


def together(kind: str, parts: list[Any]) -> Any:
    """The inverse of `apart`; what does not fit together raises."""
    return _TOGETHER[kind](*parts)


def _is_builtin(value: object) -> bool:
    return isinstance(value, type) and vars(builtins).get(value.__name__) is value


def _is_named(kind: type) -> bool:
    fields = getattr(kind, "_fields", None)
    return type(fields) is tuple and len(fields) > 0 and all(type(field) is str for field in fields)


def _of(module: str, name: str) -> Callable[..., Any]:
    """The class, imported when it is used."""
    return lambda *parts: getattr(importlib.import_module(module), name)(*parts)


def _pairs(value: Mapping[Any, Any]) -> list[Any]:
    """A dict of the items: a subclass may have changed its own methods."""
    return [{**value} if not isinstance(value, dict) else dict(dict.items(value))]


def _default_dict(factory: str | None, items: dict[Any, Any]) -> Any:
    return _of("collections", "defaultdict")(_FACTORIES.get(factory or ""), items)


def _named_tuple(name: str, fields: list[str], *items: object) -> Any:
    return _of("collections", "namedtuple")(name, fields)(*items)


def _memory(form: Any, data: bytes) -> memoryview:
    return memoryview(data).cast(form)


def _memory_parts(value: memoryview) -> list[Any]:
    if value.ndim != 1:
        raise TypeError("only memory in one row")
    return [value.format, value.tobytes()]


def _moment(name: str) -> Callable[..., Any]:
    """Of a class whose last two parts are zone and fold."""
    return lambda *parts: getattr(importlib.import_module("datetime"), name)(*parts[:-1], fold=parts[-1])


def _builtin(name: str) -> type:
    found = getattr(builtins, name)
    if not isinstance(found, type):
        raise TypeError("not a class")
    return found


def _path(name: str, text: str) -> Any:
    if name not in ("PurePosixPath", "PureWindowsPath", "PosixPath"):
        raise TypeError("not a path")
    return _of("pathlib", name)(text)


_CLOCK = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
_APART: dict[str, tuple[str, str, Callable[[Any], list[Any]]]] = {
    "Fraction": ("fractions", "Fraction", lambda v: [v.numerator, v.denominator]),
    "Decimal": ("decimal", "Decimal", lambda v: [str(v)]),
    "Counter": ("collections", "Counter", _pairs),
    "OrderedDict": ("collections", "OrderedDict", lambda v: [[list(pair) for pair in v.items()]]),
    "defaultdict": (
        "collections",
        "defaultdict",
        lambda v: [next((name for name, kind in _FACTORIES.items() if kind is v.default_factory), None), *_pairs(v)],
    ),
    "UserList": ("collections", "UserList", lambda v: [list(v.data)]),
    "UserDict": ("collections", "UserDict", lambda v: _pairs(v.data)),
    "UserString": ("collections", "UserString", lambda v: [str(v.data)]),
    "MappingProxyType": ("types", "MappingProxyType", _pairs),
    "array": ("array", "array", lambda v: [v.typecode, v.tolist()]),
    "memoryview": ("builtins", "memoryview", _memory_parts),
    "slice": ("builtins", "slice", lambda v: [v.start, v.stop, v.step]),
    # A point in time is a date too: first what is more.
    "datetime": (
        "datetime",
        "datetime",
        lambda v: [v.year, v.month, v.day, *(getattr(v, name) for name in _CLOCK)],
    ),
    "date": ("datetime", "date", lambda v: [v.year, v.month, v.day]),
    "time": ("datetime", "time", lambda v: [getattr(v, name) for name in _CLOCK]),
    "timedelta": ("datetime", "timedelta", lambda v: [v.days, v.seconds, v.microseconds]),
    "timezone": ("datetime", "timezone", lambda v: list(v.__getinitargs__())),
    "ZoneInfo": ("zoneinfo", "ZoneInfo", lambda v: [v.key]),
    "path": ("pathlib", "PurePath", lambda v: [type(v).__name__, str(v)]),
}
_TOGETHER: dict[str, Callable[..., Any]] = {
    **{kind: _of(module, name) for kind, (module, name, _) in _APART.items()},
    "defaultdict": _default_dict,
    "memoryview": _memory,
    "datetime": _moment("datetime"),
    "time": _moment("time"),
    "namedtuple": _named_tuple,
    "builtin": _builtin,
    "path": _path,
}
