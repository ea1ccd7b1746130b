"""Objects under an address of an object store: read, put whole, listed, deleted; each failure in one line of words."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

from unmask.base.errors import ConfigError, StorageError

ANSWER_WITHIN, ATTEMPTS = 3, 2
"""Seconds and attempts of a first contact and of leases: who mistyped an address wants to know."""
PATIENCE, RETRIES = 30, 6
"""The same for a store that has answered: a run goes on through what passes."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


class Objects(Protocol):
    """What a store asks of the place it is in. Keys are full ones, without the bucket."""

    @property
    def bucket(self) -> str:
        """With its scheme, as an address begins."""

    def get(self, key: str) -> bytes:
        """FileNotFoundError where there is none."""

    def put(self, key: str, content: bytes) -> None:
        """There whole when this returns; before, what was there before."""

    def exists(self, key: str) -> bool:
        """Whether there is an object of this very key."""

    def list(self, folder: str) -> Mapping[str, float]:
        """Keys of everything below, and when the server put it there, in seconds."""

    def delete(self, key: str) -> None:
        """Nothing where there is none."""


class Remote:
    """A bucket of S3, of a server that speaks like it, or of Google Cloud Storage. The environment has credentials."""

    def __init__(self, scheme: str, name: str, *, patient: bool = True):
        self.scheme, self.name = scheme, name
        how = (PATIENCE, RETRIES) if patient else (ANSWER_WITHIN, ATTEMPTS)
        try:
            self._files = _OPENED[scheme](*how)
        except (ImportError, OSError, ValueError) as error:
            raise ConfigError(
                f"{self.bucket!r} cannot be opened ({_first_line(error)}); allowed: what pyarrow.fs connects to; "
                f"correct the address, or {' and '.join(ENDPOINTS)}"
            ) from error

    @property
    def bucket(self) -> str:
        return f"{self.scheme}://{self.name}"

    def get(self, key: str) -> bytes:
        with self._asked(key):
            for _ in range(_AGAIN):
                content = self._read(self._path(key))
                if content is not None:
                    return content
            raise OSError("it is replaced again and again while it is read")

    def _read(self, path: str) -> bytes | None:
        """None where it was replaced or removed meanwhile: pyarrow asks for the length first, and gets so much."""
        try:
            with self._files.open_input_stream(path) as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            if _TOO_LONG in str(error):
                return None
            raise
        # Tables are put once.
        changed = path.endswith(".json") and self._files.get_file_info(path).size != len(content)
        return None if changed else content

    def put(self, key: str, content: bytes) -> None:
        with self._asked(key):
            _uninterrupted(lambda: self._stream(key, content))

    def _stream(self, key: str, content: bytes) -> None:
        with self._files.open_output_stream(self._path(key)) as stream:
            stream.write(content)

    def exists(self, key: str) -> bool:
        from pyarrow.fs import FileType

        with self._asked(key):
            return bool(self._files.get_file_info(self._path(key)).type == FileType.File)

    def list(self, folder: str, *, deep: bool = True) -> dict[str, float]:
        from pyarrow.fs import FileSelector, FileType

        with self._asked(folder):
            chosen = FileSelector(self._path(folder), recursive=deep, allow_not_found=True)
            found = self._files.get_file_info(chosen)
        start = len(self.name) + 1
        return {info.path[start:]: info.mtime_ns / 1e9 for info in found if info.type == FileType.File}

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError), self._asked(key):
            self._files.delete_file(self._path(key))

    def check_there(self, key: str) -> None:
        """Refuse a bucket that is not there or does not let us read; who may list only a part of it is let in."""
        from pyarrow.fs import FileType

        if self.list(key, deep=False):
            return
        try:
            there = self._files.get_file_info(self.name).type != FileType.NotFound
        except OSError:
            return
        if not there:
            raise self._no_bucket(key)

    def _path(self, key: str) -> str:
        return f"{self.name}/{key}" if key else self.name

    @contextmanager
    def _asked(self, key: str) -> Iterator[None]:
        """No `OSError` but that nothing is there: readers take the others for damage of a file."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._in_words(key, error) from error

    def _in_words(self, key: str, error: OSError) -> StorageError:
        said, place = str(error), f"{self.bucket}/{key}"
        if "NO_SUCH_BUCKET" in said:
            return self._no_bucket(key)
        short = _first_line(error)
        if any(word in said for word in _REFUSED):
            return StorageError(
                f"{place!r} refused us ({_named(_REFUSED, said)}: {short}); allowed: credentials that may read it and, "
                f"for a run, write to it; {_credentials(self.scheme)}"
            )
        if any(word in said for word in _SILENT):
            return StorageError(
                f"{_server(self.scheme)} does not answer for {place!r} ({short}); what is finished stays; check "
                f"{_where(self.scheme)} and the network, and run the same command to go on"
            )
        return StorageError(
            f"{place!r} cannot be used ({short}); allowed: a bucket that answers; what is finished stays; correct what "
            "it says, and run the same command to go on"
        )

    def _no_bucket(self, key: str) -> StorageError:
        return StorageError(
            f"there is no bucket {self.name!r} at {_server(self.scheme)} (in {f'{self.bucket}/{key}'!r}); allowed: one "
            f"that exists; create it, or correct the address or {_where(self.scheme)}"
        )


def hasty(objects: Objects) -> Objects:
    """The same objects for who would rather hear that nobody answers than wait."""
    return Remote(objects.scheme, objects.name, patient=False) if isinstance(objects, Remote) else objects


class Guarded:
    """The same objects for one who may write as long as `guard` does not raise."""

    def __init__(self, objects: Objects, guard: Callable[[], None]):
        self.objects, self.guard = objects, guard

    @property
    def bucket(self) -> str:
        return self.objects.bucket

    def get(self, key: str) -> bytes:
        return self.objects.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.guard()
        self.objects.put(key, content)

    def exists(self, key: str) -> bool:
        return self.objects.exists(key)

    def list(self, folder: str) -> Mapping[str, float]:
        return self.objects.list(folder)

    def delete(self, key: str) -> None:
        self.guard()
        self.objects.delete(key)


class Owned(Guarded):
    """The same for the only one who writes: what it has seen or put it need not ask for again.

    Names are listed once, and small files (`.json`) read once. What others put for the owner it is told (`learn`).
    """

    def __init__(self, objects: Objects, guard: Callable[[], None], home: str):
        super().__init__(objects, guard)
        self._there = dict(objects.list(home))
        self._kept: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        if key not in self._there:
            raise FileNotFoundError(f"{self.bucket}/{key}")
        if key not in self._kept:
            content = super().get(key)
            if not key.endswith(".json"):
                return content
            self._kept[key] = content
        return self._kept[key]

    def put(self, key: str, content: bytes) -> None:
        super().put(key, content)
        self.learn(key)
        if key.endswith(".json"):
            self._kept[key] = content

    def learn(self, key: str) -> None:
        """It is there now, or is another."""
        self._kept.pop(key, None)
        self._there[key] = 0.0

    def exists(self, key: str) -> bool:
        return key in self._there

    def list(self, folder: str) -> Mapping[str, float]:
        start = f"{folder}/" if folder else ""
        return {key: when for key, when in self._there.copy().items() if key.startswith(start)}

    def delete(self, key: str) -> None:
        super().delete(key)
        self._there.pop(key, None)
        self._kept.pop(key, None)


def _uninterrupted(do: Callable[[], None]) -> None:
    """Ctrl-C ends the waiting, not the put: a stream that is given up is closed, which puts what it has so far."""
    if threading.current_thread() is not threading.main_thread():
        return do()
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            do()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    threading.Thread(target=run, name="unmask-put").start()
    outcome.result()


def _s3(seconds: float, attempts: int) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    how: dict[str, Any] = {}
    if endpoint := _first(ENDPOINTS):
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        how = {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    return S3FileSystem(
        connect_timeout=seconds,
        request_timeout=seconds,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=attempts),
        # Small objects in one request: what fails is said when it is put, not when it is opened.
        allow_delayed_open=True,
        region=_first(_REGIONS) or ("us-east-1" if how else None),
        **how,
    )


def _gs(seconds: float, attempts: int) -> Any:
    from pyarrow.fs import GcsFileSystem

    return GcsFileSystem(retry_time_limit=timedelta(seconds=seconds * attempts))


_OPENED: dict[str, Callable[[float, int], Any]] = {"s3": _s3, "gs": _gs}
SCHEMES = tuple(_OPENED)

_REFUSED = (
    "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN", "INVALID_CLIENT_TOKEN_ID",
    "UNRECOGNIZED_CLIENT", "HTTP status 403", "HTTP status 401", "OAuth2", "PERMISSION_DENIED", "UNAUTHENTICATED",
)  # fmt: skip
_SILENT = (
    "NETWORK_CONNECTION",
    "curlCode",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
)


_AGAIN, _TOO_LONG = 5, "response stream"
"""Attempts to read what is being replaced, and what pyarrow says where more came than it had asked for."""


def _first(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _named(words: tuple[str, ...], said: str) -> str:
    return next(word for word in words if word in said).lower().replace("_", " ")


def _server(scheme: str) -> str:
    return (_first(ENDPOINTS) or "Amazon S3") if scheme == "s3" else "Google Cloud Storage"


def _where(scheme: str) -> str:
    return "AWS_ENDPOINT_URL, AWS_REGION" if scheme == "s3" else "the project"


def _credentials(scheme: str) -> str:
    if scheme == "gs":
        return "set GOOGLE_APPLICATION_CREDENTIALS, or log in with `gcloud auth application-default login`"
    unset = " (AWS_ACCESS_KEY_ID is not set)" if not os.environ.get("AWS_ACCESS_KEY_ID") else ""
    return f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE{unset}"


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."
