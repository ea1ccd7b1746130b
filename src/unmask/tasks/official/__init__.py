"""GSM8K, HumanEval and JSON Mode Eval, read from their publishers' files.

The package has no copy of them. They come from a folder that the user names, or from the hub, and are checked
against the hashes below before anything is read from them: a changed file would change every split.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from unmask.errors import ConfigError, SchemaError
from unmask.tasks.base import Draft, Json, canonical
from unmask.tasks.scoring.extract import spell

VARIABLE = "UNMASK_DATA"
"""The environment variable that names the data folder when no folder is given."""

Row = Mapping[str, Any]


class MissingData(ConfigError):
    """A data file is not there; the message says what to put where."""


class ChangedData(SchemaError):
    """A data file is not the one that the splits were made from."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, and how to tell that it is the right one."""

    path: str
    """Where it belongs in the data folder."""
    sha256: str
    rows: int
    fields: tuple[str, ...]
    rows_sha256: str
    """Of the rows as canonical JSON. The hub keeps the same rows in files of another format."""
    origin: str
    licence: str
    hub: str
    hub_files: str


_GSM8K = "https://github.com/openai/grade-school-math at 3101c7d5072418e28b9008a6636bde82a006892c"
_HUMANEVAL = "https://github.com/openai/human-eval at 6d43fb980f9fee3c892a914eda09951f772ad10d"
# The publisher has the rows in another format; this is a copy as a JSON array.
_JSON_MODE = "https://github.com/PeterPonyu/scMetaIntel-Hub at d15b6662d023b0f1fee0452b96fdc129cc27fa78"

FILES = {
    "gsm8k": DataFile(
        path="gsm8k/test.jsonl",
        sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        rows=1319,
        fields=("question", "answer"),
        rows_sha256="176818e0349688ae3031a37f2fe8f454e7575635b88232abfc6b3387320e6605",
        origin=f"grade_school_math/data/test.jsonl of {_GSM8K}",
        licence="MIT",
        hub="openai/gsm8k",
        hub_files="main/test-*.parquet",
    ),
    "gsm8k-train": DataFile(
        path="gsm8k/train.jsonl",
        sha256="17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
        rows=7473,
        fields=("question", "answer"),
        rows_sha256="37a62873b589a3c35f35f4e3e34d2e054679c86d05ed1330ad4f3367ea76bfd0",
        origin=f"grade_school_math/data/train.jsonl of {_GSM8K}",
        licence="MIT",
        hub="openai/gsm8k",
        hub_files="main/train-*.parquet",
    ),
    "humaneval": DataFile(
        path="humaneval/HumanEval.jsonl.gz",
        sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
        rows=164,
        fields=("task_id", "prompt", "entry_point", "canonical_solution", "test"),
        rows_sha256="9345bdf84c12086d808c671a8f61f2fa89353e1c147804ec9c2223102d7dadc3",
        origin=f"data/HumanEval.jsonl.gz of {_HUMANEVAL}",
        licence="MIT",
        hub="openai/openai_humaneval",
        hub_files="openai_humaneval/test-*.parquet",
    ),
    "json-mode-eval": DataFile(
        path="json_mode_eval/json_mode_eval.json",
        sha256="899da15b8b86a656c44ee7dd0f1e215f55fa1a67ec897e09ed4e200da6c662b9",
        rows=100,
        fields=("prompt", "completion", "schema"),
        rows_sha256="ec9ffd4d5fbfa0a64d8fc9cb8a156b05f28a1cd0e2a05e41f17b7319c8b275c7",
        origin=f"benchmarks/public_datasets/structured_output/json_mode_eval.json of {_JSON_MODE}",
        licence="none stated by its publisher; for evaluation only",
        hub="NousResearch/json-mode-eval",
        hub_files="data/train-*.parquet",
    ),
}


# Finding and checking files


