"""Tasks that others have published: GSM8K, HumanEval and JSON Mode Eval.

The package has no copy of their data. It is read from a folder that the user names, or from the hub, and checked
against the hashes below before anything is made of it: a changed row would change every split.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import format_path, open_file, os_error_text
from unmask.base.json_files import parse_json
from unmask.tasks import code_answers, scorers
from unmask.tasks.draw import Json, canonical
from unmask.tasks.extract import spell_json
from unmask.tasks.splits import cut_ids
from unmask.tasks.task import TRAINING, DataDir, Example, Scorer, Task, split_counts

DATA_VARIABLE = "UNMASK_DATA"
"""The environment variable that names the data folder where no folder is given."""

Row = Mapping[str, Any]


class MissingData(ConfigError):
    """A data file is not there; the message says what to put where."""


class ChangedData(SchemaError):
    """A data file is not the one that the splits were made from."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, and how to tell that it is the right one."""

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


def _gsm8k_file(name: str, rows: int, sha256: str, rows_sha256: str) -> DataFile:
    return DataFile(
        path=f"gsm8k/{name}.jsonl",
        sha256=sha256,
        rows=rows,
        fields=("question", "answer"),
        id_format=f"gsm8k-{name}-{{0:04d}}",
        rows_sha256=rows_sha256,
        origin=f"grade_school_math/data/{name}.jsonl of https://github.com/openai/grade-school-math at "
        "3101c7d5072418e28b9008a6636bde82a006892c",
        licence="MIT",
        hub="openai/gsm8k",
        hub_files=f"main/{name}-*.parquet",
    )


