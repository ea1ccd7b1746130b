"""Reading plain files, writing files and folders whole or not at all, locks, and text that UTF-8 can encode."""

import errno
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from filelock import FileLock, Timeout

from unmask.base.errors import StorageError

# Text and paths


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD, because UTF-8 cannot encode them.

    Call it once, where text enters from outside: answers, reasons, names, prompts, errors of a user's code.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def format_path(path: str | os.PathLike[str]) -> str:
    """Return a path in quotes; the middle of a very long path is left out."""
    text = str(path)
    return repr(text if len(text) <= 300 else f"{text[:140]}...{text[-140:]}")


def os_error_text(error: OSError | ValueError) -> str:
    """Return the reason of a failed file operation. A path with a NUL character fails with a `ValueError`."""
    return str(error.strerror) if isinstance(error, OSError) else str(error)


# Reading


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file to read bytes; every failure is an `OSError`. Pipes and devices are refused."""
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a folder" if stat.S_ISDIR(mode) else "no plain file but a pipe or a device")
    return open(path, "rb")


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a plain file."""
    with open_file(path) as file:
        return file.read()


# Writing


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside the target; it replaces the target on success, and is removed on failure.

    Every writer gets a path of its own. A device, a pipe or a folder is never replaced.
    """
    _check_replaceable(target, stat.S_ISREG, "a file")
    partial = _unique_sibling(target, "partial")
    # The permissions of a new file, read from one: the umask can only be read by changing it for all threads.
    with partial.open("xb") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
    partial.unlink()
    try:
        yield partial
        # Some packages write through temporary files that only their owner may read.
        if partial.stat().st_mode & 0o777 != mode:
            partial.chmod(mode)
        partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write a text file whole or not at all, in UTF-8 and with the same line ends on every system."""
    with atomic_write(target) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside the target to fill; it replaces the target on success, and is removed on failure.

    A killed process leaves its folder behind. Only a caller that knows that no other process writes here may delete it
    (`find_leftovers`).
    """
    _check_replaceable(target, stat.S_ISDIR, "a folder")
    partial, old = _unique_sibling(target, "partial"), _unique_sibling(target, "old")
    partial.mkdir(parents=True)
    try:
        yield partial
        # A folder cannot be renamed over another one, so the old one is renamed first.
        if target.exists():
            target.replace(old)
        partial.replace(target)
    finally:
        if old.exists() and not target.exists():
            old.replace(target)
        for stale in (partial, old):
            shutil.rmtree(stale, ignore_errors=True)


def find_leftovers(target: Path) -> list[Path]:
    """List what killed processes left beside a target: half-written copies and old folders."""
    start = f".{target.name[:40]}."
    siblings = target.parent.iterdir() if target.parent.is_dir() else ()
    return [path for path in siblings if path.name.startswith(start) and path.suffix in (".partial", ".old")]


def rename_folder(partial: Path, target: Path) -> None:
    """Rename a folder to its final name; raise `FileExistsError` if another folder is there already."""
    try:
        os.rename(partial, target)
    except OSError as error:
        if target.is_dir():
            raise FileExistsError(str(target)) from error
        raise


def sync_file(file: IO[Any]) -> None:
    """Wait until a file is on the disk. Otherwise a crash could keep a later rename but lose the content."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_replaceable(target: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    """Refuse a target that is not of this kind. Otherwise root could replace /dev/null by a file."""
    try:
        mode = target.stat().st_mode
    except OSError:
        return  # It does not exist, or writing to it will raise a better error.
    if not is_kind(mode):
        raise StorageError(
            f"{str(target)[:300]!r} is there and is no plain {kind[2:]}; allowed: a new name, or {kind} to replace; "
            "choose another"
        )


def _unique_sibling(target: Path, state: str) -> Path:
    """Return a path beside the target that no other process, thread or machine uses. Long names are cut."""
    return target.with_name(f".{target.name[:40]}.{os.getpid()}-{secrets.token_hex(4)}.{state}")


# Locks


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on a file, or raise `BlockingIOError` with the name of its holder.

    Yields False on a file system without locks, else True. The system releases the lock when the process ends, even by
    SIGKILL. The file stays: if it were removed, two processes could hold locks on two files of the same name.
    """
    path = Path(os.path.realpath(path))
    path.open("ab").close()  # Raises if the folder is missing or not writable.
    # No fallback to a lock that is only the existence of a file: a killed process would hold it forever.
    file_lock = FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
    me = f"process {os.getpid()} on {socket.gethostname()}"
    try:
        file_lock.acquire()
    except Timeout:
        holder = ""
        with suppress(OSError):
            holder = path.read_bytes()[:200].decode("utf-8", "replace").strip()
        name = "this process" if holder == me else holder or "another process"
        raise BlockingIOError(errno.EAGAIN, name, str(path)) from None
    except (OSError, NotImplementedError):
        yield False
        return
    try:
        # For messages only. Windows may refuse to write to a locked file.
        with suppress(OSError):
            path.write_text(f"{me}\n", encoding="utf-8")
        yield True
    finally:
        file_lock.release()
