"""One shard or unit on disk: its tables, and a file that says what they are, with hashes of their bytes and values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unmask.base.errors import ContractError, SchemaError
from unmask.base.files import sync_file
from unmask.base.json_files import from_hashed_json, to_hashed_json
from unmask.lab.store.hashes import bytes_hash, table_hash
from unmask.lab.store.places import Place, RemotePath
from unmask.lab.store.schemas import FORMAT, loose, schema_of, sort_keys
from unmask.lab.store.shards import SHARD, UNIT, Shard, Unit, write_synced

Info = dict[str, Any]
ABOUT = {Shard: SHARD, Unit: UNIT}
TABLES = {Shard: ("states", "branches", "readings"), Unit: ("decodes",)}
_READING: tuple[type[Exception], ...] = (OSError, ValueError, TypeError, KeyError, AttributeError, pa.ArrowException)


class DamagedPiece(SchemaError):
    """A shard or a unit is not what was written."""

    def __init__(self, folder: Place, why: str):
        self.why = why
        store = folder.parent.parent
        super().__init__(
            f"{folder.name!r} in {str(folder.parent)!r} is damaged ({why}); allowed: its files as they were written; "
            f"`unmask study check {store}` lists what is, and `unmask study run FILE --out {store}` measures it again"
        )


def write_piece(
    folder: Place, kind: type[Shard | Unit], tables: Mapping[str, pa.Table], info: Mapping[str, Any]
) -> None:
    """Fill a folder; what is written last vouches for the rest."""
    about = {}
    for name, table in tables.items():
        whole = in_order(name, table.cast(loose(name, table.column_names)))
        content = _write_table(folder / f"{name}.parquet", whole.cast(schema_of(name, table.column_names)))
        about[name] = {"rows": len(whole), "content": table_hash(whole), "bytes": bytes_hash(content)}
    write_synced(folder / ABOUT[kind], to_hashed_json(FORMAT, {**info, "tables": about}).encode())


def _write_table(path: Place, table: pa.Table) -> bytes:
    """The file's bytes, which the disk has or the object store."""
    if isinstance(path, RemotePath):
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        content: bytes = buffer.getvalue().to_pybytes()
        path.write_bytes(content)
        return content
    with path.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        sync_file(file)
    return path.read_bytes()


def in_order(name: str, table: pa.Table) -> pa.Table:
    """Sorted by its key."""
    keys = sort_keys(name, table.column_names)
    return table.take(pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys]))


def read_info(folder: Place, kind: type[Shard | Unit], study: str | None = None) -> Info:
    """What a piece says of itself; refused if that is not what was written, or not about this folder.

    `study` is the fingerprint of the one it has to belong to, None for any.
    """
    about = ABOUT[kind]
    try:
        text = (folder / about).read_bytes().decode()
        info: Info = from_hashed_json(FORMAT, text, dict, kind=kind.__name__.lower())
        name, tables = kind(**info[kind.__name__.lower()]).name, set(info["tables"])
    except _READING as error:
        raise DamagedPiece(folder, f"{about}: {_short(error)}") from error
    if name != folder.name or tables != set(TABLES[kind]):
        raise DamagedPiece(folder, f"{about} is that of {name}")
    if study is not None and info["study"] != study:
        raise DamagedPiece(folder, "it belongs to another study")
    return info


def read_table(folder: Place, name: str, info: Info) -> pa.Table:
    """One table of a piece with plain strings; refused unless its bytes are those that were written."""
    path = folder / f"{name}.parquet"
    try:
        content = path.read_bytes()
        if bytes_hash(content) != info["tables"][name]["bytes"]:
            raise ValueError("its bytes are not those that were written")
        table = pq.read_table(pa.BufferReader(content))
        wanted = loose(name, table.column_names)
        return table.select(wanted.names).cast(wanted)
    except _READING as error:
        raise DamagedPiece(folder, f"{path.name}: {_short(error)}") from error


def check_piece(folder: Place, kind: type[Shard | Unit], study: str | None = None) -> Info:
    """Read all of a piece: bytes, values, columns and utilities; returns what it says of itself."""
    info = read_info(folder, kind, study)
    for name in TABLES[kind]:
        table = read_table(folder, name, info)
        if table_hash(table) != info["tables"][name]["content"]:
            raise DamagedPiece(folder, f"{name}.parquet: its values are not those that were written")
        try:
            if name in ("branches", "decodes"):
                check_utilities(table)
        except ContractError as error:
            raise DamagedPiece(folder, f"{name}.parquet: {error}") from error
    return info


def _short(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = f"no {error}" if isinstance(error, KeyError) else str(error)
    return text.splitlines()[0] if text else type(error).__name__


def check_utilities(table: pa.Table) -> None:
    """Refuse values that no evaluator may give."""
    utility = np.asarray(table["utility"].to_numpy(), float)
    judged = utility[~np.isnan(utility)]
    if len(judged) and (judged.min() < 0 or judged.max() > 1):
        bad = judged[(judged < 0) | (judged > 1)][0]
        raise ContractError(f"a utility is {bad}; allowed: 0 to 1, or none with a reason; correct the evaluator")


def free_place(home: Place, name: str) -> Place:
    """The first place of that name and a number that nothing has."""
    taken = {path.name for path in home.iterdir()}
    at = 1
    while f"{name}.{at}" in taken:
        at += 1
    return home / f"{name}.{at}"
