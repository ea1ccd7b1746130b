"""The tables of a study: columns, types, order, and the hashes of values. docs/formats.md describes every column.

Nothing here may change without a new `FORMAT`: the types and the order of rows are part of every content hash.
"""

import hashlib
import json
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FORMAT = "unmask-study-3"
"""Format of manifests and shards; any other is refused by name."""

_NAME = pa.dictionary(pa.int32(), pa.string())

FIRST_STEP = ("revealed", "revealed_tokens", "remasked", "newly_committed")
"""Columns for the effect of a branch's first action: canvas positions, and the revealed tokens."""
_KEYS = [("model", _NAME), ("task", _NAME), ("split", _NAME), ("prompt", _NAME), ("state", pa.int32())]
STATES = pa.schema(
    [
        *_KEYS,
        ("step", pa.int32()),
        ("masked", pa.int32()),
        ("horizon", pa.int32()),
        ("taken", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("fixed", pa.list_(pa.bool_())),
        ("committed", pa.list_(pa.bool_())),
        ("trajectory", pa.binary()),
    ]
)
BRANCHES = pa.schema(
    [
        *_KEYS,
        ("step", pa.int32()),
        ("masked", pa.int32()),
        ("axis", _NAME),
        ("candidate", _NAME),
        ("is_reference", pa.bool_()),
        ("rollout", pa.int32()),
        ("utility", pa.float64()),
        ("reason", _NAME),
        ("answer", _NAME),
        *((name, pa.list_(pa.int32())) for name in FIRST_STEP),
    ]
)
OWN_COST = (("extra_forwards", pa.int32()), ("extra_tokens", pa.int32()))
"""Columns of `branches` in studies of the policy axis, and in no other: what a method's own step took."""
READINGS = pa.schema(
    [
        *_KEYS,
        ("axis", _NAME),
        ("diagnostic", _NAME),
        ("signal", pa.float64()),
        ("abstained", pa.bool_()),
        ("snapped", _NAME),
        ("same", pa.list_(pa.string())),
        ("utility", pa.list_(pa.float64())),
        ("reason", pa.list_(pa.string())),
        ("answer", pa.list_(pa.string())),
        *((name, pa.list_(pa.list_(pa.int32()))) for name in FIRST_STEP),
        ("ingredients", pa.string()),
    ]
)
DECODES = pa.schema(
    [
        ("model", _NAME),
        ("task", _NAME),
        ("axis", _NAME),
        ("arm", _NAME),
        ("draw", pa.int32()),
        ("split", _NAME),
        ("prompt", _NAME),
        ("utility", pa.float64()),
        ("reason", _NAME),
        ("answer", _NAME),
        ("evaluated", pa.int32()),
        ("deviated", pa.int32()),
        ("forwards", pa.int32()),
    ]
)
SCHEMAS = {"states": STATES, "branches": BRANCHES, "readings": READINGS, "decodes": DECODES}
SORT = {
    "states": ["model", "task", "split", "prompt", "state"],
    "readings": ["model", "task", "split", "prompt", "state", "axis", "diagnostic"],
    "branches": ["model", "task", "split", "prompt", "state", "axis", "candidate", "rollout"],
    "decodes": ["model", "task", "axis", "arm", "draw", "split", "prompt"],
}
DIAGNOSTIC = ("diagnostic", _NAME)
"""Column of `decodes` in studies with a diagnostic that is not named after its axis, and in no other: whose arms they
are; empty for candidates on validation prompts, which belong to the axis. There it is part of the key."""
SUMMARY = tuple(
    (f"{what}_{how}", pa.float64()) for what in ("entropy", "margin") for how in ("mean", "spread", "least", "most")
)
"""Columns of `readings` in studies with a learned detector, and in no other: how sure the prediction was."""
OPTIONAL = {"branches": OWN_COST, "readings": SUMMARY, "decodes": (DIAGNOSTIC,)}
UNHASHED = ("trajectory",)
"""Packed values whose bytes depend on a compressor; what they hold is in the other columns."""


def schema_of(name: str, columns: Collection[str] = ()) -> pa.Schema:
    """Return the schema of a table, with those of its optional columns that are among `columns`."""
    optional = [column for column in OPTIONAL.get(name, ()) if column[0] in columns]
    return pa.schema([*SCHEMAS[name], *(pa.field(*column) for column in optional)])


def plain_schema(name: str, columns: Collection[str] = ()) -> pa.Schema:
    """Return the schema with plain strings in place of dictionaries: for rows that are put together, and for hashes."""
    fields = schema_of(name, columns)
    kinds = (field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in fields)
    return pa.schema(list(zip(fields.names, kinds, strict=True)))


def sort_keys(name: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a table is sorted by, given the columns that it has."""
    own = [DIAGNOSTIC[0]] if name == "decodes" and DIAGNOSTIC[0] in columns else []
    return [*SORT[name], *own]


def sort_table(name: str, table: pa.Table) -> pa.Table:
    """Sort a table by its key, which makes its hash independent of the order of work."""
    keys = sort_keys(name, table.column_names)
    return table.take(pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys]))


def fingerprint(value: Any, digits: int = 16) -> str:
    """Hash a plain value; anything that JSON has no type for counts by its text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:digits]


def table_hash(table: pa.Table) -> str:
    """Hash a sorted table's names, types and values, column by column: equal tables have equal hashes."""
    digest = hashlib.sha256(str(len(table)).encode())
    for name in sorted(set(table.column_names) - set(UNHASHED)):
        column = table[name].combine_chunks()
        digest.update(f"{name}:{column.type}".encode())
        _hash_column(digest, column)
    return digest.hexdigest()


def _hash_column(digest: Any, column: Any) -> None:
    # Validity, lengths and values go in apart: otherwise a missing value and a zero, or [[1, 2], []] and [[1], [2]],
    # would have the same bytes.
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    digest.update(np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(column.type):
        digest.update(np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)).tobytes())
        _hash_column(digest, pc.list_flatten(column))
    elif pa.types.is_string(column.type):
        # All texts behind each other, as Arrow holds them; the buffer may begin before the first and end after the
        # last where the column is a slice.
        whole = pa.concat_arrays([pc.fill_null(column, "").cast(pa.large_binary())])
        offsets = np.frombuffer(whole.buffers()[1], "<i8", len(whole) + 1, 8 * whole.offset)
        digest.update(np.diff(offsets).tobytes())
        if len(whole) and offsets[-1] > offsets[0]:
            digest.update(memoryview(whole.buffers()[2])[offsets[0] : offsets[-1]])
    else:
        zero: Any = False if pa.types.is_boolean(column.type) else 0
        digest.update(np.asarray(column.fill_null(zero).to_numpy(zero_copy_only=False)).tobytes())
