"""Files that vouch for themselves: every flipped bit is noticed, hostile sizes are refused before memory is taken."""

import hashlib
import io
import zipfile

import numpy as np
import pytest

from tests.helpers.fresh_python import fresh_python
from unmask.base.errors import SchemaError
from unmask.core.trajectory_file import pack_archive, unpack_archive

ARRAYS = {".a": np.arange(6).reshape(2, 3), ".b": np.array([True, False]), ".c": np.ones(3, np.float32)}
META = {"format": "x", "list": [1, None, "é"]}


def vouched(content):
    """Any archive with the hash that `unpack_archive` asks for."""
    return content[:-2] + (64).to_bytes(2, "little") + hashlib.sha256(content).hexdigest().encode()


def zipped(members, compression=zipfile.ZIP_DEFLATED):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", compression) as file:
        for name, content in members:
            file.writestr(zipfile.ZipInfo(name), content, compression)
    return vouched(whole.getvalue())


def npy(array, **changes):
    part = io.BytesIO()
    np.lib.format.write_array(part, array, **changes)
    return part.getvalue()


def test_the_bytes_of_an_archive_never_move():
    """Files of the same values had this hash since the format began; studies compare runs by it.

    What zlib makes of them is its own affair, so the hash is that of an archive too small for its values, which is
    stored as it is; compressed ones have the same members.
    """
    zeros = {"zeros": np.zeros(1 << 22)}
    assert (
        hashlib.sha256(pack_archive(META, zeros)).hexdigest()
        == "8861e6d26eb07799f4ee31d7c93d3196b85b0ed2062d57fa8f611e9c1dbc9b7c"
    )
    arrays = {**ARRAYS, "none": np.zeros((0, 3)), "one": np.array(2.5), "turned": np.asfortranarray(np.eye(3))}
    with zipfile.ZipFile(io.BytesIO(pack_archive(META, arrays))) as file:
        assert [entry.filename for entry in file.infolist()] == [*(f"{name}.npy" for name in arrays), "meta.npy"]
        for entry in file.infolist():
            assert (entry.compress_type, entry.date_time) == (zipfile.ZIP_DEFLATED, (1980, 1, 1, 0, 0, 0))
        for name, array in arrays.items():
            assert file.read(f"{name}.npy") == npy(np.asarray(array, order="C"), version=(1, 0))


def header(shape, descr="<i8", fortran=False):
    """A header that promises an array, with eight bytes behind it."""
    part = io.BytesIO()
    np.lib.format.write_array_header_1_0(part, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return part.getvalue() + bytes(8)


JSON = npy(np.frombuffer(b"{}", np.uint8))


def test_every_flipped_bit_is_noticed():
    whole = pack_archive({"x": 1}, {".a": np.arange(2)})
    for at in range(8 * len(whole)):
        broken = bytearray(whole)
        broken[at // 8] ^= 1 << at % 8
        with pytest.raises(SchemaError):
            unpack_archive(bytes(broken))


HOSTILE = {
    "no JSON part": [("a.npy", JSON)],
    "a name twice": [("meta.npy", JSON), ("a.npy", JSON), ("a.npy", JSON)],
    "another kind of part": [("meta.npy", JSON), ("run.py", b"print()")],
    "objects": [("meta.npy", JSON), ("a.npy", npy(np.array([{}], dtype=object), allow_pickle=True))],
    "a trillion entries": [("meta.npy", JSON), ("a.npy", header((10**12,)))],
    "more than there are": [("meta.npy", JSON), ("a.npy", header((10**6, 10**6, 10**6)))],
    "nothing of a trillion": [("meta.npy", JSON), ("a.npy", header((0, 10**12)))],
    "below zero": [("meta.npy", JSON), ("a.npy", header((-1, -1)))],
    "truth values as a shape": [("meta.npy", JSON), ("a.npy", header((True,)))],
    "too many axes": [("meta.npy", JSON), ("a.npy", header((1,) * 40))],
    "texts": [("meta.npy", JSON), ("a.npy", header((1,), "<U2"))],
    "dates": [("meta.npy", JSON), ("a.npy", header((1,), "<M8[s]"))],
    "records": [("meta.npy", JSON), ("a.npy", header((1,), [("x", "<i8")]))],
    "other byte order": [("meta.npy", JSON), ("a.npy", header((1,), ">i8"))],
    "by columns": [("meta.npy", JSON), ("a.npy", header((1,), fortran=True))],
    "no header": [("meta.npy", JSON), ("a.npy", b"\x93NUMPY")],
    "another header": [("meta.npy", JSON), ("a.npy", npy(np.arange(2), version=(2, 0)))],
    "a header that is a program": [("meta.npy", JSON), ("a.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"__import__('os')")],
    "a header without end": [("meta.npy", JSON), ("a.npy", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535)],
    "JSON without end": [("meta.npy", npy(np.frombuffer(b"[" * 100_000, np.uint8)))],
    "a key twice": [("meta.npy", npy(np.frombuffer(b'{"a": 1, "a": 2}', np.uint8)))],
    "no JSON number": [("meta.npy", npy(np.frombuffer(b'{"a": NaN}', np.uint8)))],
    "no UTF-8": [("meta.npy", npy(np.frombuffer(b'"\xff"', np.uint8)))],
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused(name):
    """Their hashes are right: whoever writes such a file can compute one."""
    with pytest.raises(SchemaError) as refused:
        unpack_archive(zipped(HOSTILE[name]))
    assert "unsafe" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_no_way_around_the_limit(compression):
    bomb = npy(np.zeros(1 << 22))
    with pytest.raises(SchemaError, match="would unpack to"):
        unpack_archive(zipped([("meta.npy", JSON), ("a.npy", bomb)], compression))


def test_a_bomb_is_refused_before_memory_is_taken():
    """A gigabyte of zeros in a megabyte of file, in a process that may not have that much."""
    code = """
import io, resource, sys, zipfile
from tests.core.test_trajectory_file import JSON, vouched
from unmask.core.trajectory_file import unpack_archive
from unmask.base.errors import SchemaError
whole = io.BytesIO()
with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
    file.writestr("meta.npy", JSON)
    with file.open("a.npy", "w", force_zip64=True) as part:
        for _ in range(1024):
            part.write(bytes(1 << 20))
content = vouched(whole.getvalue())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    unpack_archive(content)
except SchemaError as error:
    print(error, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 100_000)
"""
    ended = fresh_python(code)
    assert ended.returncode == 0, ended.stderr
    assert "would unpack to" in ended.stdout
    assert ended.stdout.strip().endswith("True")
