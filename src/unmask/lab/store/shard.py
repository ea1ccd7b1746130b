"""One shard: its name, its tables as Parquet, and the info file with their hashes, which is written last.

    shards/NAME.KEY/    states.parquet, branches.parquet, readings.parquet, shard.json
    decodes/NAME.KEY/   decodes.parquet, unit.json

KEY is a hash of the class name and the fields that the kinds had when they were two classes. It names the folder of
every stored shard, so neither may ever change.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unmask.base.errors import ContractError, SchemaError
from unmask.base.json_files import HashMismatch, from_hashed_json, hash_body, parse_json, to_hashed_json
from unmask.lab.store.remote import StoreFiles
from unmask.lab.store.schemas import FORMAT, fingerprint, plain_schema, schema_of, sort_table, table_hash

ShardKind = Literal["branches", "decodes"]
Info = dict[str, Any]
"""The content of an info file: counts, costs and versions, and rows and hashes of each table."""


class Layout(NamedTuple):
    """How a kind of shard is stored."""

    folder: str
    info_file: str
    class_name: str  # stored name
    tables: tuple[str, ...]
    fields: tuple[str, ...]
    """Fields of `Shard` that belong to this kind, in the order in which they are stored."""

    @property
    def info_key(self) -> str:
        """Entry of the info file that holds the shard's fields."""
        return self.class_name.lower()


LAYOUTS: dict[ShardKind, Layout] = {
    "branches": Layout(
        *("shards", "shard.json", "Shard"),
        tables=("states", "branches", "readings"),
        fields=("model", "task", "split", "block", "depends"),
    ),
    "decodes": Layout("decodes", "unit.json", "Unit", tables=("decodes",), fields=("model", "task", "depends")),
}
KIND_OF_TABLE: dict[str, ShardKind] = {table: kind for kind, layout in LAYOUTS.items() for table in layout.tables}
LONGEST_NAME = 40
"""Characters kept of a model's and of a task's name: with the rest of a name far from any file system's limit."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A group of prompts of one model and task with its tables: branches of a split, or whole decodes."""

    kind: ShardKind
    model: str
    task: str
    depends: str
    """Fingerprint of everything that its numbers depend on."""
    split: str = ""
    block: int = 0
    """Number of the group of prompts. Split and block belong to shards of branches alone."""

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.kind]

    @property
    def stored_fields(self) -> dict[str, Any]:
        """The fields that the info file holds and the key hashes."""
        return {name: getattr(self, name) for name in self.layout.fields}

    @property
    def name(self) -> str:
        """Name of the folder: readable parts, then the key, which alone tells shards apart."""
        group = [self.split, f"{self.block:04d}"] if "block" in self.layout.fields else []
        key = fingerprint([self.layout.class_name, self.stored_fields])
        return ".".join([_readable(self.model), _readable(self.task), *group, key])

    @property
    def path(self) -> str:
        """Folder of the shard within its store."""
        return f"{self.layout.folder}/{self.name}"


def _readable(name: str) -> str:
    """Return the end of a name, which says most of a path, in characters that every file system has; never hidden."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[-LONGEST_NAME:].strip("-") or "unnamed"


class DamagedShard(SchemaError):
    """The files of a shard are damaged or incomplete."""

    def __init__(self, store: Path | str, path: str, reason: str):
        self.reason = reason
        folder, name = path.split("/")
        super().__init__(
            f"{name!r} in {f'{store}/{folder}'!r} is damaged ({reason}); allowed: its files as they were written; "
            f"`unmask study status --verify {store}` lists what is, and `unmask study run FILE --out {store}` measures "
            "it again"
        )


class OtherFormat(SchemaError):
    """A folder was written in a format that this version does not read."""


def read_body(files: StoreFiles, name: str, kind: str) -> dict[str, Any]:
    """Read a hashed JSON file of the store's format; refuse another format by name, and raise ValueError at damage.

    A folder of another version must never pass for a damaged one: a run sets damage aside and measures again.
    """
    text = files.read(name).decode()
    try:
        return from_hashed_json(FORMAT, text, dict, kind=kind)
    except HashMismatch:
        try:
            whole = parse_json(text)
        except ValueError:
            whole = None
        other = whole.get("format") if isinstance(whole, dict) else None
        # A file of ours whose format was damaged still has the hash of its body under our format.
        if isinstance(other, str) and other != FORMAT and whole.get("hash") != hash_body(FORMAT, whole.get("body")):
            raise OtherFormat(
                f"format of {str(files.address)!r} is {other[:40]!r} ({name}); allowed: {FORMAT!r}, which this version "
                "writes; read it with the version that wrote it, or run its study again with `unmask study run FILE "
                "--out NEWFOLDER`; what is there is left as it is"
            ) from None
        raise


# Writing


def encode_shard(shard: Shard, tables: Mapping[str, pa.Table], info: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a shard, the info file last; a table that is left out is stored without rows."""
    files, about = {}, {}
    for name in shard.layout.tables:
        given = tables.get(name, plain_schema(name).empty_table())
        if "utility" in given.column_names and name != "readings":
            check_utilities(given)
        whole = sort_table(name, given.cast(plain_schema(name, given.column_names)))
        buffer = pa.BufferOutputStream()
        pq.write_table(whole.cast(schema_of(name, given.column_names)), buffer, compression="zstd")
        content: bytes = buffer.getvalue().to_pybytes()
        files[f"{name}.parquet"] = content
        about[name] = {"rows": len(whole), "content": table_hash(whole), "bytes": _bytes_hash(content)}
    # Set last: the info of another shard, which a caller may have changed into this one's, holds that shard's fields.
    body = {**info, shard.layout.info_key: shard.stored_fields, "tables": about}
    return {**files, shard.layout.info_file: to_hashed_json(FORMAT, body).encode()}


