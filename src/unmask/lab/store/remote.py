"""The files of a store at an address: Amazon S3 and servers that speak like it, or Google Cloud Storage.

Object stores have no rename and no locks. An object that was put is there whole; a shard is finished when its info file
is there, which is put last; and one driver at a time, which holds the lease (`lease.py`), may write.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from unmask.base.errors import ConfigError, StorageError, format_value
from unmask.lab.store.lease import Lease, describe_holder
from unmask.lab.store.local import In, LocalFiles, Out, numbered_name

PATIENCE, ATTEMPTS = 30, 6
"""Seconds and attempts of a request to a store that has answered before: a run goes on through a short outage."""
FIRST_PATIENCE, FIRST_ATTEMPTS = 3, 2
"""The same for the first contact and for leases: whoever mistyped an address wants to know it soon."""
READERS = 16
"""Objects that are read at the same time, because each read waits for an answer from afar."""

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(s3|gs|file):", re.IGNORECASE)
_FORMS = "a folder, file:///FOLDER, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def scheme_of(text: str) -> str:
    """Return the scheme of an address in small letters; empty for a folder."""
    found = _ADDRESS.match(text)
    return (found[1] or found[2]).lower() if found else ""


def open_files(address: "str | Path | StoreFiles") -> "StoreFiles":
    """Return the files of a folder or an address; refuse an address that nobody knows, or where nobody answers."""
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


class Objects:
    """The objects below an address: read, put whole, listed, removed. Every failure is one sentence."""

    def __init__(self, scheme: str, bucket: str, prefix: str, *, patience: float, attempts: int):
        self.scheme, self.bucket = scheme, bucket
        self.root = f"{bucket}/{prefix}" if prefix else bucket
        self.address = f"{scheme}://{self.root}"
        with self._sentences():
            self.filesystem = _open_s3(patience, attempts) if scheme == "s3" else _open_gs(patience)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def get(self, name: str) -> bytes:
        """Return an object's content; FileNotFoundError if there is none."""
        with self._sentences():
            content: bytes = self.filesystem.cat_file(self._path(name))
        return content

    def put(self, name: str, content: bytes) -> None:
        """Put an object. fsspec sends it from a thread of its own, so Ctrl-C ends the wait and not the request."""
        with self._sentences():
            self.filesystem.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Put an object unless there is one of that name: of many who try, the server lets one succeed."""
        with self._sentences():
            try:
                self.filesystem.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                # Two conditional puts in the same moment: S3 may refuse one, which may then be tried again.
                if "conflict" not in str(error).lower():
                    raise
                return False
        return True

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with suppress(FileNotFoundError), self._sentences():
            self.filesystem.rm_file(self._path(name))

    def exists(self, name: str) -> bool:
        """Tell whether there is an object of this very name."""
        with self._sentences():
            return bool(self.filesystem.isfile(self._path(name)))

    def below(self, name: str) -> list[str]:
        """List all objects below a folder, or the one of that name, sorted and relative to the address."""
        with self._sentences():
            found = self.filesystem.find(self._path(name))
        # Some clients mark a folder that became empty with an object whose name ends in a slash.
        return sorted(path[len(self.root) + 1 :] for path in found if not path.endswith("/"))

    def modified(self, name: str) -> float:
        """Return when the server put an object there, in seconds by the server's clock."""
        with self._sentences():
            return float(self.filesystem.modified(self._path(name)).timestamp())

    def check_bucket(self) -> None:
        """Refuse a bucket that is not there or does not let us read; a folder without objects is fine."""
        with suppress(FileNotFoundError), self._sentences():
            self.filesystem.ls(self.root)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn every failure but a missing object into a `StorageError`, since readers take `OSError` for damage."""
        try:
            yield
        except ImportError as error:
            raise ConfigError(
                f"{self.address!r} needs a package that is not installed ({error}); allowed: {_FORMS}; run pip install "
                f"'unmask[{self.scheme}]'"
            ) from error
        # Each package below has error classes of its own, from OSError to plain Exception.
        except Exception as error:
            short = " ".join(str(error).split())[:300] or type(error).__name__
            kinds = " ".join(type(one).__name__ for one in (error, error.__cause__) if one is not None)
            if "NoSuchBucket" in kinds or "bucket does not exist" in short:
                raise StorageError(
                    f"there is no bucket {self.bucket!r} at {self._server} (in {self.address!r}); allowed: one that "
                    f"exists; create it, or correct the address or {self._settings}"
                ) from error
            if isinstance(error, FileNotFoundError):
                raise
            if re.search("Permission|Credential", kinds) or re.match("Forbidden|.*Unauthenticated", short):
                raise StorageError(
                    f"{self.address!r} refused us ({short}); allowed: credentials that may read it and, for a run, "
                    f"write to it; {_credentials(self.scheme)}"
                ) from error
            raise StorageError(
                f"{self.address!r} cannot be used: {self._server} says {short!r}; allowed: a bucket that answers; what "
                f"is finished stays; check {self._settings} and the network, and run the same command to go on"
            ) from error

    @property
    def _server(self) -> str:
        return (_setting(*_ENDPOINTS) or "Amazon S3") if self.scheme == "s3" else "Google Cloud Storage"

    @property
    def _settings(self) -> str:
        return "AWS_ENDPOINT_URL, AWS_REGION" if self.scheme == "s3" else "the project"


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
        """Let another driver have the address. It can be read on."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None

    @property
    def held(self) -> str:
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
        self.objects.put(name, content)

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

    def finished(self, folder: str, info_file: str) -> list[str]:
        parts = [name.split("/") for name in self.objects.below(folder)]
        return [part[1] for part in parts if len(part) == 3 and part[2] == info_file]

    def is_finished(self, info_path: str) -> bool:
        return self.objects.exists(info_path)

    def add_shard(self, path: str, files: Mapping[str, bytes]) -> None:
        """Put the files in their order. A driver that is killed in between leaves tables that are put again."""
        if self.is_finished(f"{path}/{list(files)[-1]}"):
            return
        for name, content in files.items():
            self.write(f"{path}/{name}", content)

    def set_aside(self, path: str) -> bool:
        """Copy what is there, then remove it, the info file first: a half-removed shard must not look finished."""
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

    def holder(self, path: str) -> str:
        return "this process" if path in self._claimed else ""

    @contextmanager
    def manifest_lock(self) -> Iterator[None]:
        self._check_writer()
        with self._threads:
            yield


