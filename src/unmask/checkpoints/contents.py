"""Which checkpoint a folder holds, told by what is in its files."""

import hashlib
import json
from pathlib import Path


def fingerprint(folder: Path) -> str:
    """Which checkpoint this is: a hash of all its files but code, of large ones 256 pieces, both ends among them."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in _DATA):
        digest.update(json.dumps([path.name, path.stat().st_size]).encode())
        with path.open("rb") as file:
            for start, size in pieces_of(path.stat().st_size):
                file.seek(start)
                digest.update(file.read(size))
    return digest.hexdigest()[:16]


_DATA = (".json", ".safetensors", ".txt", ".jinja", ".model")
_WHOLE = 64 << 20
"""Up to this size a file is hashed whole."""


def pieces_of(size: int) -> list[tuple[int, int]]:
    """Where to read a file of this size, and how much."""
    if size <= _WHOLE:
        return [(0, size)]
    piece = _WHOLE // 256
    return [(i * (size - piece) // 255, piece) for i in range(256)]
