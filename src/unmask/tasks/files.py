"""Examples and predictions as JSONL files.

One line is one JSON object in one spelling (sorted keys, ASCII), so the same examples are the same bytes everywhere.
Every line of an export carries the SHA-256 of itself without that field.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import atomic_write, format_path, open_file, os_error_text, storable
from unmask.base.json_files import parse_json
from unmask.tasks.draw import Json, canonical
from unmask.tasks.registry import TASKS, find_task
from unmask.tasks.task import SPLITS, DataDir, Example, OnVerdict, Verdict, score_all

LINE_LIMIT = 1 << 24
"""Bytes of the longest line that is read."""

ID_KEYS = ("id", "task_id")
TEXT_KEYS = ("text", "prediction", "completion")
"""Names that the fields of a prediction may have. The last ones are those of HumanEval's own sample files."""


def example_record(example: Example) -> dict[str, Json]:
    """Return an example as plain JSON values."""
    names = ("prompt", "target", "parts", "constraints", "level", "id", "task", "split")
    return {name: getattr(example, name) for name in names}


def example_line(example: Example, version: str) -> str:
    """Write one line of an export, without the line end."""
    record = {**example_record(example), "version": version}
    return canonical({**record, "sha256": hashlib.sha256(canonical(record).encode("ascii")).hexdigest()})


def export_tasks(
    folder: str | os.PathLike[str],
    names: Sequence[str] | None = None,
    splits: Sequence[str] = SPLITS,
    data_dir: DataDir = None,
) -> tuple[Path, ...]:
    """Write `TASK.SPLIT.jsonl` for every task and split asked for; for all ten tasks if none is named."""
    # All examples before the first file: a missing data set should not leave half an export behind.
    tasks = [find_task(name) for name in (names if names is not None else TASKS)]
    parts = [(task, split, task.examples(split, data_dir)) for task in tasks for split in splits]
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the folder {format_path(place)} cannot be made ({os_error_text(error)}); choose another"
        ) from error
    paths = []
    for task, split, examples in parts:
        paths.append(place / f"{task.name}.{split}.jsonl")
        lines = [f"{example_line(example, task.prompts_version)}\n" for example in examples]
        try:
            # With one line end everywhere: the same examples are the same bytes on every system.
            with atomic_write(paths[-1]) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{str(paths[-1])!r} cannot be written ({os_error_text(error)}); choose another place"
            ) from error
    return tuple(paths)


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Iterate over the JSON objects of a file with their line numbers. Empty lines are passed over."""
    place = format_path(path)
    try:
        with open_file(path) as file:
            number = 0
            while content := file.readline(LINE_LIMIT + 1):
                number += 1
                if len(content) > LINE_LIMIT:
                    raise SchemaError(f"line {number} of {place} is longer than {LINE_LIMIT} bytes; shorten it")
                if content.strip():
                    yield number, _parse_line(content, number, f"line {number} of {place}")
    except OSError as error:
        raise ConfigError(
            f"{place} cannot be read ({os_error_text(error)}); allowed: a JSONL file; check it"
        ) from error


def _parse_line(content: bytes, number: int, where: str) -> dict[str, Any]:
    try:
        # A byte order mark is what some editors put at the start of a file.
        value = parse_json(content.decode("utf-8-sig" if number == 1 else "utf-8").strip())
    except UnicodeDecodeError as error:
        raise SchemaError(f"{where} is not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from error
    except ValueError as error:
        raise SchemaError(f"{where} is not JSON ({error}); allowed: one JSON object per line") from error
    if not isinstance(value, dict):
        raise SchemaError(f"{where} is a JSON {type(value).__name__}; allowed: one JSON object per line")
    return value


def read_predictions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read predictions by id: `{"id": ..., "text": ...}` per line, other fields ignored, no id twice."""
    texts: dict[str, str] = {}
    line_of: dict[str, int] = {}
    for number, record in read_lines(path):
        where = f"line {number} of {format_path(path)}"
        id = _read_text_field(record, ID_KEYS, where)
        if id in texts:
            raise SchemaError(
                f"{where} has the id {id!r}, which line {line_of[id]} has too; allowed: one prediction per id; keep one"
            )
        texts[id], line_of[id] = _read_text_field(record, TEXT_KEYS, where), number
    return texts


def _read_text_field(record: Mapping[str, Any], keys: tuple[str, ...], where: str) -> str:
    present = [key for key in keys if key in record]
    if not present:
        names = " or ".join(map(repr, keys))
        raise SchemaError(f'{where} has no field {names}; allowed: {{"id": "...", "text": "..."}}; add it')
    if len(present) > 1 and keys is TEXT_KEYS:
        raise SchemaError(f"{where} has the fields {', '.join(present)}; allowed: one of them; drop the others")
    value = record[present[0]]
    if not isinstance(value, str):
        raise SchemaError(f"{where} has a {type(value).__name__} in {present[0]!r}; allowed: a string; write a string")
    return storable(value)


def score_predictions(
    name: str,
    path: str | os.PathLike[str],
    split: str = "evaluation",
    data_dir: DataDir = None,
    workers: int | None = None,
    on_verdict: OnVerdict = lambda verdict: None,
) -> tuple[dict[str, Any], list[Verdict]]:
    """Score a file of predictions on one split of a task: a summary, and the verdicts in the order of the file.

    Predictions that the scorer could not score (`unavailable`), prompts without a prediction (`missing`) and ids of
    another split (`elsewhere`) or of none (`unknown`) are counted apart; the mean leaves them all out.
    """
    task = find_task(name)
    examples = {example.id: example for example in task.examples(split, data_dir)}
    texts = read_predictions(path)
    if not texts:
        raise SchemaError(f'{str(path)!r} has no predictions; allowed: {{"id": "...", "text": "..."}} per line')
    others = {example.id for other in SPLITS if other != split for example in task.examples(other, data_dir)}
    strangers = [id for id in texts if id not in examples]
    elsewhere = [id for id in strangers if id in others]
    if len(strangers) == len(texts):
        raise SchemaError(
            f"{str(path)!r} has no prediction for the {split} split of {name}: "
            f"{len(elsewhere)} of its {len(texts)} ids belong to another split, the first id is "
            f"{next(iter(texts))!r}; allowed: ids such as {next(iter(examples))!r}; check the task and the split"
        )
    pairs = [(text, examples[id]) for id, text in texts.items() if id in examples]
    verdicts = score_all(pairs, workers, on_verdict)
    by_level: dict[int, list[float]] = {}
    for verdict in verdicts:
        if verdict.utility is not None:
            by_level.setdefault(examples[verdict.id].level, []).append(verdict.utility)
    scored = [utility for level in sorted(by_level) for utility in by_level[level]]
    summary = {
        "task": name,
        "split": split,
        "examples": len(examples),
        "scored": len(scored),
        "unavailable": len(verdicts) - len(scored),
        "mean": sum(scored) / len(scored) if scored else None,
        "perfect": sum(utility == 1.0 for utility in scored),
        "levels": [
            {"level": level, "scored": len(part), "mean": sum(part) / len(part)}
            for level, part in sorted(by_level.items())
        ],
        "missing": [id for id in examples if id not in texts],
        "elsewhere": elsewhere,
        "unknown": [id for id in strangers if id not in others],
    }
    return summary, verdicts
