"""The `.npz` file of a trajectory (`unmask-trajectory-2`): a JSON tree, and the arrays that its leaves name.

Equal values give equal bytes. The archive's comment is the SHA-256 of everything before it, to notice flipped bits. The
hash does not make a file trustworthy, since whoever writes a hostile file can compute it. So nothing in a file is
executed, sizes are checked before memory is allocated, and values are checked against the fields of their class.
"""

import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from unmask.base.errors import ConfigError, SchemaError, StorageError, format_value, require
from unmask.base.files import atomic_write, os_error_text
from unmask.base.json_files import parse_json

FORMAT = "unmask-trajectory-2"
STORED_NAMES = {"SamplingParams": "Proposal", "sampling": "proposal", "prepaid_B": "foreseen_B"}
"""Name in code -> name in files, of types and fields that were renamed later: the bytes of files must not change."""

_OMITTED_IF_NONE = {"planner_forwards_B", "remasks_B", "prepaid_B", "sampling", "config", "rule"}
"""Fields that were added later. They are not stored when they are None, so that the bytes of files did not change."""
_META = "meta.npy"
"""Member of the archive with the JSON tree."""
_LARGEST_FILE = 1 << 33
"""Size in bytes of the largest file that is read."""
_ALWAYS_ALLOWED, _MOST_RATIO = 1 << 24, 200
"""An archive may unpack to 16 MiB or to 200 times its own size, whichever is more."""
_HASH_DIGITS, _HASH_LENGTH = 64, (64).to_bytes(2, "little")
"""The hash is the comment of the ZIP archive, and a comment's length is in the two bytes before it."""
_MOST_AXES = 8
_DAMAGE = (
    *(ValueError, TypeError, LookupError, EOFError, OSError, ArithmeticError, SyntaxError),
    *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error),
)
"""Exceptions that reading a damaged or hostile archive can raise."""

_DTYPES = ("|b1", "<i8", "<f4", "<f8")
_PLAIN_TYPES: Mapping[Any, tuple[type, ...]] = {
    **{int: (int,), bool: (bool,), str: (str,)},
    **{float: (int, float), str | None: (str, NoneType)},
}
_FLOATS = {
    *("alpha", "kappa", "p", "entropy", "confidence", "proposed", "logz", "given", "drift", "displacement"),
    *("attention", "visible", "hidden"),
}
_INTEGERS = {
    *("tokens", "length", "step", "horizon", "rows", "key", "token", "top"),
    *("forwards", "processed", "planner_forwards", "remasks"),
}
"""Names, without axes, of the fields that hold floats and integers; all other tensors hold truth values."""
_LEAST = {"tokens": -1, "token": 0, "top": 0, "length": 1, "step": 0, "horizon": 1, "forwards": 0, "processed": 0}
"""Smallest value that a field may hold. An action's tokens are -1 at positions that they do not override."""


# --- files ----------------------------------------------------------------------------------------------------------


def write_file(path: str | Path, content: bytes) -> None:
    """Write the bytes of a trajectory to a file, whole or not at all."""
    named = isinstance(path, str | Path) and bool(Path(path).name)
    require(named, "path of the trajectory", path, "the name of a file", "give one, such as 'run.npz'")
    try:
        with atomic_write(Path(path)) as partial:
            partial.write_bytes(content)
    except (OSError, ValueError) as error:
        why = os_error_text(error)
        raise StorageError(f"{format_value(str(path))} cannot be written to ({why}); choose another place") from error


def read_file(path: str | Path) -> bytes:
    """Read the bytes of a trajectory's file; empty if it is too large or not an archive."""
    # `Path.is_file` would raise for names that are too long or contain a zero byte.
    if not (isinstance(path, str | Path) and os.path.isfile(path)):
        place = format_value(str(path) if isinstance(path, Path) else path)
        raise SchemaError(f"no trajectory at {place}; allowed: a file written by Trajectory.save; check it")
    try:
        # Neither check reads more than the end of the file.
        readable = Path(path).stat().st_size <= _LARGEST_FILE and zipfile.is_zipfile(path)
        return Path(path).read_bytes() if readable else b""
    except OSError as error:
        raise SchemaError(f"{str(path)!r} cannot be read ({error.strerror}); allowed: a readable file") from error


# --- values to a tree and arrays, and back --------------------------------------------------------------------------


def to_bytes(value: Any, kinds: Sequence[type]) -> bytes:
    """Return a file's bytes for a value made of tensors, tuples, mappings, JSON values and dataclasses in `kinds`."""
    return pack_archive(*_to_json_and_arrays(value, kinds))


