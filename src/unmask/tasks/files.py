"""Examples and predictions as JSONL files.

One line is one JSON object in one spelling (sorted keys, ASCII), so the same examples are the same bytes everywhere.
Every line of an export carries the SHA-256 of itself without that field.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError, SchemaError, format_value
from unmask.base.files import format_path, open_file, os_error_text, storable, write_text
from unmask.base.json_files import parse_json
from unmask.tasks.draw import Json, canonical_json
from unmask.tasks.registry import TASKS, find_task
from unmask.tasks.task import SPLITS, DataDir, Example, OnVerdict, Verdict, score_all

LINE_LIMIT = 1 << 24
"""Longest line that is read, in bytes."""
ID_KEYS = ("id", "task_id")
TEXT_KEYS = ("text", "prediction", "completion")
"""Names that the text of a prediction may have. `task_id` and `completion` are those of HumanEval's sample files."""
PREDICTION = '{"id": "...", "text": "..."}'


def example_values(example: Example) -> dict[str, Json]:
    """Return the fields of an example as plain JSON values."""
    names = ("prompt", "target", "parts", "constraints", "level", "id", "task", "split")
    return {name: getattr(example, name) for name in names}


def write_example_line(example: Example, version: str) -> str:
    """Write an example as one line of JSON with its SHA-256, without the line end."""
    record = {**example_values(example), "version": version}
    return canonical_json({**record, "sha256": hashlib.sha256(canonical_json(record).encode("ascii")).hexdigest()})


def export_tasks(
    folder: str | os.PathLike[str],
    names: Sequence[str] | None = None,
    splits: Sequence[str] = SPLITS,
    data_dir: DataDir = None,
) -> tuple[Path, ...]:
    """Write the examples of tasks to files `TASK.SPLIT.jsonl`; of all ten tasks if none is named."""
    tasks = [find_task(name) for name in (names if names is not None else TASKS)]
    # All examples are made before the first file: a missing data set should not leave half an export behind.
    contents = {
        Path(folder) / f"{task.name}.{split}.jsonl": "".join(
            f"{write_example_line(example, task.prompts_version)}\n" for example in task.examples(split, data_dir)
        )
        for task in tasks
        for split in splits
    }
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            write_text(path, content)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"examples cannot be written to {format_path(folder)} ({os_error_text(error)}); choose another folder"
        ) from error
    return tuple(contents)


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over the JSON objects of a JSONL file, each with its place ("line 3 of 'x.jsonl'"). Skip empty lines."""
    number, place = 0, format_path(path)
    try:
        with open_file(path) as file:
            while content := file.readline(LINE_LIMIT + 1):
                number += 1
                where = f"line {number} of {place}"
                if len(content) > LINE_LIMIT:
                    raise SchemaError(f"{where} is longer than {LINE_LIMIT} bytes; shorten it")
                if content.strip():
                    yield where, _parse_json_line(content, where, is_first=number == 1)
    except OSError as error:
        raise ConfigError(
            f"{place} cannot be read ({os_error_text(error)}); allowed: a JSONL file; check it"
        ) from error


def _parse_json_line(content: bytes, where: str, is_first: bool) -> dict[str, Any]:
    try:
        # Some editors put a byte order mark at the start of a file.
        value = parse_json(content.decode("utf-8-sig" if is_first else "utf-8").strip())
    except UnicodeDecodeError as error:
        raise SchemaError(f"{where} is not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from error
    except ValueError as error:
        raise SchemaError(f"{where} is not JSON ({error}); allowed: one JSON object per line") from error
    if not isinstance(value, dict):
        raise SchemaError(f"{where} is a JSON {type(value).__name__}; allowed: one JSON object per line")
    return value


def read_predictions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read predictions from a JSONL file, as a mapping from example id to text. Refuse an id that occurs twice."""
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    for where, record in read_jsonl(path):
        # Sample files of HumanEval may have both names of the id, but two texts would contradict each other.
        keys = [key for key in ID_KEYS if key in record][:1], [key for key in TEXT_KEYS if key in record]
        for found, known in zip(keys, (ID_KEYS, TEXT_KEYS), strict=True):
            if len(found) != 1 or not isinstance(record[found[0]], str):
                names = " or ".join(map(repr, known))
                given = " and ".join(f"{key} = {format_value(record[key], 100)}" for key in found) or "nothing"
                raise SchemaError(f"{where} has {given} for {names}; allowed: one text, {PREDICTION}; correct it")
        id, text = (storable(record[found[0]]) for found in keys)
        if id in texts:
            raise SchemaError(f"{where} has the id {id!r} of {places[id]}; allowed: one prediction per id; keep one")
        texts[id], places[id] = text, where
    return texts


def score_predictions(
    name: str,
    path: str | os.PathLike[str],
    split: str = "evaluation",
    data_dir: DataDir = None,
    workers: int | None = None,
    on_verdict: OnVerdict = lambda verdict: None,
) -> tuple[dict[str, Any], list[Verdict]]:
    """Score a file of predictions on one split of a task; return a summary, and the verdicts in the order of the file.

    Predictions that the scorer could not score (`unavailable`), prompts without a prediction (`missing`) and ids of
    another split (`elsewhere`) or of none (`unknown`) are counted apart; the mean leaves them all out.
    """
    task = find_task(name)
    examples = {example.id: example for example in task.examples(split, data_dir)}
    texts = read_predictions(path)
    other_ids = {example.id for other in SPLITS if other != split for example in task.examples(other, data_dir)}
    elsewhere = [id for id in texts if id in other_ids]
    answers = [(text, examples[id]) for id, text in texts.items() if id in examples]
    if not answers:
        raise SchemaError(
            f"{format_path(path)} has no prediction for the {split} split of {name}: {len(elsewhere)} of its "
            f"{len(texts)} ids belong to another split; allowed: lines {PREDICTION} with ids such as "
            f"{next(iter(examples))!r}; check the task and the split"
        )
    verdicts = score_all(answers, workers, on_verdict)
    by_level: dict[int, list[float]] = {}
    for verdict in verdicts:
        if verdict.utility is not None:
            by_level.setdefault(examples[verdict.id].level, []).append(verdict.utility)
    # In the order of levels, because the last digits of a mean depend on the order of its sum.
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
        "unknown": [id for id in texts if id not in examples and id not in other_ids],
    }
    return summary, verdicts
