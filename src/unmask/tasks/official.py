"""Tasks that others have published: GSM8K, HumanEval and JSON Mode Eval.

The package has no copy of their data. It is read from a folder that the user names, or from the hub, and checked
against the hashes in official.toml before anything is made of it: a changed row would change every split.
"""

import gzip
import hashlib
import importlib.resources
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import format_path, open_file, os_error_text
from unmask.base.json_files import parse_json
from unmask.tasks import code_answers, scorers
from unmask.tasks.draw import Json, canonical_json
from unmask.tasks.extract import spell_json
from unmask.tasks.splits import split_ids
from unmask.tasks.task import TRAINING, DataDir, Example, Scorer, Task, split_counts

DATA_VARIABLE = "UNMASK_DATA"
"""Environment variable with the data folder to use where no folder is given."""

Row = Mapping[str, Any]


class MissingData(ConfigError):
    """Error for a missing data file. The message says which file to put where."""


class ChangedData(SchemaError):
    """Error for a data file that differs from the one that the splits were made from."""


@dataclass(frozen=True)
class DataFile:
    """A file of an official data set with its hashes and origin, as a table of official.toml describes it."""

    path: str
    """Place in the data folder."""
    sha256: str
    rows: int
    fields: tuple[str, ...]
    """Fields that are read; others are dropped."""
    id_format: str
    """Id of a row, from its number and its fields."""
    rows_sha256: str
    """Hash of the rows as canonical JSON. The hub keeps the same rows in files of another format."""
    origin: str
    licence: str
    hub: str
    hub_files: str


def _load_data_files() -> dict[str, DataFile]:
    tables = tomllib.loads(importlib.resources.files("unmask.tasks").joinpath("official.toml").read_text("utf-8"))
    return {name: DataFile(**{**table, "fields": tuple(table["fields"])}) for name, table in tables.items()}


_FILES = _load_data_files()
GSM8K_TEST, GSM8K_TRAIN = _FILES["gsm8k-test"], _FILES["gsm8k-train"]
HUMANEVAL_FILE, JSON_MODE_EVAL_FILE = _FILES["humaneval"], _FILES["json-mode-eval"]


# From a file to rows


def read_rows(file: DataFile, data_dir: DataDir = None) -> Sequence[Row]:
    """Read the rows of a file: from the folder given, else from the folder in UNMASK_DATA, else from the hub.

    A folder that is named but lacks the file is an error, not a reason to go to the network.
    """
    folder = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE)
    if not folder:
        return _read_from_hub(file)
    path = Path(folder) / file.path
    try:
        stat = path.stat()
    except (OSError, ValueError) as error:
        _raise_missing_data(file, f"there is no {format_path(path)} ({os_error_text(error)})", path)
    return _read_from_folder(file, str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _read_from_folder(file: DataFile, path: str, size: int, modified: int) -> Sequence[Row]:
    """Read a file of the data folder, and check its hash. A replaced file has another cache key, and is read again."""
    try:
        with open_file(path) as opened:
            content = opened.read()
    except OSError as error:
        _raise_missing_data(file, f"{path!r} cannot be read ({os_error_text(error)})", Path(path))
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise ChangedData(
            f"{path!r} has sha256 {sha256}; allowed: {file.sha256}; get the file again from {file.origin} "
            "(a download that was cut short or a file with converted line ends looks like this)"
        )
    # The hash was that of these bytes, so what follows cannot fail for reasons of the file.
    text = (gzip.decompress(content) if path.endswith(".gz") else content).decode("utf-8")
    is_array = path.endswith(".json")
    return _check_rows(file, parse_json(text) if is_array else [parse_json(line) for line in text.split("\n") if line])


@lru_cache(maxsize=16)
def _read_from_hub(file: DataFile) -> Sequence[Row]:
    where = f"no data folder is given, and the hub's {file.hub} cannot be used instead"
    try:
        import pyarrow.parquet
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(repo_id=file.hub, repo_type="dataset", allow_patterns=[file.hub_files]))
        tables = [pyarrow.parquet.read_table(path).to_pylist() for path in sorted(folder.glob(file.hub_files))]
    except Exception as error:  # Whatever a client of the network raises, the remedy is the same.
        _raise_missing_data(file, f"{where}: {type(error).__name__}, {' '.join(str(error).split())[:200]}")
    rows = [row for table in tables for row in table]
    if not rows:
        _raise_missing_data(file, f"{where}: it has no file {file.hub_files}")
    return _check_rows(file, rows)


