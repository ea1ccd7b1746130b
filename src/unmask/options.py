"""Settings checked against the annotations of the class that holds them, before anything runs."""

import inspect
import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from unmask.errors import require


def check_types(owner: Any, values: Mapping[str, Any], path: str) -> None:
    """Refuse values that do not have the annotated type of the owner's field."""
    hints = get_type_hints(owner)
    for name, value in values.items():
        # Without the modules: "Mapping[str, float]", not "collections.abc.Mapping[str, float]".
        allowed = re.sub(r"\w+\.", "", inspect.formatannotation(hints[name]))
        require(fits(value, hints[name]), f"{name} of {path}", value, allowed, "check its type")


def fits(value: object, hint: Any) -> bool:
    """Whether a value has the annotated type; a whole number is a float, a truth value is no number."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, arg) for arg in args)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(args) and all(map(fits, value, args))
    if isinstance(value, Mapping):
        return origin is Mapping and all(fits(v, args[1]) for v in value.values())
    if origin is Sequence:
        return isinstance(value, tuple | list) and all(fits(v, args[0]) for v in value)
    return isinstance(value, origin or hint)
