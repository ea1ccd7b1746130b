"""Exceptions taken apart into plain parts, and others like them put together."""

import builtins
from typing import Any

MESSAGE = 10_000
"""Characters that cross of what an exception says, where it says it in a way of its own."""
_OWN_WORDS = "__str__"
# What some built-in exceptions know beside their arguments.
_ATTRIBUTES = ("filename", "filename2", "name", "path")


def apart(error: BaseException) -> list[Any]:
    """Name, built-in classes from the nearest on, arguments, attributes, and the message if the class is not built in.

    The class may be the completion's own, and fail at anything.
    """
    name, kinds = _names(error)
    known = {name: getattr(error, name, None) for name in _ATTRIBUTES}
    attributes = {name: value for name, value in known.items() if value is not None} | vars(error)
    return [name, kinds, list(error.args), attributes, message(error) if name not in kinds[:1] else None]


def brief(error: BaseException) -> BaseException:
    """One like it that says the same and holds nothing else, for one whose parts cannot cross."""
    name, kinds = _names(error)
    words = message(error)[:400]
    return together(name[:100], kinds, [words], {}, words)


def _names(error: BaseException) -> tuple[str, list[str]]:
    """Of its class and of those built-in classes that it derives from."""
    kinds = type.mro(type(error))
    names = [str(type.__dict__["__name__"].__get__(kind)) for kind in kinds]
    return names[0], [name for name, kind in zip(names, kinds, strict=True) if getattr(builtins, name, None) is kind]


def together(
    name: str, kinds: list[str], args: list[Any], attributes: dict[str, Any], words: str | None
) -> BaseException:
    """An exception like the one the completion raised: of its nearest built-in class, under its own name."""
    classes = (getattr(builtins, kind, None) for kind in kinds)
    base = next((kind for kind in classes if isinstance(kind, type) and issubclass(kind, BaseException)), Exception)
    kind = base
    if words is not None:
        kind = type(name.replace("\0", ""), (base,), {_OWN_WORDS: lambda error: words})
    try:
        error = kind(*args)
    except Exception:
        # It takes other arguments than it keeps.
        error = kind.__new__(kind) if kind.__new__ is BaseException.__new__ else Exception()
        error.args = tuple(args)
    for key, value in attributes.items():
        if not key.startswith("__") or key == "__notes__":
            setattr(error, key, value)
    return error


def message(error: BaseException) -> str:
    """The beginning of what an exception says; its class may be the completion's own, and fail at that."""
    try:
        return str(error)[:MESSAGE]
    except BaseException:
        return "(no message)"
