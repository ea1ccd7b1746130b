"""Where a study is: a folder of this machine, or an address of an object store that is used like one.

What reads and writes a store goes by paths: `pathlib.Path`, or `RemotePath`, which has those of its methods that stores
use. An object store has no rename and no locks and needs neither: an object that was put is there whole, work is
finished when the file that vouches for it is there, which is put last, and one driver holds a lease (`lease.py`).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from unmask.base.errors import ConfigError, format_value
from unmask.lab.store.remote import SCHEMES, Objects, Remote

TOGETHER = 16
"""Objects that are read at the same time: each takes a round trip."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(s3|gs|file):", re.IGNORECASE)
_FORMS = "a folder, file:///FOLDER, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class RemotePath:
    """A name in an object store. Folders are beginnings of names: there where something is below, and not made."""

    objects: Objects
    key: str

    def __str__(self) -> str:
        return f"{self.objects.bucket}/{self.key}"

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(self.objects, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        return self.key.rsplit("/", 1)[-1]

    @property
    def parent(self) -> "RemotePath":
        return RemotePath(self.objects, self.key.rpartition("/")[0])

    def read_bytes(self) -> bytes:
        return self.objects.get(self.key)

    def write_bytes(self, content: bytes) -> int:
        """Whole or not at all."""
        self.objects.put(self.key, content)
        return len(content)

    def is_file(self) -> bool:
        return self.objects.exists(self.key)

    def is_dir(self) -> bool:
        return bool(self.objects.list(self.key))

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def mkdir(self, *, exist_ok: bool) -> None:
        """Nothing: what is put below makes it."""

    def unlink(self, missing_ok: bool = True) -> None:
        """An object store does not say whether it was there."""
        self.objects.delete(self.key)

    def below(self) -> list[str]:
        """Names of all objects, from here on."""
        start = len(self.key) + 1 if self.key else 0
        return [key[start:] for key in self.objects.list(self.key)]

    def iterdir(self) -> Iterator["RemotePath"]:
        return (self / name for name in dict.fromkeys(below.split("/", 1)[0] for below in self.below()))

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))


Place = Path | RemotePath


def place_of(address: str | Place) -> Place:
    """The folder or the address that a user typed; refused where nothing is known by it, or nobody answers there."""
    if isinstance(address, RemotePath):
        return address
    text = str(address)
    scheme = scheme_of(text)
    if not scheme:
        return Path(address)
    if scheme == "file":
        return _folder(text)
    if scheme not in SCHEMES:
        raise ConfigError(f"scheme of {format_value(text)} is {scheme!r}; allowed: {_FORMS}; choose one of them")
    # A Path makes one slash of two.
    bucket, _, key = text.partition(":")[2].lstrip("/").partition("/")
    if not bucket or re.search(r"[@?#\s]", bucket + key):
        raise ConfigError(
            f"address is {format_value(text)}; allowed: {_FORMS}, with credentials and endpoint from the environment "
            "(docs/study.md); correct it"
        )
    key = "/".join(part for part in key.split("/") if part)
    # With little patience: whoever mistyped it wants to know.
    Remote(scheme, bucket, patient=False).check_there(key)
    return RemotePath(Remote(scheme, bucket), key)


def scheme_of(text: str) -> str:
    """The scheme of an address, in small letters; empty for a folder."""
    found = _ADDRESS.match(text)
    return (found[1] or found[2]).lower() if found else ""


def _folder(text: str) -> Path:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ConfigError(f"address is {format_value(text)}; allowed: {_FORMS}; write file:// and a whole path")
    return Path(unquote(parts.path))


def each(place: Place, do: Callable[[In], Out], things: Iterable[In]) -> list[Out]:
    """What comes of all things, in their order; several at a time where each waits for an answer from afar."""
    if isinstance(place, Path):
        return [do(thing) for thing in things]
    with ThreadPoolExecutor(TOGETHER, "unmask-read") as pool:
        return list(pool.map(do, things))
