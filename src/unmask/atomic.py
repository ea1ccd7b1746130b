"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """A place beside the target to write to, which becomes the target if nothing goes wrong and is gone otherwise."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
