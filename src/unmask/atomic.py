"""Files and folders that are there whole or not at all. Nothing else in the package renames what it wrote."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


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


def write_text(target: Path, text: str) -> None:
    """A whole text file: UTF-8, with the same line ends everywhere."""
    with atomic_write(target) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """An empty folder beside the target to fill, which takes the target's place if nothing goes wrong.

    What a killed process left of it is thrown away, so only one process may write to a target. Where something goes
    wrong the target stays as it was.
    """
    partial, old = (target.with_name(f".{target.name}.{state}") for state in ("partial", "old"))
    for stale in (partial, old):
        shutil.rmtree(stale, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        # A folder cannot be renamed over another, so the old one steps aside first.
        if target.exists():
            target.replace(old)
        partial.replace(target)
    finally:
        if old.exists() and not target.exists():
            old.replace(target)
        for stale in (partial, old):
            shutil.rmtree(stale, ignore_errors=True)


def sync(file: IO[Any]) -> None:
    """On the disk, not only handed to the system: then a rename cannot outlive what it names."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return when the disk has the folder's names."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename_folder(partial: Path, target: Path) -> None:
    """Put a folder in its place; FileExistsError where another one came first."""
    try:
        os.rename(partial, target)
    except OSError as error:
        if target.is_dir():
            raise FileExistsError(str(target)) from error
        raise
