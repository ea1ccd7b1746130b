"""Base class of options, checks of annotations, TOML files, and settings of the command line.

Fields of a subclass of `Options` are keywords in Python, flags in the shell and keys of files. Values are checked once,
where they enter, and pydantic's errors are translated to the wording of all error messages of this package.
"""

import inspect
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from unmask.base.errors import ConfigError, UnknownName, format_value, require
from unmask.base.files import os_error_text, read_file, replace_surrogates

T = TypeVar("T")


class Options(BaseModel):
    """Base class of options: frozen and strict, without unknown names or conversions between types.

    Two things differ from pydantic, because options are recorded and hashed: a whole number in a float field stays an
    `int`, and a list, from TOML or JSON, becomes the tuple that a field asks for.

    A field may have its own error message: `Field(json_schema_extra={"allowed": ..., "hint": ...})`. Checks of several
    fields are `model_validator(mode="after")` methods that call `require`.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _translate_pydantic_error(error, type(self), "") from None

    # pydantic would call this method for options inside options too, and the error would not say where they are. The
    # mark makes pydantic build them itself.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def from_table(cls, table: Any, where: str) -> Self:
        """Create options from a table of a file; `where` is its name in messages, e.g. "[model] of mini.toml"."""
        keys = ", ".join(cls.model_fields)
        require(isinstance(table, Mapping), where, table, f"a table of keys: {keys}", "write it so")
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise _translate_pydantic_error(error, cls, where) from None
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error

    @model_validator(mode="wrap")
    @classmethod
    def _validate_keeping_integers(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        given = {
            name: _lists_to_tuples(value)
            if name in cls.model_fields and _annotation_allows_tuple(cls.model_fields[name])
            else value
            for name, value in data.items()
        }
        checked = handler(given)
        for name in given:
            # Written to `__dict__`, because frozen options refuse assignment.
            if name in checked.__dict__:
                checked.__dict__[name] = _restore_integers(given[name], checked.__dict__[name])
        return checked


def _annotation_allows_tuple(annotated: Any) -> bool:
    """Whether a value of this type may itself be a tuple."""
    annotation = annotated.annotation if isinstance(annotated, FieldInfo) else annotated
    origin = get_origin(annotation)
    return origin is tuple or (
        origin in (Union, UnionType, Annotated) and any(map(_annotation_allows_tuple, get_args(annotation)))
    )


def _lists_to_tuples(value: Any) -> Any:
    """Turn a list, and all lists in it, into tuples."""
    return tuple(map(_lists_to_tuples, value)) if type(value) in (list, tuple) else value


def _restore_integers(given: Any, checked: Any) -> Any:
    """Undo pydantic's conversion of whole numbers in float fields: return 1 for a given 1, not 1.0."""
    if type(checked) is float and type(given) is int:
        return given
    if type(checked) is tuple and type(given) is tuple:
        return tuple(map(_restore_integers, given, checked))
    if type(checked) is dict and isinstance(given, Mapping):
        return {key: _restore_integers(given.get(key), value) for key, value in checked.items()}
    return checked


def _translate_pydantic_error(error: ValidationError, owner: type[Options], where: str) -> ConfigError:
    """Translate the first of pydantic's errors to the wording of this package: "X is Y; allowed: ...; what to do"."""
    first = error.errors(include_url=False)[0]
    kind, path = first["type"], first["loc"]
    names, field, siblings = _locate_pydantic_error(owner, path)
    of = f" of {where}" if where else ""
    if kind == "extra_forbidden":
        place = f"{'.'.join(names)}{of}" if names else where
        return UnknownName(f"key of {place}" if place else "option", str(path[-1]), siblings)
    if kind == "missing" and isinstance(path[-1], str):
        required = ", ".join(name for name, part in siblings.items() if part.is_required())
        return ConfigError(
            f"{where or owner.__name__} has no {'.'.join(names)!r}; allowed: every one of {required}, for none has a "
            "default; add it"
        )
    if kind == "literal_error":
        allowed, hint = str(first["ctx"]["expected"]), "choose one of these"
    elif field is not None and (kind.endswith("_type") or kind in ("missing", "too_long")):
        allowed, hint = describe_type(field.annotation), "check its type"
    else:
        allowed, hint = (_describe_range(field) if field is not None else "") or first["msg"], "change it"
    wording = field.json_schema_extra if field is not None and isinstance(field.json_schema_extra, dict) else {}
    name, given = f"{'.'.join(names)}{of}", format_value(first["input"])
    return ConfigError(f"{name} is {given}; allowed: {wording.get('allowed', allowed)}; {wording.get('hint', hint)}")


