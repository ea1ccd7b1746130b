"""Arrays and a JSON part as the bytes of one `.npz` file that vouches for itself, read without trusting it.

The archive's comment is the hash of everything else, so that no flipped bit goes unnoticed. A hash is no signature:
whoever writes a hostile file can hash it too, so every size is checked against the file's before memory is taken.
"""

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from unmask.errors import SchemaError

META = "meta"
"""The member that holds the JSON part."""

DTYPES = ("|b1", "<i8", "<f4", "<f8")
"""What an array may hold: truth values, whole numbers and floats of ours."""

_ROOM, _RATIO = 1 << 24, 200
"""An archive may unpack to 16 MiB, or to so many times its own size where that is more."""
_HASH = 64
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MOST_AXES = 8
_DAMAGE = (
    *(ValueError, TypeError, LookupError, EOFError, OSError, ArithmeticError, SyntaxError),
    *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error),
)
"""What reading a file that is damaged, or is something else, can raise."""


def pack(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The same bytes for the same values; nothing that `unpack` would take for a trap."""
    text = json.dumps(meta, allow_nan=False).encode()
    members = {name: _npy(array) for name, array in {**arrays, META: np.frombuffer(text, np.uint8)}.items()}
    size = sum(map(len, members.values()))
    small = _zipped(members, zipfile.ZIP_DEFLATED)
    return _signed(small if size <= _most(len(small)) else _zipped(members, zipfile.ZIP_STORED))


def _npy(array: np.ndarray) -> bytes:
    part = io.BytesIO()
    np.lib.format.write_array(part, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return part.getvalue()


def _zipped(members: Mapping[str, bytes], compression: int) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for name, content in members.items():
            # numpy would put the time of writing here.
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.compress_type = compression
            file.writestr(entry, content)
    return whole.getvalue()


def unpack(content: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """What `pack` was given; anything else is refused with the reason."""
    try:
        _check_hash(content)
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            _check_members(file, len(content))
            arrays = {entry.filename.removesuffix(".npy"): _array(file, entry) for entry in file.infolist()}
        meta = json.loads(arrays.pop(META).tobytes(), object_pairs_hook=_once, parse_constant=_no_number)
    except SchemaError:
        raise
    except _DAMAGE as error:
        raise SchemaError(f"it cannot be read: {type(error).__name__}") from error
    return meta, arrays


def _most(size: int) -> int:
    """Bytes that an archive of this size may unpack to."""
    return max(_ROOM, _RATIO * size)


def _signed(archive: bytes) -> bytes:
    """An archive without comment, with its hash as the comment; the two bytes before say how long that is."""
    return archive[:-2] + _HASH.to_bytes(2, "little") + hashlib.sha256(archive).hexdigest().encode()


def _check_hash(content: bytes) -> None:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise SchemaError("it is no archive, or its end is missing")
    if content[-_HASH - 2 : -_HASH] != _HASH.to_bytes(2, "little"):
        raise SchemaError("it has no hash of its bytes")
    plain = content[: -_HASH - 2] + bytes(2)
    if hashlib.sha256(plain).hexdigest().encode() != content[-_HASH:]:
        raise SchemaError("its bytes are not those that were written: their hash is another")


def _check_members(file: zipfile.ZipFile, size: int) -> None:
    """Names and declared sizes; reading a member never gives more than its declared size."""
    names = [entry.filename for entry in file.infolist()]
    if len(set(names)) != len(names):
        raise SchemaError("a part is there twice")
    if f"{META}.npy" not in names or not all(name.endswith(".npy") for name in names):
        raise SchemaError("its parts are other ones")
    declared = sum(entry.file_size for entry in file.infolist())
    if declared > _most(size):
        raise SchemaError(f"it would unpack to {declared} bytes from {size}")


def _array(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One member; its header must promise just the bytes that follow it."""
    content = file.read(entry)
    part = io.BytesIO(content)
    if np.lib.format.read_magic(part) != (1, 0):
        raise SchemaError(f"part {entry.filename!r} has another header")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(part)
    allowed = ("|u1",) if entry.filename == f"{META}.npy" else DTYPES
    if dtype.str not in allowed or fortran:
        raise SchemaError(f"part {entry.filename!r} holds another type")
    sizes = len(shape) <= _MOST_AXES and all(isinstance(n, int) and n >= 0 for n in shape)
    if not sizes or math.prod(shape) * dtype.itemsize != len(content) - part.tell():
        raise SchemaError(f"part {entry.filename!r} is not as large as its header says")
    return np.frombuffer(content, dtype, offset=part.tell()).reshape(shape)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise SchemaError("an entry is there twice")
    return dict(pairs)


def _no_number(constant: str) -> Any:
    raise SchemaError(f"{constant} is no JSON number")
