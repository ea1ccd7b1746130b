"""The files of a store at an address: Amazon S3 and servers that speak like it, or Google Cloud Storage.

Object stores have no rename and no locks. An object that was put is there whole; a shard is finished when its info file
is there, which is put last; and one driver at a time, which holds the lease (`lease.py`), may write.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from unmask.base.errors import ConfigError, StorageError, format_value
from unmask.lab.store.lease import Lease, describe_holder
from unmask.lab.store.local import In, LocalFiles, Out, numbered_name
from unmask.lab.store.objects import Objects

PATIENCE, ATTEMPTS = 30, 6
"""Seconds and attempts of a request to a store that has answered before: a run goes on through a short outage."""
FIRST_PATIENCE, FIRST_ATTEMPTS = 3, 2
"""The same for the first contact and for leases: whoever mistyped an address wants to know it soon."""
READERS = 16
"""Objects that are read at the same time, because each read waits for an answer from afar."""

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(s3|gs|file):", re.IGNORECASE)
_FORMS = "a folder, file:///FOLDER, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"


def scheme_of(text: str) -> str:
    """Return the scheme of an address in small letters; empty for a folder."""
    found = _ADDRESS.match(text)
    return (found[1] or found[2]).lower() if found else ""


def open_files(address: "str | Path | StoreFiles") -> "StoreFiles":
    """Open a folder or an address; refuse an address of an unknown scheme, or without a server that answers."""
    if isinstance(address, StoreFiles):
        return address
    text = str(address)
    scheme = scheme_of(text)
    if not scheme:
        return LocalFiles(Path(address))
    if scheme == "file":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ConfigError(f"address is {format_value(text)}; allowed: {_FORMS}; write file:// and a whole path")
        return LocalFiles(Path(unquote(parts.path)))
    if scheme not in ("s3", "gs"):
        raise ConfigError(f"scheme of {format_value(text)} is {scheme!r}; allowed: {_FORMS}; choose one of them")
    # A `Path` makes one slash of two, so all slashes after the colon go.
    bucket, _, prefix = text.partition(":")[2].lstrip("/").partition("/")
    if not bucket or re.search(r"[@?#\s]", bucket + prefix):
        raise ConfigError(
            f"address is {format_value(text)}; allowed: {_FORMS}, with credentials and endpoint from the environment "
            "(docs/study.md); correct it"
        )
    return RemoteFiles(scheme, bucket, "/".join(part for part in prefix.split("/") if part))


class RemoteFiles:
    """Files below an address, with the methods of `LocalFiles`. Only the driver, which holds the lease, writes."""

    def __init__(self, scheme: str, bucket: str, prefix: str):
        self.quick = Objects(scheme, bucket, prefix, patience=FIRST_PATIENCE, attempts=FIRST_ATTEMPTS)
        self.quick.check_bucket()
        self.objects = Objects(scheme, bucket, prefix, patience=PATIENCE, attempts=ATTEMPTS)
        self.address: Path | str = self.objects.address
        self.lease: Lease | None = None
        self._threads = threading.RLock()
        self._claimed: set[str] = set()

    def begin(self) -> None:
        """Take the lease; refused while another driver has it."""
        self.lease = Lease(self.quick)
        self.lease.take()

    def close(self) -> None:
        """Release the lease, so that another driver may write; reading stays possible."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None

    @property
    def lease_holder(self) -> str:
        """Name the driver that has the lease; empty if none has."""
        return describe_holder(self.quick)

    def _check_writer(self) -> None:
        if self.lease is None:
            raise StorageError(
                f"{self.address!r} was opened to be read; allowed: one driver writes; use Store.create, which takes "
                "its lease"
            )
        self.lease.check()

    # Files

    def read(self, name: str) -> bytes:
        return self.objects.get(name)

    def write(self, name: str, content: bytes) -> None:
        self._check_writer()
        self.objects.upload(name, content)

    def remove(self, name: str) -> None:
        self._check_writer()
        self.objects.remove(name)

    def names(self, folder: str = "") -> list[str]:
        start = len(folder) + 1 if folder else 0
        return sorted({name[start:].split("/")[0] for name in self.objects.below(folder)})

    def map(self, function: Callable[[In], Out], things: Iterable[In]) -> list[Out]:
        with ThreadPoolExecutor(READERS, "unmask-read") as pool:
            return list(pool.map(function, things))

    # Shards

    def list_finished(self, folder: str, info_file: str) -> list[str]:
        parts = [name.split("/") for name in self.objects.below(folder)]
        return [part[1] for part in parts if len(part) == 3 and part[2] == info_file]

    def is_finished(self, info_path: str) -> bool:
        return self.objects.exists(info_path)

    def add_shard(self, path: str, files: Mapping[str, bytes]) -> None:
        """Upload the files of a shard in order. A later run uploads again what a killed driver left unfinished."""
        if self.is_finished(f"{path}/{list(files)[-1]}"):
            return
        for name, content in files.items():
            self.write(f"{path}/{name}", content)

    def set_aside(self, path: str) -> bool:
        """Move a file or shard into `damaged/`: copy all objects, then remove them, the info file first."""
        names = sorted(self.objects.below(path), key=lambda name: not name.endswith(".json"))
        if not names:
            return False
        target = f"damaged/{numbered_name(path.split('/')[-1], self.names('damaged'))}"
        for name in names:
            self.write(target + name[len(path) :], self.read(name))
        for name in names:
            self.remove(name)
        return True

    # Locks: between threads alone, since no other process may write

    @contextmanager
    def claim(self, path: str) -> Iterator[bool]:
        self._check_writer()
        with self._threads:
            is_free = path not in self._claimed
            self._claimed.add(path)
        try:
            yield is_free
        finally:
            if is_free:
                self._claimed.discard(path)

    def claim_holder(self, path: str) -> str:
        return "this process" if path in self._claimed else ""

    @contextmanager
    def manifest_lock(self) -> Iterator[None]:
        self._check_writer()
        with self._threads:
            yield


StoreFiles = LocalFiles | RemoteFiles
"""Storage of one study. Both have the same methods."""
