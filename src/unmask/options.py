"""Settings checked before anything runs: against the annotations of the class that holds them, and TOML files strictly.

A strict file has no unknown key, no missing one and no value of another type; study files and training runs are such.
"""

import inspect
import re
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from unmask.errors import ConfigError, UnknownName, require
from unmask.plain_files import read_plain
from unmask.text import storable

T = TypeVar("T")


def check_types(owner: Any, values: Mapping[str, Any], path: str) -> None:
    """Refuse values that do not have the annotated type of the owner's field."""
    hints = get_type_hints(owner)
    for name, value in values.items():
        # Something that was made by its name is shown by it: nobody typed its settings.
        label = getattr(value, "name", None) if is_dataclass(value) else None
        given = label if isinstance(label, str) else value
        require(fits(value, hints[name]), f"{name} of {path}", given, _words(hints[name]), "check its type")


_IN_WORDS = {
    r"\bbool\b": "true or false",
    r"\bSequence\[int\]": "a list of whole numbers, e.g. [3,4]",
    r"\bPolicy\b": "a method that decides step by step, e.g. llada",
}


def _words(hint: Any) -> str:
    """What an annotation allows, for somebody who types it on a command line."""
    # Without the modules: "Mapping[str, float]", not "collections.abc.Mapping[str, float]".
    text = re.sub(r"\w+\.", "", inspect.formatannotation(hint))
    for pattern, words in _IN_WORDS.items():
        text = re.sub(pattern, words, text)
    return text


def fits(value: object, hint: Any) -> bool:
    """Whether a value has the annotated type; a whole number is a float, a truth value is no number."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, arg) for arg in args)
    if hint in (int, float):
        # A whole number beyond all floats is no float.
        small = hint is int or isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
        return isinstance(value, (int, hint)) and not isinstance(value, bool) and small
    if origin is Literal:
        return any(value == arg and type(value) is type(arg) for arg in args)
    if origin is tuple and args[1:] == (...,):
        return isinstance(value, tuple | list) and all(fits(v, args[0]) for v in value)
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(args) and all(map(fits, value, args))
    if isinstance(value, Mapping):
        return hint is dict or (origin in (Mapping, dict) and all(fits(v, args[1]) for v in value.values()))
    if origin is Sequence:
        return isinstance(value, tuple | list) and all(fits(v, args[0]) for v in value)
    return isinstance(value, origin or hint)


def read_toml(path: str | Path, kind: str) -> dict[str, Any]:
    """The tables of a TOML file; `kind` is what messages call it, such as 'study file'."""
    try:
        # A byte order mark is what some editors put at the start of a file.
        return tomllib.loads(read_plain(path).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{kind} {str(path)!r} is not TOML ({error}); correct that line") from error
    except (OSError, ValueError) as error:
        # A path with a NUL in it is a ValueError.
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{kind} {str(path)[:300]!r} cannot be read ({why}); check the path") from error


def check_keys(where: str, table: Any, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Refuse what is no table, a key that is not among these, and a table without a required one."""
    keys = (*required, *optional)
    require(isinstance(table, Mapping), where, table, f"a table of keys: {', '.join(keys)}", "write it so")
    for key in table:
        check_name(f"key of {where}", key, keys)
    for key in required:
        if key not in table:
            raise ConfigError(
                f"{where} has no {key!r}; allowed: every one of {', '.join(required)}, for none has a default; add it"
            )


def check_name(kind: str, name: Any, known: Collection[str]) -> None:
    """Refuse a name that is not among the known ones, with those close to it."""
    if name not in known:
        raise UnknownName(kind, str(name), known)


def parse_part(owner: type[T], table: Any, where: str, required: Sequence[str] | None = None) -> T:
    """A table as the dataclass `owner`; keys are its fields, all of them required unless said otherwise."""
    names = [part.name for part in fields(owner)]  # type: ignore[arg-type]
    wanted = names if required is None else required
    check_keys(where, table, wanted, [name for name in names if name not in wanted])
    check_types(owner, table, where)
    try:
        return owner(**table)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def parse_text(name: str, value: Any) -> str:
    """A text that is not empty."""
    require(isinstance(value, str) and bool(value), name, value, "a text", "write it in quotes")
    return storable(value)


def parse_whole(name: str, value: Any, least: int) -> int:
    """A whole number."""
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(ok, name, value, f"a whole number, {least} or more", "change it")
    return int(value)


def parse_number(name: str, value: Any, least: float) -> float:
    """A finite number."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and least <= value < float("inf")
    require(ok, name, value, f"a number, {least:g} or more", "change it")
    return float(value)


def parse_names(name: str, value: Any) -> tuple[str, ...]:
    """One name or more, each of them once."""
    ok = isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    require(ok and len(set(value)) == len(value), name, value, "a list of names, none twice", "change the list")
    return tuple(map(storable, value))


# A policy and its settings in one text: NAME or FILE.py:Class, then :KEY=VALUE,KEY=VALUE

POLICY_FORMS = "a name of `unmask methods`, path.py:Class or package.module:Class, then :KEY=VALUE,KEY=VALUE"


def split_policy(text: str, option: str = "--policy") -> tuple[str, str]:
    """Name and settings: the first part between colons that has a `=` begins the settings."""
    parts = text.split(":")
    at = next((at for at, part in enumerate(parts) if "=" in part), len(parts))
    name, given = ":".join(parts[:at]).strip(), ":".join(parts[at:])
    if not name:
        raise ConfigError(f"{option} {text!r} names no policy; allowed: {POLICY_FORMS}; begin with a name")
    return name, given


def pairs(option: str, given: list[str] | None, lists: Sequence[str] = ()) -> dict[str, Any]:
    """KEY=VALUE texts as a dict; the values of `lists` are names, with commas between them or given one by one."""
    values: dict[str, Any] = {}
    for text in given or []:
        key, equals, raw = text.partition("=")
        if not (key.strip() and equals):
            raise ConfigError(f"{option} {text!r} is not KEY=VALUE; allowed: e.g. block_length=4; add the value")
        if key.strip() in lists:
            values[key.strip()] = [*values.get(key.strip(), []), *split_commas(raw)]
            continue
        if key.strip() in values:
            raise ConfigError(f"{option} {key.strip()} is given twice; allowed: once; drop one of them")
        values[key.strip()] = parse_value(raw)
    return values


def split_commas(text: str) -> list[str]:
    """KEY=VALUE,KEY=VALUE cut at the commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts] if text.strip() else []


def parse_value(raw: str) -> Any:
    """A value as TOML would read it (4, 0.5, true, [1, 2], {a = 1}, "text"), `none`, or the bare text."""
    text = raw.strip()
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed["value"] if list(parsed) == ["value"] else text
    return value if isinstance(value, int | float | str | list | dict) else text
