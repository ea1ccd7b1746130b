"""The header of a safetensors file, read strictly and before anything is allocated for its tensors."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.base.errors import CheckpointError
from unmask.base.json_files import refuse_duplicates

LONGEST = 100_000_000
"""Bytes of a header, by the format."""
SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
SIZES |= {"I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1}
"""Bytes of a number, by the name of its type."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a file describes it."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, by name; refused unless they fill it from the first byte to the last without overlap."""
    try:
        if not path.is_file():
            raise CheckpointError(
                f"{path} does not exist; allowed: every shard the checkpoint names; the download is incomplete, "
                "repeat it"
            )
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or length > min(LONGEST, size - 8):
                raise ValueError(f"its header would have {length} bytes, the file has {size}")
            document = json.loads(file.read(length), object_pairs_hook=refuse_duplicates)
        return _checked(document, size - 8 - length)
    except PermissionError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); allowed: files you may read; change its permissions"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> CheckpointError:
    """A shard that is none, or no longer."""
    return CheckpointError(
        f"{path} cannot be read ({type(error).__name__}: {error}); allowed: a complete safetensors file; it is "
        "truncated or damaged, download it again"
    )


def _checked(document: Any, room: int) -> dict[str, StoredTensor]:
    if not isinstance(document, dict):
        raise ValueError("its header is no JSON object")
    tensors = {name: _stored(name, entry) for name, entry in document.items() if name != "__metadata__"}
    place = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start != place:
            raise ValueError(f"the tensor {name!r} begins at byte {tensor.start} of the data, not at {place}")
        place = tensor.end
    if place != room:
        raise ValueError(f"its tensors take {place} bytes, its data has {room}")
    return tensors


def _stored(name: str, entry: Any) -> StoredTensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"the tensor {name!r} is not described by dtype, shape and data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    whole = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2 else [-1]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63 for n in whole):
        raise ValueError(f"the tensor {name!r} has shape {shape!r} and offsets {offsets!r}")
    count = 1
    for n in shape:
        count *= n
    start, end = offsets
    width = SIZES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if end < start or (width is not None and end - start != count * width):
        raise ValueError(f"the tensor {name!r} of {count} {entry['dtype']!r} has the bytes {start} to {end}")
    return StoredTensor(str(entry["dtype"]), tuple(shape), start, end)
