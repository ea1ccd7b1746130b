"""The files of a store in a folder of this machine, to which any number of processes may write.

A shard is written beside its place, synced and renamed, so a killed process leaves at most a hidden folder, which the
next owner of that shard removes. Claims are file locks: the system lets go of them however a process ends.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from unmask.base.errors import StorageError
from unmask.base.files import atomic_write, lock, rename_folder, sync_file, sync_folder

In = TypeVar("In")
Out = TypeVar("Out")
LOCK_POLL = 0.02
"""Seconds between attempts to lock the manifest, which others hold for milliseconds."""


def storage_error(folder: Path | str, error: OSError) -> StorageError:
    """Make the error for a folder that cannot be written to; it says what is lost and what to do."""
    return StorageError(
        f"{str(folder)!r} cannot be written to ({error.strerror or error}); what is finished stays; make room or "
        "choose another folder, and run the study again to go on"
    )


class LocalFiles:
    """Files below a folder. Names are relative, with slashes; failures to write are `StorageError`."""

    def __init__(self, folder: Path):
        self.address = folder

    def begin(self) -> None:
        """Make the folders that a writer needs."""
        # Locks first: they tell another process, which may look at any moment, that the folder is a store's.
        with self._translate_write_errors():
            (self.address / "locks").mkdir(parents=True, exist_ok=True)
            (self.address / "shards").mkdir(exist_ok=True)

    def close(self) -> None:
        """Do nothing: claims end with their blocks."""

    @property
    def lease_holder(self) -> str:
        """Always empty: no process owns a folder alone."""
        return ""

    # Files

    def read(self, name: str) -> bytes:
        """Return a file's content; FileNotFoundError if there is none."""
        return (self.address / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all, and return when the disk has it."""
        target = self.address / name
        with self._translate_write_errors():
            target.parent.mkdir(exist_ok=True)
            with atomic_write(target) as partial, partial.open("wb") as file:
                file.write(content)
                sync_file(file)
            sync_folder(target.parent)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._translate_write_errors():
            (self.address / name).unlink(missing_ok=True)

    def names(self, folder: str = "") -> list[str]:
        """List what lies directly in a folder, sorted; nothing if there is no such folder."""
        home = self.address / folder
        return sorted(path.name for path in home.iterdir()) if home.is_dir() else []

    def map(self, function: Callable[[In], Out], things: Iterable[In]) -> list[Out]:
        """Apply a function to many things, one after the other, because a disk gains nothing from threads."""
        return [function(thing) for thing in things]

    # Shards

    def list_finished(self, folder: str, info_file: str) -> list[str]:
        """List the finished shards of a folder by name, sorted; unfinished ones have hidden names."""
        return [name for name in self.names(folder) if name[0] != "." and (self.address / folder / name).is_dir()]

    def is_finished(self, info_path: str) -> bool:
        """Tell whether the shard of this info file is there."""
        return (self.address / info_path).parent.is_dir()

    def add_shard(self, path: str, files: Mapping[str, bytes]) -> None:
        """Write a shard beside its place, sync, rename: it is there whole or not at all. One that is there stays."""
        target = self.address / path
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with self._translate_write_errors():
                target.parent.mkdir(exist_ok=True)
                beside.mkdir()
                for name, content in files.items():
                    with (beside / name).open("wb") as file:
                        file.write(content)
                        sync_file(file)
                sync_folder(beside)
                # Where another process was faster, its work is the same.
                with suppress(FileExistsError):
                    rename_folder(beside, target)
                sync_folder(target.parent)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def set_aside(self, path: str) -> bool:
        """Move a file or a shard into `damaged/`, under a new number; False if another process has done so."""
        source, damaged = self.address / path, self.address / "damaged"
        if not source.exists():
            return False
        with self._translate_write_errors():
            damaged.mkdir(exist_ok=True)
            try:
                rename_folder(source, damaged / numbered_name(source.name, self.names("damaged")))
            except FileNotFoundError:
                return False
            sync_folder(source.parent)
        return True

    # Locks

    @contextmanager
    def claim(self, path: str) -> Iterator[bool]:
        """Hold a shard alone while the block lasts; yields False at once if another process or thread does."""
        name = Path(path).name
        with self._lock(name) as holder:
            if not holder:
                for stale in (self.address / path).parent.glob(f".{name}.*"):
                    shutil.rmtree(stale, ignore_errors=True)
            yield not holder

    def claim_holder(self, path: str) -> str:
        """Name the process that holds a shard now; empty if none does."""
        with self._lock(Path(path).name) as holder:
            return holder

    @contextmanager
    def manifest_lock(self) -> Iterator[None]:
        """Hold the manifest alone while the block lasts, so that nobody writes it back without what others added."""
        while True:
            with self._lock("manifest") as holder:
                if not holder:
                    for stale in self.address.glob(".manifest.json.*"):
                        # Only a dead process leaves one: whoever writes now holds the lock.
                        stale.unlink(missing_ok=True)
                    yield
                    return
            time.sleep(LOCK_POLL)

    @contextmanager
    def _lock(self, name: str) -> Iterator[str]:
        """Hold a lock while the block lasts and yield an empty text, or yield at once the name of who holds it."""
        path, holder = self.address / "locks" / f"{name}.lock", ""
        with ExitStack() as stack:
            with self._translate_write_errors():
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    stack.enter_context(lock(path))
                except BlockingIOError as error:
                    holder = str(error.strerror)
            yield holder

    @contextmanager
    def _translate_write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(self.address, error) from error


def numbered_name(name: str, taken: Iterable[str]) -> str:
    """Return the name with the first number that is free."""
    used, number = set(taken), 1
    while f"{name}.{number}" in used:
        number += 1
    return f"{name}.{number}"