GSM8K_TEST = _gsm8k_file(
    "test",
    1319,
    "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    "176818e0349688ae3031a37f2fe8f454e7575635b88232abfc6b3387320e6605",
)
GSM8K_TRAIN = _gsm8k_file(
    "train",
    7473,
    "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    "37a62873b589a3c35f35f4e3e34d2e054679c86d05ed1330ad4f3367ea76bfd0",
)
HUMANEVAL_FILE = DataFile(
    path="humaneval/HumanEval.jsonl.gz",
    sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    rows=164,
    fields=("task_id", "prompt", "entry_point", "canonical_solution", "test"),
    id_format="{task_id}",
    rows_sha256="9345bdf84c12086d808c671a8f61f2fa89353e1c147804ec9c2223102d7dadc3",
    origin="data/HumanEval.jsonl.gz of https://github.com/openai/human-eval at "
    "6d43fb980f9fee3c892a914eda09951f772ad10d",
    licence="MIT",
    hub="openai/openai_humaneval",
    hub_files="openai_humaneval/test-*.parquet",
)
JSON_MODE_EVAL_FILE = DataFile(
    path="json_mode_eval/json_mode_eval.json",
    sha256="899da15b8b86a656c44ee7dd0f1e215f55fa1a67ec897e09ed4e200da6c662b9",
    rows=100,
    fields=("prompt", "completion", "schema"),
    id_format="json-mode-eval-{0:02d}",
    rows_sha256="ec9ffd4d5fbfa0a64d8fc9cb8a156b05f28a1cd0e2a05e41f17b7319c8b275c7",
    # Its publisher has the rows in another format; this is a copy as a JSON array.
    origin="benchmarks/public_datasets/structured_output/json_mode_eval.json of "
    "https://github.com/PeterPonyu/scMetaIntel-Hub at d15b6662d023b0f1fee0452b96fdc129cc27fa78",
    licence="none stated by its publisher; for evaluation only",
    hub="NousResearch/json-mode-eval",
    hub_files="data/train-*.parquet",
)


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
    return _read_from_file(file, str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _read_from_file(file: DataFile, path: str, size: int, modified: int) -> Sequence[Row]:
    """Read a file of the data folder. Size and time are part of the cache's key: a replaced file is read again."""
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
    if path.endswith(".json"):
        return _check_rows(file, parse_json(text))
    return _check_rows(file, [parse_json(line) for line in text.split("\n") if line])


@lru_cache(maxsize=16)
def _read_from_hub(file: DataFile) -> Sequence[Row]:
    where = f"no data folder is given, and the hub's {file.hub} cannot be used instead"
    try:
        import pyarrow.parquet
        from huggingface_hub import snapshot_download
    except ImportError as error:
        _raise_missing_data(file, f"{where}: the Python package {error.name} is not installed")
    try:
        folder = Path(snapshot_download(repo_id=file.hub, repo_type="dataset", allow_patterns=[file.hub_files]))
        tables = [pyarrow.parquet.read_table(path).to_pylist() for path in sorted(folder.glob(file.hub_files))]
    except Exception as error:  # Whatever a client of the network raises, the remedy is the same.
        _raise_missing_data(file, f"{where}: {type(error).__name__}, {' '.join(str(error).split())[:200]}")
    rows = [row for table in tables for row in table]
    if not rows:
        _raise_missing_data(file, f"{where}: it has no file {file.hub_files}")
    return _check_rows(file, rows)


def _check_rows(file: DataFile, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the fields in use, if they are the rows that the splits were made from."""
    try:
        kept = tuple({field: row[field] for field in file.fields} for row in rows)
    except (KeyError, TypeError) as error:
        raise ChangedData(f"{file.path} lacks the field {error}; get it again from {file.origin}") from error
    sha256 = hash_rows(kept)
    if sha256 != file.rows_sha256:
        raise ChangedData(
            f"{file.hub} has {len(kept)} rows with hash {sha256}; allowed: {file.rows} rows with hash "
            f"{file.rows_sha256}; put the file {file.path} from {file.origin} into a data folder instead"
        )
    return kept


def hash_rows(rows: Sequence[Row]) -> str:
    """Return a hash of rows that does not depend on the file format they came in."""
    return hashlib.sha256("".join(f"{canonical(row)}\n" for row in rows).encode("ascii")).hexdigest()


def _raise_missing_data(file: DataFile, problem: str, path: Path | None = None) -> NoReturn:
    where = (
        format_path(path)[1:-1] if path else f"DATA/{file.path}, and name DATA with --data-dir or in {DATA_VARIABLE}"
    )
    raise MissingData(f"{problem}; put {file.origin} (licence: {file.licence}) at {where}; its sha256 is {file.sha256}")


# From rows to examples


def read_examples(file: DataFile, make_example: Callable[[Row], Example], data_dir: DataDir = None) -> list[Example]:
    """Make an example of every row of a file, in the order of the file."""
    rows = read_rows(file, data_dir)
    return [replace(make_example(row), id=file.id_format.format(at, **row)) for at, row in enumerate(rows)]


def gsm8k_example(row: Row) -> Example:
    """Make an example of a row of GSM8K; its solution, which the training texts use, is kept as a constraint."""
    solution, _, target = row["answer"].rpartition("####")
    target = target.strip()
    prompt = (
        f"{row['question'].strip()}\n\n"
        "You may work it out step by step. Give the final number, and nothing else, inside <answer>...</answer>."
    )
    return Example(prompt, target, (target,), {"solution": solution.strip()}, level=1)


def humaneval_example(row: Row) -> Example:
    """Make an example of a row of HumanEval."""
    # The function stands last, so that a model without instruction tuning can simply continue it.
    prompt = f"Complete this Python function. Write code only.\n\n{row['prompt']}"
    constraints = {"prompt": row["prompt"], "entry_point": row["entry_point"], "test": row["test"]}
    solution = row["canonical_solution"]
    return Example(prompt, solution, (solution,), constraints, level=1)


def json_mode_example(row: Row) -> Example:
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
    """Return the schema that answers must satisfy: the published one, unless it has neither a type nor properties.

    Six published schemas are of that kind: by the book they accept everything. Their keys are names. Names of types
    (`{"yield": "number"}`) mean that every field is required. One name around a schema means what the target shows: an
    object of that schema, or that name with such an object, or such objects under names that the request gives.
    """
    if not isinstance(schema, Mapping) or "type" in schema or "properties" in schema:
        return schema
    if all(isinstance(value, str) for value in schema.values()):
        return _all_required({key: {"type": value} for key, value in schema.items()})
    ((name, inner),) = schema.items()
    required = inner["required"] if isinstance(inner, Mapping) else None
    if isinstance(required, list) and set(required) <= gold.keys():
        return inner
    if name in gold:
        return _all_required({name: inner})
    return {"type": "object", "minProperties": 1, "additionalProperties": inner}


def _all_required(properties: Mapping[str, Json]) -> Json:
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
    """Make a task whose splits are cut from one file, and whose training examples, if any, come from another."""

    def complete_example(example: Example, split: str) -> Example:
        return replace(example, task=name, split=split, scorer=scorer)

    def make_splits(data_dir: DataDir) -> Mapping[str, tuple[Example, ...]]:
        by_id = {example.id: example for example in read_examples(file, make_example, data_dir)}
        parts = cut_ids(name, list(by_id), counts)
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
    gsm8k_example,
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
    humaneval_example,
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
    Scorer("field credit", scorers.score_schema_object),
    JSON_MODE_EVAL_FILE,
    json_mode_example,
    max_new_tokens=128,
    source="public",
    output="schema JSON",
    counts=split_counts(16, 16, 68),
    version="2",
)
