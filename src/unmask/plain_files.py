"""Plain files to read, whatever a user typed as their path."""

import errno
import os
import stat
from typing import BinaryIO


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """A plain file to read; whatever is wrong with it is an `OSError`. A pipe or a device might never end."""
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a folder" if stat.S_ISDIR(mode) else "no plain file but a pipe or a device")
    return open(path, "rb")


def read_plain(path: str | os.PathLike[str]) -> bytes:
    """All of a plain file."""
    with open_file(path) as file:
        return file.read()


def why_not(error: OSError | ValueError) -> str:
    """What the system said about a path; one with a NUL in it does not get that far."""
    return str(error.strerror) if isinstance(error, OSError) else str(error)


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path in quotes, the middle of a very long one left out."""
    text = str(path)
    return repr(text if len(text) <= 300 else f"{text[:140]}...{text[-140:]}")
