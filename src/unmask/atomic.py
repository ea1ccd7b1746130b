"""Files and folders that are there whole or not at all. Nothing else in the package renames what it wrote, or locks."""

import errno
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Any

from unmask.errors import StorageError


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """A place beside the target to write to, which becomes the target if nothing goes wrong and is gone otherwise.

    The place is the caller's alone, and the file gets the permissions of any new file, whoever wrote it: some packages
    write through temporary files that only their owner may read. A device, a pipe or a folder is never replaced.
    """
    _check_replaceable(target, stat.S_ISREG, "a file")
    partial = _private(target, "partial")
    mode = _mode_of_new_files(partial)
    try:
        yield partial
        if partial.stat().st_mode & 0o777 != mode:
            partial.chmod(mode)
        partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _check_replaceable(target: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    """Refuse to rename over what is neither new nor of the kind: whoever may do so would lose /dev/null for good."""
    try:
        mode = target.stat().st_mode
    except OSError:
        return  # Not there; or what is wrong with it comes up when it is written.
    if not is_kind(mode):
        raise StorageError(
            f"{str(target)[:300]!r} is there and is no plain {kind[2:]}; allowed: a new name, or {kind} to replace; "
            "choose another"
        )


def _private(target: Path, state: str) -> Path:
    """A name beside the target that no other process, thread or machine takes, and no longer than names may be."""
    return target.with_name(f".{target.name[:40]}.{os.getpid()}-{secrets.token_hex(4)}.{state}")


def _mode_of_new_files(probe: Path) -> int:
    """Asked of the file system: the process's mask can only be read by changing it, for all threads."""
    with probe.open("xb") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
    probe.unlink()
    return mode


def write_text(target: Path, text: str) -> None:
    """A whole text file: UTF-8, with the same line ends everywhere."""
    with atomic_write(target) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """An empty folder beside the target to fill, which takes the target's place if nothing goes wrong.

    Where something goes wrong the target stays as it was. What a killed process left stays too (`leftovers`): only who
    knows that nobody else writes here may throw it away.
    """
    _check_replaceable(target, stat.S_ISDIR, "a folder")
    partial, old = _private(target, "partial"), _private(target, "old")
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


def leftovers(target: Path) -> list[Path]:
    """What killed processes left beside a target of this module: half written, or stepped aside."""
    start = f".{target.name[:40]}."
    beside = target.parent.iterdir() if target.parent.is_dir() else ()
    return [path for path in beside if path.name.startswith(start) and path.suffix in (".partial", ".old")]


_held: set[str] = set()
_holding = Lock()


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock file alone; BlockingIOError with the holder's name where it is held already.

    The system takes the lock back when the process ends, however it ends; processes forked off do not have it. The file
    stays, because removing it would let two in. False where the file system knows no locks.
    """
    name = os.path.realpath(path)
    with _holding:
        if name in _held:
            raise BlockingIOError(errno.EAGAIN, "this process", str(path))
        _held.add(name)
    try:
        with path.open("a+b") as file:
            yield _lock(file)
    finally:
        with _holding:
            _held.discard(name)


def _lock(file: IO[bytes]) -> bool:
    try:
        _system_lock(file)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        file.seek(0)
        holder = file.read(200).decode("utf-8", "replace").strip()
        raise BlockingIOError(errno.EAGAIN, holder or "another process") from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    file.flush()
    return True


def _system_lock(file: IO[bytes]) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        # Of a byte that nobody reads: what is locked there cannot be read.
        file.seek(1 << 30)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