def _check_rows(file: DataFile, rows: Sequence[Row]) -> Sequence[Row]:
    """Check the rows against the stored hash, and return the fields of them that are used."""
    try:
        kept = tuple({field: row[field] for field in file.fields} for row in rows)
    except (KeyError, TypeError) as error:
        raise ChangedData(f"{file.path} lacks the field {error}; get it again from {file.origin}") from error
    # A hash of the rows does not depend on the format of the file that they came in.
    sha256 = hashlib.sha256("".join(f"{canonical_json(row)}\n" for row in kept).encode("ascii")).hexdigest()
    if sha256 != file.rows_sha256:
        raise ChangedData(
            f"{file.hub} has {len(kept)} rows with hash {sha256}; allowed: {file.rows} rows with hash "
            f"{file.rows_sha256}; put the file {file.path} from {file.origin} into a data folder instead"
        )
    return kept


def _raise_missing_data(file: DataFile, problem: str, path: Path | None = None) -> NoReturn:
    place = f"DATA/{file.path}, and name DATA with --data-dir or in {DATA_VARIABLE}"
    if path is not None:
        place = format_path(path)[1:-1]
    raise MissingData(f"{problem}; put {file.origin} (licence: {file.licence}) at {place}; its sha256 is {file.sha256}")


# From rows to examples


def read_examples(file: DataFile, make_example: Callable[[Row], Example], data_dir: DataDir = None) -> list[Example]:
    """Read a data file, and make an example of every row, in the order of the file."""
    rows = read_rows(file, data_dir)
    return [replace(make_example(row), id=file.id_format.format(at, **row)) for at, row in enumerate(rows)]


def make_gsm8k_example(row: Row) -> Example:
    """Make an example of a row of GSM8K; its solution, which the training texts use, is kept as a constraint."""
    # The answer stands after the last mark; the solution above it may hold the same signs.
    solution, _, target = row["answer"].rpartition("####")
    target = target.strip()
    prompt = (
        f"{row['question'].strip()}\n\n"
        "You may work it out step by step. Give the final number, and nothing else, inside <answer>...</answer>."
    )
    return Example(prompt, target, (target,), {"solution": solution.strip()}, level=1)


def make_humaneval_example(row: Row) -> Example:
    """Make an example of a row of HumanEval."""
    # The function stands last, so that a model without instruction tuning can simply continue it.
    prompt = f"Complete this Python function. Write code only.\n\n{row['prompt']}"
    constraints = {"prompt": row["prompt"], "entry_point": row["entry_point"], "test": row["test"]}
    solution = row["canonical_solution"]
    return Example(prompt, solution, (solution,), constraints, level=1)


def make_json_mode_example(row: Row) -> Example:
    """Make an example of a row of JSON Mode Eval. The prompt shows the schema as it was published."""
    schema: Json = parse_json(row["schema"])
    gold = parse_json(row["completion"])
    required = schema.get("required") if isinstance(schema, dict) else None
    request = next(message["content"] for message in row["prompt"] if message["role"] == "user")
    prompt = (
        "Answer the request with one JSON object that satisfies the schema.\n\n"
        f"Schema: {json.dumps(schema, ensure_ascii=False)}\n"
        f"Required fields: {', '.join(map(str, required)) if isinstance(required, list) else 'as the schema says'}\n"
        f"Request: {request.strip()}\n\n"
        "Give the object, and nothing else, inside <answer>...</answer>."
    )
    target = json.dumps(gold, ensure_ascii=False)
    parts = tuple(f"{key}={spell_json(value)}" for key, value in gold.items())
    return Example(prompt, target, parts, {"schema": intended_schema(schema, gold)}, level=1)


