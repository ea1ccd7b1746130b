"""The manifest of a folder that `unmask train` exported: a hash of each of its files, checked whenever it is loaded.

Published folders have none, so a flipped bit in their weights cannot be noticed here.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.base.errors import CheckpointError
from unmask.checkpoints.config import read_json

MANIFEST = "manifest.json"
OURS = "config_sha256"
"""A key that every manifest of ours has; other programs' files of this name are left alone."""
SEAL = "manifest_sha256"
"""The hash of all that the manifest says besides."""


def check_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder whose files are all as it says; None if there is none of ours."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    manifest = read_json(path)
    if OURS not in manifest:
        return None
    files = manifest.get("files")
    if not isinstance(files, dict) or not files or not all(map(_is_entry, files.items())) or not _is_sealed(manifest):
        raise CheckpointError(f"{path} was changed; allowed: what `unmask train` wrote; {_TODO}")
    wrong = [name for name, digest in files.items() if not _is(folder / name, digest)]
    if wrong:
        raise CheckpointError(
            f"{folder} is not as its run left it: {', '.join(wrong)} missing or changed; allowed: the files of its "
            f"{MANIFEST}; {_TODO}"
        )
    return manifest


_TODO = f"restore the folder; or, if you changed it yourself, delete {MANIFEST} to load it as it is"


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the hash of what it says."""
    return {**manifest, SEAL: _hash(manifest)}


def sha256_of(path: Path) -> str:
    """Of a file's bytes, a piece at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is(path: Path, digest: str) -> bool:
    try:
        return path.is_file() and sha256_of(path) == digest
    except OSError:
        return False


def _is_entry(entry: tuple[str, Any]) -> bool:
    name, digest = entry
    plain = Path(name).name == name and "\0" not in name
    return plain and isinstance(digest, str) and bool(re.fullmatch("[0-9a-f]{64}", digest))


def _is_sealed(manifest: Mapping[str, Any]) -> bool:
    """Models of version 0.1 have no seal."""
    said = {key: value for key, value in manifest.items() if key != SEAL}
    return SEAL not in manifest or manifest[SEAL] == _hash(said)


def _hash(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
