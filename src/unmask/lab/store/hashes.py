"""Hashes of plain values and of tables: equal values have equal hashes, however they came about."""

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmask.lab.store.schemas import UNHASHED


def fingerprint(value: Any, digits: int = 16) -> str:
    """A hash of plain values; anything else by its text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:digits]


def bytes_hash(content: bytes) -> str:
    """Of a file, as it lies on the disk."""
    return hashlib.sha256(content).hexdigest()


def table_hash(table: pa.Table) -> str:
    """Over names, types and values, column by column; the rows must be sorted."""
    digest = hashlib.sha256(str(len(table)).encode())
    for name in sorted(set(table.column_names) - set(UNHASHED)):
        column = table[name].combine_chunks()
        digest.update(f"{name}:{column.type}".encode())
        _feed(digest, column)
    return digest.hexdigest()


def _feed(digest: Any, column: Any) -> None:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    digest.update(np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(column.type):
        digest.update(np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)).tobytes())
        _feed(digest, pc.list_flatten(column))
    elif pa.types.is_string(column.type):
        # All texts behind each other, as Arrow holds them.
        whole = pa.concat_arrays([pc.fill_null(column, "").cast(pa.large_binary())])
        offsets = np.frombuffer(whole.buffers()[1], "<i8", len(whole) + 1, 8 * whole.offset)
        digest.update(np.diff(offsets).tobytes())
        if len(whole) and offsets[-1] > offsets[0]:
            digest.update(memoryview(whole.buffers()[2])[offsets[0] : offsets[-1]])
    else:
        zero: Any = False if pa.types.is_boolean(column.type) else 0
        digest.update(np.asarray(column.fill_null(zero).to_numpy(zero_copy_only=False)).tobytes())