def _locate_pydantic_error(
    owner: type[Options], path: tuple[int | str, ...]
) -> tuple[list[str], FieldInfo | None, Mapping[str, FieldInfo]]:
    """Find the field of a pydantic error; return the names to show, that field, and the fields beside it.

    A path has names of fields, indices of tuples, keys of tables, and names of union branches, which are not shown.
    """
    names: list[str] = []
    field: FieldInfo | None = None
    inside: Mapping[str, FieldInfo] = owner.model_fields
    siblings = inside
    key_follows = False
    for part in path:
        siblings = inside
        if isinstance(part, int):
            names[-1] += f"[{part}]"
        elif key_follows:
            names.append(part)
            key_follows = False
        elif part in inside:
            names.append(part)
            field = inside[part]
            inner = _find_options_class(field.annotation)
            inside = {} if inner is None else inner.model_fields
            key_follows = any(
                get_origin(arg) in (dict, Mapping) for arg in (field.annotation, *get_args(field.annotation))
            )
    return names, field, siblings


def _find_options_class(annotation: Any) -> type[Options] | None:
    """Return the first subclass of `Options` in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _find_options_class(arg))), None)


def _describe_range(field: FieldInfo) -> str:
    """Describe the bounds of a field: "1 to 16", "0 or more", "above 0"."""
    words = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    bounds = {name: getattr(part, name) for part in field.metadata for name in words if hasattr(part, name)}
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']} to {bounds['le']}"
    return ", ".join(words[name].format(bound) for name, bound in bounds.items())


def check_annotations(
    kind: Any, values: Mapping[str, Any], name: str, fields_of: Mapping[str, str] | None = None
) -> None:
    """Check values against the types and ranges in the annotations of a dataclass `kind`, without converting them.

    `name` is the name of the dataclass in messages. `fields_of` maps keys of `values` to fields of `kind`, if their
    names differ.
    """
    checks = _annotation_checks(kind)
    for setting, value in values.items():
        annotation, adapter = checks[fields_of[setting] if fields_of else setting]
        try:
            # pydantic's strict mode wants a tuple where a command line or a file has a list.
            adapter.validate_python(
                _lists_to_tuples(value) if _annotation_allows_tuple(annotation) else value, strict=True
            )
        except ValidationError:
            label = getattr(value, "name", None) if is_dataclass(value) else None
            # A dataclass with a name was created by that name, so the message shows the name, not its settings.
            shown = label if isinstance(label, str) else value
            require(False, f"{setting} of {name}", shown, describe_annotation(annotation), "check its type and range")


@cache
def _annotation_checks(kind: type) -> dict[str, tuple[Any, TypeAdapter[Any]]]:
    hints = get_type_hints(kind, include_extras=True)
    config = ConfigDict(arbitrary_types_allowed=True)
    return {
        f.name: (hints[f.name], TypeAdapter(_with_instance_checks(hints[f.name]), config=config)) for f in fields(kind)
    }


def _with_instance_checks(annotation: Any) -> Any:
    """Replace classes in an annotation by `isinstance` checks: pydantic would check the fields of dataclasses."""
    if isinstance(annotation, type) and annotation.__module__ != "builtins":
        return Annotated[Any, PlainValidator(partial(_check_instance, annotation))]
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(map(_with_instance_checks, get_args(annotation)))]  # noqa: UP007
    return annotation


def _check_instance(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"no {kind.__name__}")
    return value


def describe_annotation(annotation: Any) -> str:
    """Describe the values that an annotation allows: "0 to 1", "a or b", "1 to 1000000, or None"."""
    if get_origin(annotation) in (Union, UnionType):
        *parts, last = map(describe_annotation, get_args(annotation))
        return f"{', '.join(parts)}, or {last}" if parts else last
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is Annotated:
        plain, *metadata = get_args(annotation)
        ranges = [_describe_range(part) for part in metadata if isinstance(part, FieldInfo)]
        return ", ".join(filter(None, ranges)) or describe_type(plain)
    return "None" if annotation is NoneType else describe_type(annotation)


_TYPE_WORDS = {
    r"\bbool\b": "true or false",
    r"\bSequence\[int\]": "a list of whole numbers, e.g. [3,4]",
    r"\bPolicy\b": "a method that decides step by step, e.g. llada",
}


def describe_type(hint: Any) -> str:
    """Describe the type in an annotation, for a user of the command line."""
    if isinstance(hint, type) and issubclass(hint, Options):
        return f"a table of keys: {', '.join(hint.model_fields)}"
    # Removes names of modules: "Mapping[str, float]" instead of "collections.abc.Mapping[str, float]".
    text = re.sub(r"\w+\.", "", inspect.formatannotation(hint))
    for pattern, words in _TYPE_WORDS.items():
        text = re.sub(pattern, words, text)
    return text


def read_toml(path: str | Path, kind: str) -> dict[str, Any]:
    """Read a TOML file; `kind` is its name in messages, such as "study file"."""
    try:
        # "utf-8-sig" skips the byte order mark that some editors write.
        return tomllib.loads(read_file(path).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{kind} {str(path)!r} is not TOML ({error}); correct that line") from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{kind} {str(path)[:300]!r} cannot be read ({os_error_text(error)}); check the path"
        ) from error


# Settings of the command line

POLICY_FORMS = "a name of `unmask methods`, path.py:Class or package.module:Class, then :KEY=VALUE,KEY=VALUE"


def parse_policy_spec(text: str, option: str = "--policy") -> tuple[str, dict[str, Any]]:
    """Split "name:key=value,..." into name and settings. The settings begin at the first part that has a "="."""
    parts = text.split(":")
    start = next((at for at, part in enumerate(parts) if "=" in part), len(parts))
    name, settings = ":".join(parts[:start]).strip(), ":".join(parts[start:])
    if not name:
        raise ConfigError(f"{option} {text!r} names no policy; allowed: {POLICY_FORMS}; begin with a name")
    return name, parse_settings(split_commas(settings), option)


def parse_settings(texts: Sequence[str] | None, option: str = "--set", lists: Sequence[str] = ()) -> dict[str, Any]:
    """Parse KEY=VALUE texts. Keys in `lists` collect names, separated by commas or given several times."""
    values: dict[str, Any] = {}
    for text in texts or []:
        key, equals, raw = text.partition("=")
        key = key.strip()
        if not (key and equals):
            raise ConfigError(f"{option} {text!r} is not KEY=VALUE; allowed: e.g. block_length=4; add the value")
        if key in lists:
            values[key] = [*values.get(key, []), *split_commas(raw)]
        elif key in values:
            raise ConfigError(f"{option} {key} is given twice; allowed: once; drop one of them")
        else:
            values[key] = parse_value(raw)
    return values


def split_commas(text: str) -> list[str]:
    """Split a text at the commas that are outside of brackets and quotes."""
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
    """Parse a value as TOML does (4, 0.5, true, [1, 2], {a = 1}, "text"); `none` is None, anything else a text."""
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


# Checks of tables that are not `Options`


def check_keys(where: str, table: Any, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Check that a value is a table with all required keys and no unknown key."""
    keys = (*required, *optional)
    require(isinstance(table, Mapping), where, table, f"a table of keys: {', '.join(keys)}", "write it so")
    for key in table:
        check_known_name(f"key of {where}", key, keys)
    for key in required:
        if key not in table:
            raise ConfigError(
                f"{where} has no {key!r}; allowed: every one of {', '.join(required)}, for none has a default; add it"
            )