StoreFiles = LocalFiles | RemoteFiles
"""Storage of one study. Both have the same methods."""


def _open_s3(patience: float, attempts: int) -> Any:
    import s3fs

    region = _setting("AWS_REGION", "AWS_DEFAULT_REGION") or ("us-east-1" if _setting(*_ENDPOINTS) else None)
    filesystem = s3fs.S3FileSystem(
        # Another process may have put or removed an object since the last listing.
        use_listings_cache=False,
        skip_instance_cache=True,
        client_kwargs={"region_name": region} if region else {},
        config_kwargs={"connect_timeout": patience, "read_timeout": patience, "retries": {"max_attempts": 1}},
    )
    filesystem.retries = attempts
    return filesystem


def _open_gs(patience: float) -> Any:
    import gcsfs

    return gcsfs.GCSFileSystem(use_listings_cache=False, skip_instance_cache=True, timeout=patience)


def _setting(*names: str) -> str:
    """Return the first of these environment variables that has a value."""
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _credentials(scheme: str) -> str:
    if scheme == "gs":
        return "set GOOGLE_APPLICATION_CREDENTIALS, or log in with `gcloud auth application-default login`"
    unset = " (AWS_ACCESS_KEY_ID is not set)" if not os.environ.get("AWS_ACCESS_KEY_ID") else ""
    return f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE{unset}"