def check_utilities(table: pa.Table) -> None:
    """Refuse utilities outside [0, 1]; a missing one means that the evaluator could not tell."""
    utility = np.asarray(table["utility"].to_numpy(), float)
    bad = utility[(utility < 0) | (utility > 1)]
    if len(bad):
        raise ContractError(f"a utility is {bad[0]}; allowed: 0 to 1, or none with a reason; correct the evaluator")


def _bytes_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# Reading

_UNREADABLE: tuple[type[Exception], ...] = (OSError, ValueError, TypeError, KeyError, AttributeError, pa.ArrowException)
"""Errors that damaged files raise on the way to a table. A failing network raises `StorageError`, which is none."""


def read_info(files: StoreFiles, kind: ShardKind, name: str, study: str | None = None) -> tuple[Shard, Info]:
    """Read a shard's info file; refuse one that is damaged, of another shard, or of another study than `study`."""
    layout, path = LAYOUTS[kind], f"{LAYOUTS[kind].folder}/{name}"
    try:
        info: Info = read_body(files, f"{path}/{layout.info_file}", layout.info_key)
        shard = Shard(kind=kind, **info[layout.info_key])
        tables, owner = set(info["tables"]), info["study"]
    except _UNREADABLE as error:
        raise DamagedShard(files.address, path, f"{layout.info_file}: {_reason(error)}") from error
    if shard.name != name or tables != set(layout.tables):
        raise DamagedShard(files.address, path, f"{layout.info_file} is that of {shard.name}")
    if study is not None and owner != study:
        raise DamagedShard(files.address, path, "it belongs to another study")
    return shard, info


def read_table(files: StoreFiles, shard: Shard, name: str, info: Info) -> pa.Table:
    """Read one table of a shard with plain strings; refuse it unless its bytes are those that were written."""
    try:
        content = files.read(f"{shard.path}/{name}.parquet")
        if _bytes_hash(content) != info["tables"][name]["bytes"]:
            raise ValueError("its bytes are not those that were written")
        table = pq.read_table(pa.BufferReader(content))
        wanted = plain_schema(name, table.column_names)
        return table.select(wanted.names).cast(wanted)
    except _UNREADABLE as error:
        raise DamagedShard(files.address, shard.path, f"{name}.parquet: {_reason(error)}") from error


def verify_shard(files: StoreFiles, kind: ShardKind, name: str, study: str | None = None) -> tuple[Shard, Info]:
    """Read all of a shard: bytes, values, columns and utilities. Raises `DamagedShard`."""
    shard, info = read_info(files, kind, name, study)
    for table_name in shard.layout.tables:
        table = read_table(files, shard, table_name, info)
        # Bytes alone would let a table pass that somebody wrote anew together with its hash.
        if table_hash(table) != info["tables"][table_name]["content"]:
            reason = f"{table_name}.parquet: its values are not those that were written"
            raise DamagedShard(files.address, shard.path, reason)
        try:
            if table_name in ("branches", "decodes"):
                check_utilities(table)
        except ContractError as error:
            raise DamagedShard(files.address, shard.path, f"{table_name}.parquet: {error}") from error
    return shard, info


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = f"no {error}" if isinstance(error, KeyError) else str(error)
    return text.splitlines()[0] if text else type(error).__name__
