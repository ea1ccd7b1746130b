"""What a result's numbers may depend on besides its configuration."""

import hashlib
import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from unmask import __version__
from unmask.threads import count

COMPUTES = (
    "core",
    "axes",
    "mechanisms",
    "transition.py",
    "decode.py",
    "denoisers",
    "models",
    "policies",
    "diagnostics",
    "adapt",
    "tasks",
    "request.py",
    "lab/branch",
    "lab/choose.py",
    "lab/prompts.py",
    "lab/run/arms.py",
    "lab/run/decode_cache.py",
    "lab/run/jobs.py",
    "lab/run/judging.py",
    "lab/run/tables.py",
)
"""The code that a stored number comes from; not what shows, analyses or schedules."""


def versions() -> dict[str, str]:
    """Of this package, what computes, and the interpreter; and the threads that torch uses, since bits may follow."""
    return {
        "unmask": __version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "threads": str(count()),
    }


def code_fingerprint() -> str:
    """A hash of the source that computes: equal for equal code, whatever the line ends or compiled files."""
    return hash_of_parts(code_parts())


@cache
def _parts() -> tuple[tuple[str, str], ...]:
    home = Path(__file__).parent
    return tuple((part, source_hash(home / part)) for part in COMPUTES)


def code_parts() -> dict[str, str]:
    """A hash of each part, so that a message can say which one differs."""
    return dict(_parts())


def hash_of_parts(parts: Mapping[str, str]) -> str:
    """One hash of several."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def source_hash(path: Path) -> str:
    """Of a Python file, or of all that lie in a folder."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        source = file.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{file.relative_to(path).as_posix()}\n{len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()[:16]
