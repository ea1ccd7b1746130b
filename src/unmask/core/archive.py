"""Arrays and a JSON part as the bytes of one `.npz` file that vouches for itself, read without trusting it.

The archive's comment is the hash of everything else, so that no flipped bit goes unnoticed. A hash is no signature:
whoever writes a hostile file can hash it too, so every size is checked against the file's before memory is taken.
"""

import hashlib
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from unmask.base.errors import SchemaError

META = "meta"
"""The member that holds the JSON part."""

STORED_NAMES: Mapping[str, str] = {
    "SamplingParams": "Proposal",
    "sampling": "proposal",
    "prepaid_B": "foreseen_B",
}
"""New name -> stored name of the types and fields of a trajectory file whose names in code have changed.

Files and the hashes of their bytes keep the stored name, so that a run saved today has the bytes it always had.
"""

DTYPES = ("|b1", "<i8", "<f4", "<f8")
"""What an array may hold: truth values, whole numbers and floats of ours."""

_ROOM, _RATIO = 1 << 24, 200
"""An archive may unpack to 16 MiB, or to so many times its own size where that is more."""
_HASH = 64
_DAY = 1 << 5 | 1
"""The first of January 1980: a time of writing would be other bytes."""
_OWNER = 0o600 << 16
"""Who may read a member that is unpacked."""
_MOST_AXES = 8
_DAMAGE = (
    *(ValueError, TypeError, LookupError, EOFError, OSError, ArithmeticError, SyntaxError),
    *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error),
)
"""What reading a file that is damaged, or is something else, can raise."""


def pack(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The same bytes for the same values; nothing that `unpack` would take for a trap."""
    return pack_text(json_part(meta), arrays)


def json_part(meta: Mapping[str, Any]) -> bytes:
    """The JSON part as it is stored: for who packs many arrays with the same one."""
    return json.dumps(meta, allow_nan=False).encode()


def pack_text(text: bytes, arrays: Mapping[str, np.ndarray]) -> bytes:
    """`pack` with a JSON part that is written already."""
    members = {name: _npy(array) for name, array in {**arrays, META: np.frombuffer(text, np.uint8)}.items()}
    size = sum(map(len, members.values()))
    small = _zipped(members, zipfile.ZIP_DEFLATED)
    return _signed(small if size <= _most(len(small)) else _zipped(members, zipfile.ZIP_STORED))


def _npy(array: np.ndarray) -> bytes:
    return _header(array.dtype, array.shape) + array.tobytes()


@lru_cache(maxsize=1024)
def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    part = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(part, about)
    return part.getvalue()


def _zipped(members: Mapping[str, bytes], compression: int) -> bytes:
    """The bytes that `zipfile` gives, for a study stores hundreds of thousands of members: its bookkeeping took most
    of the time."""
    parts: list[bytes] = []
    index: list[bytes] = []
    at = 0
    for name, content in members.items():
        file = f"{name}.npy".encode("ascii")
        body = _deflated(content) if compression == zipfile.ZIP_DEFLATED else content
        about = struct.pack(
            "<HHHHHLLLHH", 20, 0, compression, 0, _DAY, zlib.crc32(content), len(body), len(content), len(file), 0
        )
        parts += (b"PK\3\4", about, file, body)
        index += (b"PK\1\2\x14\3", about, struct.pack("<HHHLL", 0, 0, 0, _OWNER, at), file)
        at += 30 + len(file) + len(body)
    size, count = sum(map(len, index)), len(members)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, at, 0)
    return b"".join((*parts, *index, end))


def _deflated(content: bytes) -> bytes:
    packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


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
