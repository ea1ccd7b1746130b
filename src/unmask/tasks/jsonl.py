"""Examples and predictions as JSONL files.

One line is one JSON object in one spelling (sorted keys, ASCII), so the same examples are the same bytes everywhere.
Every line of an export carries the SHA-256 of itself without that field.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import atomic_write, format_path, open_file, os_error_text, storable
from unmask.base.json_files import parse_json
from unmask.tasks.base import Example, Json, canonical

LINE_LIMIT = 1 << 24
"""Bytes of one line of a file that is read."""

ID_KEYS = ("id", "task_id")
TEXT_KEYS = ("text", "prediction", "completion")
"""What a prediction's fields may be called. The last names are those of HumanEval's own sample files."""

_FIELDS: Mapping[str, type] = {
    "constraints": dict,
    "id": str,
    "level": int,
    "parts": list,
    "prompt": str,
    "split": str,
    "target": str,
    "task": str,
    "version": str,
}


@dataclass(frozen=True)
class Stored:
    """An example as an export holds it."""

    example: Example
    version: str
    sha256: str


@dataclass(frozen=True)
class StoredAnswer:
    """What some model answered to the example with this id, and the line of the file that says so."""

    id: str
    text: str
    line: int


def line(example: Example, version: str) -> str:
    """One line of an export, without the line end."""
    record: dict[str, Json] = {
        "constraints": example.constraints,
        "id": example.id,
        "level": example.level,
        "parts": list(example.parts),
        "prompt": example.prompt,
        "split": example.split,
        "target": example.target,
        "task": example.task,
        "version": version,
    }
    return canonical({**record, "sha256": _hash(record)})


def _hash(record: Mapping[str, Json]) -> str:
    return hashlib.sha256(canonical(record).encode("ascii")).hexdigest()


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> Path:
    """Write a file of lines, whole or not at all."""
    target = Path(path)
    try:
        with atomic_write(target) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{text}\n" for text in lines)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{str(target)!r} cannot be written ({os_error_text(error)}); choose another place"
        ) from error
    return target


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file with their line numbers. Empty lines are passed over."""
    place = format_path(path)
    try:
        with open_file(path) as file:
            number = 0
            while content := file.readline(LINE_LIMIT + 1):
                number += 1
                if len(content) > LINE_LIMIT:
                    raise SchemaError(f"line {number} of {place} is longer than {LINE_LIMIT} bytes; shorten it")
                if content.strip():
                    yield number, _object(content, number, place)
    except OSError as error:
        raise ConfigError(
            f"{place} cannot be read ({os_error_text(error)}); allowed: a JSONL file; check it"
        ) from error


def _object(content: bytes, number: int, place: str) -> dict[str, Any]:
    try:
        # A byte order mark is what some editors put at the start of a file.
        text = content.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"line {number} of {place} is not UTF-8 (byte {error.start + 1}); save the file as UTF-8"
        ) from error
    try:
        value = parse_json(text)
    except ValueError as error:
        raise SchemaError(
            f"line {number} of {place} is not JSON ({error}); allowed: one JSON object per line"
        ) from error
    if not isinstance(value, dict):
        raise SchemaError(
            f"line {number} of {place} is a JSON {type(value).__name__}; allowed: one JSON object per line"
        )
    return value


def read_examples(path: str | os.PathLike[str]) -> list[Stored]:
    """The examples of an export; every line is checked against its hash."""
    stored = []
    for number, record in read_lines(path):
        where = f"line {number} of {format_path(path)}"
        given = record.pop("sha256", None)
        for key, kind in _FIELDS.items():
            if not isinstance(record.get(key), kind):
                raise SchemaError(f"{where} has no {kind.__name__} {key!r}; allowed: a line of `unmask tasks export`")
        if _hash(record) != given:
            raise SchemaError(
                f"{where} does not have the hash it states; it was changed after its export; export again"
            )
        fields = {key: record[key] for key in _FIELDS if key not in ("parts", "version")}
        parts = tuple(str(part) for part in record["parts"])
        stored.append(Stored(Example(**fields, parts=parts), record["version"], given))
    return stored


def read_predictions(path: str | os.PathLike[str]) -> list[StoredAnswer]:
    """The predictions of a file: `{"id": ..., "text": ...}` per line, other fields ignored, no id twice."""
    answers: dict[str, StoredAnswer] = {}
    for number, record in read_lines(path):
        where = f"line {number} of {format_path(path)}"
        id = _text(record, ID_KEYS, where)
        if id in answers:
            raise SchemaError(
                f"{where} has the id {id!r}, which line {answers[id].line} has too; "
                "allowed: one prediction per id; keep one"
            )
        answers[id] = StoredAnswer(id, _text(record, TEXT_KEYS, where), number)
    return list(answers.values())


def _text(record: Mapping[str, Any], keys: tuple[str, ...], where: str) -> str:
    present = [key for key in keys if key in record]
    names = " or ".join(repr(key) for key in keys)
    if not present:
        raise SchemaError(f'{where} has no field {names}; allowed: {{"id": "...", "text": "..."}}; add it')
    if len(present) > 1 and keys is TEXT_KEYS:
        raise SchemaError(f"{where} has the fields {', '.join(present)}; allowed: one of them; drop the others")
    value = record[present[0]]
    if not isinstance(value, str):
        raise SchemaError(f"{where} has a {type(value).__name__} in {present[0]!r}; allowed: a string; write a string")
    return storable(value)
