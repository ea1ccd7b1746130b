"""Objects below an address of S3 or Google Cloud Storage, through fsspec; every failure in one sentence."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from unmask.base.errors import ConfigError, StorageError

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class Objects:
    """Reads, uploads, lists and removes objects below an address; failures are one-sentence `StorageError`s."""

    def __init__(self, scheme: str, bucket: str, prefix: str, *, patience: float, attempts: int):
        self.scheme, self.bucket = scheme, bucket
        self.root = f"{bucket}/{prefix}" if prefix else bucket
        self.address = f"{scheme}://{self.root}"
        with self._translate_errors():
            self.filesystem = _open_s3(patience, attempts) if scheme == "s3" else _open_gs(patience)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def get(self, name: str) -> bytes:
        """Return an object's content; FileNotFoundError if there is none."""
        with self._translate_errors():
            content: bytes = self.filesystem.cat_file(self._path(name))
        return content

    def upload(self, name: str, content: bytes) -> None:
        """Upload an object. fsspec sends it from a thread of its own, so Ctrl-C ends the wait and not the request."""
        with self._translate_errors(writing=True):
            self.filesystem.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Upload an object unless the name is taken; tell whether it succeeded, as one of many callers does."""
        with self._translate_errors(writing=True):
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
        with suppress(FileNotFoundError), self._translate_errors():
            self.filesystem.rm_file(self._path(name))

    def exists(self, name: str) -> bool:
        """Tell whether there is an object of this very name."""
        with self._translate_errors():
            return bool(self.filesystem.isfile(self._path(name)))

    def below(self, name: str) -> list[str]:
        """List all objects below a folder, or the one of that name, sorted and relative to the address."""
        with self._translate_errors():
            found = self.filesystem.find(self._path(name))
        # Some clients mark a folder that became empty with an object whose name ends in a slash.
        return sorted(path[len(self.root) + 1 :] for path in found if not path.endswith("/"))

    def modification_time(self, name: str) -> float:
        """Return when the server put an object there, in seconds by the server's clock."""
        with self._translate_errors():
            return float(self.filesystem.modified(self._path(name)).timestamp())

    def check_bucket(self) -> None:
        """Refuse a bucket that is not there or does not let us read; a folder without objects is fine."""
        with suppress(FileNotFoundError), self._translate_errors():
            self.filesystem.ls(self.root)

    @contextmanager
    def _translate_errors(self, *, writing: bool = False) -> Iterator[None]:
        """Translate every failure but a missing object to `StorageError`, since readers take `OSError` for damage."""
        try:
            yield
        except ImportError as error:
            raise ConfigError(
                f"{self.address!r} needs a package that is not installed ({error}); allowed: a folder, or an address "
                f"whose package is there; run pip install 'unmask[{self.scheme}]'"
            ) from error
        # Each package below has error classes of its own, from OSError to plain Exception.
        except Exception as error:
            short = " ".join(str(error).split())[:300] or type(error).__name__
            kinds = " ".join(type(one).__name__ for one in (error, error.__cause__) if one is not None)
            missing = isinstance(error, FileNotFoundError)
            if "NoSuchBucket" in kinds or "bucket does not exist" in short or (writing and missing):
                raise StorageError(
                    f"there is no bucket {self.bucket!r} at {self._server_name} (in {self.address!r}); allowed: one "
                    f"that exists; create it, or correct the address or {self._settings_to_check}"
                ) from error
            if missing:
                raise
            if re.search("Permission|Credential", kinds) or re.match("Forbidden|.*Unauthenticated", short):
                raise StorageError(
                    f"{self.address!r} refused us ({short}); allowed: credentials that may read it and, for a run, "
                    f"write to it; {_credentials_hint(self.scheme)}"
                ) from error
            raise StorageError(
                f"{self.address!r} cannot be used: {self._server_name} says {short!r}; allowed: a bucket that answers; "
                f"what is finished stays; check {self._settings_to_check} and the network, and run the same command to "
                "go on"
            ) from error

    @property
    def _server_name(self) -> str:
        return (_environment_value(*_ENDPOINTS) or "Amazon S3") if self.scheme == "s3" else "Google Cloud Storage"

    @property
    def _settings_to_check(self) -> str:
        return "AWS_ENDPOINT_URL, AWS_REGION" if self.scheme == "s3" else "the project"


def _open_s3(patience: float, attempts: int) -> Any:
    import s3fs

    region = _environment_value("AWS_REGION", "AWS_DEFAULT_REGION") or (
        "us-east-1" if _environment_value(*_ENDPOINTS) else None
    )
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


def _environment_value(*names: str) -> str:
    """Return the first of these environment variables that has a value."""
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _credentials_hint(scheme: str) -> str:
    if scheme == "gs":
        return "set GOOGLE_APPLICATION_CREDENTIALS, or log in with `gcloud auth application-default login`"
    unset = " (AWS_ACCESS_KEY_ID is not set)" if not os.environ.get("AWS_ACCESS_KEY_ID") else ""
    return f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE{unset}"