def rows_to_bytes(value: Any, kinds: Sequence[type], rows: Sequence[int]) -> list[bytes]:
    """Return one file's bytes for each row in `rows`; every tensor of the value must have all rows."""
    meta, arrays = _to_json_and_arrays(value, kinds)
    return [pack_archive(meta, {path: array[row : row + 1] for path, array in arrays.items()}) for row in rows]


def from_bytes(content: bytes, kinds: Sequence[type]) -> Any:
    """Read a value from the bytes of `to_bytes`, without a check of its shapes and ranges (`check_tensor_fields`)."""
    meta, arrays = unpack_archive(content)
    named = meta.get("format") if isinstance(meta, dict) else None
    if named != FORMAT:
        raise SchemaError(f"format is {named!r}; allowed: {FORMAT!r}; decode again and save")
    try:
        return _from_tree(meta["tree"], arrays, {_stored_name(kind.__name__): kind for kind in kinds})
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ConfigError) as error:
        raise SchemaError(f"its tree makes no sense: {type(error).__name__}") from error


def _stored_name(name: str) -> str:
    return STORED_NAMES.get(name, name)


def _to_json_and_arrays(value: Any, kinds: Sequence[type]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the JSON tree of a value, and its arrays by the names that leaves of the tree have for them."""
    arrays: dict[str, np.ndarray] = {}

    def tree(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            arrays[path] = value.cpu().numpy()
            return {"array": path}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if isinstance(value, tuple):
            return {"tuple": [tree(part, f"{path}.{at}") for at, part in enumerate(value)]}
        if isinstance(value, Mapping):
            return {"dict": {key: tree(part, f"{path}.{key}") for key, part in value.items()}}
        if type(value) not in kinds:
            return {"value": value}
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        kept = {_stored_name(n): part for n, part in parts.items() if part is not None or n not in _OMITTED_IF_NONE}
        return {
            "type": _stored_name(type(value).__name__),
            "fields": {name: tree(part, f"{path}.{name}") for name, part in kept.items()},
        }

    return {"format": FORMAT, "tree": tree(value, "")}, arrays


def _from_tree(tree: Any, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, Any]) -> Any:
    if "array" in tree:
        return torch.from_numpy(arrays[tree["array"]].copy())
    if "tuple" in tree:
        return tuple(_from_tree(part, arrays, kinds) for part in tree["tuple"])
    if "dict" in tree:
        return {key: _from_tree(part, arrays, kinds) for key, part in tree["dict"].items()}
    if "type" in tree:
        kind = kinds[tree["type"]]
        names = {_stored_name(field.name): field.name for field in fields(kind)}
        return kind(**{names[stored]: _from_tree(part, arrays, kinds) for stored, part in tree["fields"].items()})
    return float(tree["float"]) if "float" in tree else tree["value"]


def check_tensor_fields(value: Any, name: str, sizes: dict[str, int]) -> None:
    """Refuse tensors whose type or axes do not fit the name of their field in a dataclass.

    `tokens_BL` must hold integers on two axes, and an axis must have one size in the whole value. `sizes` has the axes
    that are known; the others are added to it.
    """
    hints = get_type_hints(type(value))
    for field in fields(value):
        part, hint = getattr(value, field.name), hints[field.name]
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        where = f"{name}.{field.name}"
        if isinstance(part, Tensor):
            _require_schema(Tensor in options, where, "is an array")
            _check_tensor(part, where, field.name, sizes)
        elif part is None:
            _require_schema(type(None) in options, where, "is missing")
        elif is_dataclass(part):
            _require_schema(type(part) in options, where, f"is a {type(part).__name__}")
            check_tensor_fields(part, where, sizes)
        elif hint in _PLAIN_TYPES:
            _require_schema(type(part) in _PLAIN_TYPES[hint], where, f"is {part!s:.50}")
        else:
            _require_schema(isinstance(part, tuple | Mapping), where, f"is {part!s:.50}")


def _check_tensor(tensor: Tensor, where: str, name: str, sizes: dict[str, int]) -> None:
    stem, _, axes = name.rpartition("_")
    floats = (torch.float32, torch.float64)
    allowed = floats if stem in _FLOATS else (torch.int64,) if stem in _INTEGERS else (torch.bool,)
    _require_schema(tensor.dtype in allowed, where, f"holds {tensor.dtype}")
    _require_schema(tensor.ndim == len(axes), where, f"has {tensor.ndim} axes")
    for axis, size in zip(axes, tensor.shape, strict=True):
        _require_schema(sizes.setdefault(axis, size) == size, where, f"has {size} of {axis}, not {sizes[axis]}")
    if stem in _LEAST and tensor.numel():
        _require_schema(int(tensor.min()) >= _LEAST[stem], where, f"holds {int(tensor.min())}, below {_LEAST[stem]}")


def _require_schema(ok: bool, where: str, what: str) -> None:
    if not ok:
        raise SchemaError(f"{where} {what}")


# --- the archive ----------------------------------------------------------------------------------------------------


def pack_archive(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of an `.npz` archive with a JSON tree, arrays, and a hash of both."""
    text = json.dumps(meta, allow_nan=False).encode()
    members: dict[str, bytes] = {}
    for name, array in {**arrays, _META.removesuffix(".npy"): np.frombuffer(text, np.uint8)}.items():
        part = io.BytesIO()
        # `ascontiguousarray` would add an axis to an array without axes.
        np.lib.format.write_array(part, np.asarray(array, order="C"), version=(1, 0))
        members[f"{name}.npy"] = part.getvalue()
    archive = _write_zip(members, zipfile.ZIP_DEFLATED)
    if sum(map(len, members.values())) > _max_unpacked_bytes(len(archive)):
        # `unpack_archive` would refuse an archive that compresses so well, because it could be a zip bomb.
        archive = _write_zip(members, zipfile.ZIP_STORED)
    return archive[:-2] + _HASH_LENGTH + hashlib.sha256(archive).hexdigest().encode()


def _write_zip(members: Mapping[str, bytes], compression: int) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", compression) as file:
        for name, content in members.items():
            # A `ZipInfo` of our own has a fixed time, so that equal values give equal bytes.
            file.writestr(zipfile.ZipInfo(name), content, compression)
    return whole.getvalue()


def _max_unpacked_bytes(size: int) -> int:
    """Return how many bytes an archive of this size may unpack to."""
    return max(_ALWAYS_ALLOWED, _MOST_RATIO * size)


def unpack_archive(content: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """Read the JSON tree and the arrays of an archive of `pack_archive`; raise `SchemaError` for anything else."""
    try:
        _require_schema(zipfile.is_zipfile(io.BytesIO(content)), "it", "is no archive, or its end is missing")
        archive, written_hash = content[: -_HASH_DIGITS - 2], content[-_HASH_DIGITS:]
        _require_schema(content[-_HASH_DIGITS - 2 : -_HASH_DIGITS] == _HASH_LENGTH, "it", "has no hash of its bytes")
        right = hashlib.sha256(archive + bytes(2)).hexdigest().encode() == written_hash
        _require_schema(right, "its bytes", "are not those that were written: their hash is another")
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            names = [entry.filename for entry in file.infolist()]
            _require_schema(len(set(names)) == len(names), "a part", "is there twice")
            _require_schema(
                _META in names and all(name.endswith(".npy") for name in names), "its parts", "are other ones"
            )
            # A member is never unpacked beyond its declared size, so declared sizes are enough to check.
            declared = sum(entry.file_size for entry in file.infolist())
            _require_schema(
                declared <= _max_unpacked_bytes(len(content)),
                "it",
                f"would unpack to {declared} bytes from {len(content)}",
            )
            arrays = {name: _read_array(name, file.read(name)) for name in names}
        meta = parse_json(arrays.pop(_META).tobytes())
    except SchemaError:
        raise
    except _DAMAGE as error:
        raise SchemaError(f"it cannot be read: {type(error).__name__}") from error
    return meta, {name.removesuffix(".npy"): array for name, array in arrays.items()}


def _read_array(name: str, content: bytes) -> np.ndarray:
    """Read one array. Unlike `np.load`, do not trust its header: it must describe exactly the bytes that follow."""
    part = io.BytesIO(content)
    _require_schema(np.lib.format.read_magic(part) == (1, 0), f"part {name!r}", "has another header")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(part)
    allowed = dtype.str in (("|u1",) if name == _META else _DTYPES)
    _require_schema(allowed and not fortran, f"part {name!r}", "holds another type")
    sizes = len(shape) <= _MOST_AXES and all(isinstance(n, int) and n >= 0 for n in shape)
    promised = math.prod(shape) * dtype.itemsize if sizes else -1
    _require_schema(promised == len(content) - part.tell(), f"part {name!r}", "is not as large as its header says")
    return np.frombuffer(content, dtype, offset=part.tell()).reshape(shape)
