"""Files that are there whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from unmask.errors import ConfigError


def folder(path: str | Path) -> Path:
    """The folder for results, made if need be."""
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
    """Write beside the target, then rename: a reader never sees half a file."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        raise ConfigError(f"{str(target)!r} cannot be written ({error.strerror}); choose another folder") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return target