def rows(name: str, data_dir: str | os.PathLike[str] | None = None) -> Sequence[Row]:
    """The rows of a file: from the folder given, else from the folder in UNMASK_DATA, else from the hub.

    A folder that is named but lacks the file is an error, not a reason to go to the network.
    """
    file = FILES[name]
    folder = data_dir if data_dir is not None else os.environ.get(VARIABLE)
    if not folder:
        return _from_hub(name)
    path = Path(folder) / file.path
    try:
        stat = path.stat()
    except OSError:
        _missing(file, f"there is no {str(path)!r}", path)
    return _from_file(name, str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _from_file(name: str, path: str, size: int, changed: int) -> Sequence[Row]:
    """Size and time are arguments so that a file that has been replaced is read again."""
    file = FILES[name]
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        _missing(file, f"{path!r} cannot be read ({error.strerror})", Path(path))
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise ChangedData(
            f"{path!r} has sha256 {found}; allowed: {file.sha256}; get the file again from {file.origin} "
            "(a download that was cut short or a file with converted line ends looks like this)"
        )
    text = (gzip.decompress(content) if path.endswith(".gz") else content).decode("utf-8")
    return _checked(
        file, json.loads(text) if path.endswith(".json") else [json.loads(s) for s in text.split("\n") if s]
    )


@lru_cache(maxsize=16)
def _from_hub(name: str) -> Sequence[Row]:
    file = FILES[name]
    where = f"no data folder is given, and the hub's {file.hub} cannot be used instead"
    try:
        import pyarrow.parquet
        from huggingface_hub import snapshot_download
    except ImportError as error:
        _missing(file, f"{where}: the Python package {error.name} is not installed")
    try:
        folder = Path(snapshot_download(repo_id=file.hub, repo_type="dataset", allow_patterns=[file.hub_files]))
        tables = [pyarrow.parquet.read_table(path).to_pylist() for path in sorted(folder.glob(file.hub_files))]
    except Exception as error:  # Whatever a client of the network raises, the remedy is the same.
        _missing(file, f"{where}: {type(error).__name__}, {' '.join(str(error).split())[:200]}")
    found = [row for table in tables for row in table]
    if not found:
        _missing(file, f"{where}: it has no file {file.hub_files}")
    return _checked(file, found)


def _checked(file: DataFile, found: Sequence[Row]) -> Sequence[Row]:
    """Only the fields in use, and only if they are the rows that the splits were made from."""
    try:
        kept = tuple({field: row[field] for field in file.fields} for row in found)
    except (KeyError, TypeError) as error:
        raise ChangedData(f"{file.path} lacks the field {error}; get it again from {file.origin}") from error
    if rows_hash(kept) != file.rows_sha256:
        raise ChangedData(
            f"{file.hub} has {len(kept)} rows with hash {rows_hash(kept)}; allowed: {file.rows} rows with hash "
            f"{file.rows_sha256}; put the file {file.path} from {file.origin} into a data folder instead"
        )
    return kept


def rows_hash(kept: Sequence[Row]) -> str:
    """A hash of the rows that does not depend on the file format they came in."""
    return hashlib.sha256("".join(f"{canonical(row)}\n" for row in kept).encode("ascii")).hexdigest()


def _missing(file: DataFile, problem: str, path: Path | None = None) -> NoReturn:
    where = str(path) if path else f"DATA/{file.path}, and name DATA with --data-dir or in {VARIABLE}"
    raise MissingData(f"{problem}; put {file.origin} (licence: {file.licence}) at {where}; its sha256 is {file.sha256}")


# From rows to examples

VERSIONS = {"gsm8k": "1", "humaneval": "1", "json-mode-eval": "1"}
"""Of the prompts below; the data has its own hashes."""


@dataclass(frozen=True)
class Numbered:
    """A draft with the id that its data set gives it."""

    id: str
    draft: Draft


def drafts(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Numbered]:
    """All examples of an official task, in the order of its file. `gsm8k-train` is the other file of GSM8K."""
    make = {"gsm8k": _gsm8k, "gsm8k-train": _gsm8k_train, "humaneval": _humaneval, "json-mode-eval": _json_mode}[name]
    return [make(number, row) for number, row in enumerate(rows(name, data_dir))]


def _gsm8k(number: int, row: Row) -> Numbered:
    return Numbered(f"gsm8k-test-{number:04d}", _word_problem(row))


def _gsm8k_train(number: int, row: Row) -> Numbered:
    return Numbered(f"gsm8k-train-{number:04d}", _word_problem(row))


def _word_problem(row: Row) -> Draft:
    solution, _, target = row["answer"].rpartition("####")
    prompt = (
        f"{row['question'].strip()}\n\n"
        "You may work it out step by step. Give the final number, and nothing else, inside <answer>...</answer>."
    )
    target = target.strip()
    return Draft(prompt, target, (target,), {"solution": solution.strip()}, level=1)


def _humaneval(number: int, row: Row) -> Numbered:
    # The function stands last, so that a model without instruction tuning can simply continue it.
    prompt = f"Complete this Python function. Write code only.\n\n{row['prompt']}"
    constraints = {"prompt": row["prompt"], "entry_point": row["entry_point"], "test": row["test"]}
    solution = row["canonical_solution"]
    return Numbered(row["task_id"], Draft(prompt, solution, (solution,), constraints, level=1))


def _json_mode(number: int, row: Row) -> Numbered:
    schema: Json = json.loads(row["schema"])
    gold = json.loads(row["completion"])
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
    parts = tuple(f"{key}={spell(value)}" for key, value in gold.items())
    return Numbered(f"json-mode-eval-{number:02d}", Draft(prompt, target, parts, {"schema": schema}, level=1))
