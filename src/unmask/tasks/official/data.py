"""Files of data sets: found in a folder or on the hub, and checked before anything is read from them.

The package has no copy of them. They come from a folder that the user names, or from the hub, and are checked
against the hashes that their tasks state: a changed file would change every split.
"""

import gzip
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import format_path, open_file, os_error_text
from unmask.base.json_files import parse_json
from unmask.tasks.base import DataDir, canonical

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


def rows(file: DataFile, data_dir: DataDir = None) -> Sequence[Row]:
    """The rows of a file: from the folder given, else from the folder in UNMASK_DATA, else from the hub.

    A folder that is named but lacks the file is an error, not a reason to go to the network.
    """
    folder = data_dir if data_dir is not None else os.environ.get(VARIABLE)
    if not folder:
        return _from_hub(file)
    path = Path(folder) / file.path
    try:
        stat = path.stat()
    except (OSError, ValueError) as error:
        _missing(file, f"there is no {format_path(path)} ({os_error_text(error)})", path)
    return _from_file(file, str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _from_file(file: DataFile, path: str, size: int, changed: int) -> Sequence[Row]:
    """Size and time are arguments so that a file that has been replaced is read again."""
    try:
        with open_file(path) as opened:
            content = opened.read()
    except OSError as error:
        _missing(file, f"{path!r} cannot be read ({os_error_text(error)})", Path(path))
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise ChangedData(
            f"{path!r} has sha256 {sha256}; allowed: {file.sha256}; get the file again from {file.origin} "
            "(a download that was cut short or a file with converted line ends looks like this)"
        )
    text = (gzip.decompress(content) if path.endswith(".gz") else content).decode("utf-8")
    pieces = [text] if path.endswith(".json") else [line for line in text.split("\n") if line]
    try:
        values = [parse_json(piece) for piece in pieces]
    except ValueError as error:
        raise ChangedData(f"{path!r} is not JSON ({error}); get the file again from {file.origin}") from error
    return _checked(file, values[0] if path.endswith(".json") else values)


@lru_cache(maxsize=16)
def _from_hub(file: DataFile) -> Sequence[Row]:
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
    everything = [row for table in tables for row in table]
    if not everything:
        _missing(file, f"{where}: it has no file {file.hub_files}")
    return _checked(file, everything)


def _checked(file: DataFile, everything: Sequence[Row]) -> Sequence[Row]:
    """Only the fields in use, and only if they are the rows that the splits were made from."""
    try:
        kept = tuple({field: row[field] for field in file.fields} for row in everything)
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
    where = format_path(path)[1:-1] if path else f"DATA/{file.path}, and name DATA with --data-dir or in {VARIABLE}"
    raise MissingData(f"{problem}; put {file.origin} (licence: {file.licence}) at {where}; its sha256 is {file.sha256}")