def check_known_name(kind: str, name: Any, known: Collection[str]) -> None:
    """Refuse an unknown name; the message suggests similar ones."""
    if name not in known:
        raise UnknownName(kind, str(name), known)


def parse_dataclass(owner: type[T], table: Any, where: str, required: Sequence[str] | None = None) -> T:
    """Create an instance of the dataclass `owner` from a table of a file; its keys are the names of the fields.

    All keys are required, unless `required` lists the required ones.
    """
    names = [part.name for part in fields(owner)]  # type: ignore[arg-type]
    wanted = names if required is None else required
    check_keys(where, table, wanted, [name for name in names if name not in wanted])
    check_annotations(owner, table, where)
    try:
        return owner(**table)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def parse_text(name: str, value: Any) -> str:
    """Return a text that is not empty; refuse any other value."""
    require(isinstance(value, str) and bool(value), name, value, "a text", "write it in quotes")
    return replace_surrogates(value)


def parse_integer(name: str, value: Any, least: int) -> int:
    """Return a whole number of at least `least`; refuse any other value."""
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(ok, name, value, f"a whole number, {least} or more", "change it")
    return int(value)


def parse_number(name: str, value: Any, least: float) -> float:
    """Return a finite number of at least `least` as a float; refuse any other value."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and least <= value < float("inf")
    require(ok, name, value, f"a number, {least:g} or more", "change it")
    return float(value)


def parse_names(name: str, value: Any) -> tuple[str, ...]:
    """Return a list of names as a tuple; refuse an empty list and repeated names."""
    ok = isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    require(ok and len(set(value)) == len(value), name, value, "a list of names, none twice", "change the list")
    return tuple(map(replace_surrogates, value))
