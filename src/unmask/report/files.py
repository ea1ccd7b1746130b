"""Writing of result files, each whole or not at all."""

import os
from pathlib import Path

from unmask.base.errors import ConfigError
from unmask.base.files import atomic_write


def check_place(path: str | Path) -> None:
    """Refuse a folder that could not be made or written to; nothing is made yet."""
    place = Path(path)
    there = next((part for part in (place, *place.absolute().parents) if part.exists()), Path("/"))
    if not there.is_dir():
        raise ConfigError(
            f"the output folder {str(path)!r}: {str(there)!r} is a file; allowed: a folder; choose another"
        )
    if not os.access(there, os.W_OK):
        raise ConfigError(f"the output folder {str(path)!r} cannot be written to; allowed: your own; choose another")


def folder(path: str | Path) -> Path:
    """Return the folder for results; make it if it does not exist."""
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise ConfigError(f"the output folder {str(path)!r} is a file; allowed: a folder, new or old; choose another")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the output folder {str(path)!r} cannot be made ({error.strerror}); choose another"
        ) from error
    if not os.access(place, os.W_OK):
        raise ConfigError(f"the output folder {str(path)!r} cannot be written to; allowed: your own; choose another")
    return place


def write(target: Path, content: bytes) -> Path:
    """Write a file beside its target and rename it, so that a reader never sees half a file."""
    try:
        with atomic_write(target) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{str(target)!r} cannot be written ({error.strerror}); choose another folder") from error
    return target