def intended_schema(schema: Json, gold: Mapping[str, Json]) -> Json:
    """Return the schema that answers must satisfy: the published one, or the intended one if that is malformed.

    Six published schemas have neither a type nor properties, and so would accept everything. Their keys are names.
    Names of types (`{"yield": "number"}`) mean that every field is required. One name around a schema means what the
    target shows: an object of that schema, or that name with such an object, or such objects under names that the
    request gives.
    """
    if not isinstance(schema, Mapping) or "type" in schema or "properties" in schema:
        return schema
    if all(isinstance(value, str) for value in schema.values()):
        return _make_all_required_schema({key: {"type": value} for key, value in schema.items()})
    ((name, inner),) = schema.items()
    required = inner["required"] if isinstance(inner, Mapping) else None
    if isinstance(required, list) and set(required) <= gold.keys():
        return inner
    if name in gold:
        return _make_all_required_schema({name: inner})
    return {"type": "object", "minProperties": 1, "additionalProperties": inner}


def _make_all_required_schema(properties: Mapping[str, Json]) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


# From examples to tasks


def official_task(
    name: str,
    title: str,
    scorer: Scorer,
    file: DataFile,
    make_example: Callable[[Row], Example],
    *,
    max_new_tokens: int,
    source: str,
    output: str,
    counts: Mapping[str, int],
    version: str,
    prompts_version: str = "",
    training_file: DataFile | None = None,
) -> Task:
    """Make a task of an official data file: its splits, and training examples if a training file is given."""

    def complete_example(example: Example, split: str) -> Example:
        return replace(example, task=name, split=split, scorer=scorer)

    def make_splits(data_dir: DataDir) -> Mapping[str, tuple[Example, ...]]:
        by_id = {example.id: example for example in read_examples(file, make_example, data_dir)}
        parts = split_ids(name, list(by_id), counts)
        return {split: tuple(complete_example(by_id[id], split) for id in ids) for split, ids in parts.items()}

    def make_training(start: int, data_dir: DataDir) -> Iterator[Example]:
        assert training_file is not None
        rows = read_examples(training_file, make_example, data_dir)
        return iter([complete_example(example, TRAINING) for example in rows[start:]])

    return Task(
        name=name,
        title=title,
        max_new_tokens=max_new_tokens,
        source=source,
        output=output,
        scorer=scorer,
        counts=counts,
        version=version,
        prompts_version=prompts_version or version,
        make_splits=make_splits,
        make_training=make_training if training_file else None,
    )


GSM8K = official_task(
    "gsm8k",
    "GSM8K",
    Scorer("binary", scorers.score_number),
    GSM8K_TEST,
    make_gsm8k_example,
    max_new_tokens=256,
    source="official",
    output="numeric answer",
    counts=split_counts(100, 200, 1019),
    version="2",
    prompts_version="1",
    training_file=GSM8K_TRAIN,
)
HUMANEVAL = official_task(
    "humaneval",
    "HumanEval",
    Scorer("test pass", code_answers.score_program, code_answers.score_programs),
    HUMANEVAL_FILE,
    make_humaneval_example,
    max_new_tokens=256,
    source="official",
    output="Python completion",
    counts=split_counts(24, 40, 100),
    version="2",
    prompts_version="1",
)
JSON_MODE_EVAL = official_task(
    "json-mode-eval",
    "JSON Mode Eval",
    Scorer("field credit", scorers.score_json_with_schema),
    JSON_MODE_EVAL_FILE,
    make_json_mode_example,
    max_new_tokens=128,
    source="public",
    output="schema JSON",
    counts=split_counts(16, 16, 68),
    version="2",
)
