"""What goes through the pipes: frames, events, and errors in words."""

import contextlib
import json
import os
from typing import Any

from . import exceptions, values

ANSWER_BYTES = 4 << 20
"""The longest answer to one call."""
FRAME_BYTES = 256 << 20
Job = dict[str, Any]


def emit(event_fd: int, **event: object) -> None:
    """One event as a line of JSON. Nobody may be listening any more."""
    with contextlib.suppress(OSError):
        os.write(event_fd, json.dumps(event).encode("ascii") + b"\n")


def send_frame(fd: int, data: bytes) -> None:
    """Length, then content."""
    rest = memoryview(len(data).to_bytes(4, "big") + data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_frame(fd: int, most: int) -> bytes:
    """The next frame; empty at the end of the stream."""
    header = read_exactly(fd, 4)
    size = int.from_bytes(header, "big")
    if size > most:
        raise values.BadValue(f"{size} bytes where {most} are allowed")
    return read_exactly(fd, size) if header else b""


def read_exactly(fd: int, size: int) -> bytes:
    """So many bytes; none if the stream ends before."""
    parts: list[bytes] = []
    while size and (part := os.read(fd, min(size, 1 << 16))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts) if not size else b""


def describe(error: BaseException) -> str:
    """The class of an exception and the beginning of its message, which may be one that cannot be written."""
    return f"{type(error).__name__}: {exceptions.message(error)}".rstrip(": ")[:500]
