"""Pieces of a study on disk: what they are called, who works on them, and how they are written whole or not at all."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from unmask.base.errors import StorageError
from unmask.base.files import atomic_write, sync_file, sync_folder
from unmask.lab.store.hashes import fingerprint
from unmask.lab.store.places import Place, RemotePath

try:
    import fcntl
except ImportError:  # Windows: two processes may do the same work twice, but shards stay whole.
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Shard:
    """One block of prompts of a model, task and split."""

    model: str
    task: str
    split: str
    block: int
    depends: str
    """Fingerprint of everything its numbers depend on."""

    @property
    def name(self) -> str:
        """For people, then the key, which alone tells shards apart."""
        return f"{_readable(self.model)}.{_readable(self.task)}.{self.split}.{self.block:04d}.{_key(self)}"


@dataclass(frozen=True)
class Unit:
    """One model and task, decoded end to end."""

    model: str
    task: str
    depends: str
    """Fingerprint of everything its numbers depend on."""

    @property
    def name(self) -> str:
        """As of a shard."""
        return f"{_readable(self.model)}.{_readable(self.task)}.{_key(self)}"


def _key(work: Shard | Unit) -> str:
    return fingerprint([type(work).__name__, asdict(work)])


def _readable(name: str) -> str:
    """The end of a name, which says most of a path, in characters that every file system has; never hidden."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[-_LONGEST:].strip("-") or "unnamed"


_LONGEST = 40
"""Characters of a name: with those of a task and a key, far from the limit of file systems."""


SHARD, UNIT = "shard.json", "unit.json"
"""What a shard and a unit say of themselves: written last, so that all is there where it is."""


def finished_names(home: Place) -> list[str]:
    """Names of finished work."""
    if isinstance(home, RemotePath):
        below = (name.split("/") for name in home.below())
        return sorted({parts[0] for parts in below if len(parts) == 2 and parts[1] in (SHARD, UNIT)})
    if not home.is_dir():
        return []
    return sorted(p.name for p in home.iterdir() if p.is_dir() and not p.name.startswith("."))


@contextmanager
def locked(path: Path, wait: bool) -> Iterator[bool]:
    """Whether this process holds the lock file; the system lets go of it when the process ends, however it does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    try:
        held = True
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                held = False
        yield held
    finally:
        os.close(handle)


def write_synced(target: Place, content: bytes) -> None:
    """Write a file whole or not at all, and return when the disk has it, or the object store."""
    if isinstance(target, RemotePath):
        target.write_bytes(content)
        return
    try:
        with atomic_write(target) as partial, partial.open("wb") as file:
            file.write(content)
            sync_file(file)
        sync_folder(target.parent)
    except OSError as error:
        raise cannot_write(target.parent, error) from error


def cannot_write(folder: Place, error: OSError) -> StorageError:
    """The error to raise, with what is lost and what to do."""
    return StorageError(
        f"{str(folder)!r} cannot be written to ({error.strerror or error}); what is finished stays; make room or "
        "choose another folder, and run the study again to go on"
    )
