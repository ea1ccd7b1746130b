"""Work that failed: how often, and with which traceback. A shard that failed too often is set aside, the rest goes on.

    DIR/failed/NAME.json    of the shard of that name; gone once it is done, or on request

A count is read and raised by whoever has claimed that shard, so several processes count together.
"""

import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from unmask.base.environment import versions
from unmask.base.errors import SchemaError
from unmask.base.files import storable
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json
from unmask.lab.store.remote import StoreFiles
from unmask.lab.store.shard import Shard

FORMAT = "unmask-failure-1"
ATTEMPTS = 3
"""Attempts at a shard before it is set aside."""
LONGEST_ERROR, LONGEST_TRACEBACK = 500, 20_000
"""Characters that are kept: the beginning of the one, the end of the other."""


@dataclass(frozen=True)
class Failure:
    """A shard that failed, and how it failed the last time."""

    name: str
    model: str
    task: str
    attempts: int
    error: str
    """Class and message on one line."""
    traceback: str
    versions: Mapping[str, str]

    @property
    def is_set_aside(self) -> bool:
        return self.attempts >= ATTEMPTS

    def to_json(self) -> dict[str, Any]:
        """Return the failure as `study status --json` shows it."""
        return {**asdict(self), "set_aside": self.is_set_aside}


class Failures:
    """The failures of a study."""

    def __init__(self, files: StoreFiles):
        self._files = files

    def of(self, shard: Shard) -> Failure | None:
        """Return how a shard failed; None if it never did, or has been done since."""
        return self._read(_failure_path(shard))

    def all(self) -> list[Failure]:
        """List everything that failed and is not done, by name."""
        found = self._files.map(lambda name: self._read(f"failed/{name}"), self._names())
        return [failure for failure in found if failure is not None]

    def set_aside(self) -> list[Failure]:
        """List the shards that failed too often to be tried again, by name."""
        return [failure for failure in self.all() if failure.is_set_aside]

    def add(self, shard: Shard, error: BaseException) -> Failure:
        """Count one more failure of a shard, which the caller must have claimed."""
        before = self.of(shard)
        failure = Failure(
            name=shard.name,
            model=shard.model,
            task=shard.task,
            attempts=1 if before is None else before.attempts + 1,
            error=" ".join(storable("".join(traceback.format_exception_only(error))).split())[:LONGEST_ERROR],
            traceback=storable("".join(traceback.format_exception(error)))[-LONGEST_TRACEBACK:],
            versions=versions(),
        )
        self._files.write(_failure_path(shard), to_hashed_json(FORMAT, asdict(failure)).encode())
        return failure

    def forget(self, shard: Shard) -> None:
        """Remove the failure of a shard that has been done."""
        self._files.remove(_failure_path(shard))

    def forget_all(self) -> None:
        """Remove all failures, so that everything is tried again."""
        for name in self._names():
            self._files.remove(f"failed/{name}")

    def _names(self) -> list[str]:
        return [name for name in self._files.names("failed") if name.endswith(".json") and name[0] != "."]

    def _read(self, path: str) -> Failure | None:
        try:
            text = self._files.read(path).decode()
            return from_hashed_json(FORMAT, text, lambda body: Failure(**body), kind="failure", to_body=asdict)
        except FileNotFoundError:
            # Another process has just done the work.
            return None
        except (OSError, UnicodeDecodeError, HashMismatch) as error:
            raise SchemaError(
                f"{f'{self._files.address}/{path}'!r} cannot be read ({error}); allowed: what `unmask study run` wrote"
                "; run the study with --retry-failed, which forgets it"
            ) from error


def _failure_path(shard: Shard) -> str:
    return f"failed/{shard.name}.json"
