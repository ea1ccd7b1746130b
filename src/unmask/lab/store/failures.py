"""Work that failed: how often, and with which traceback. What failed too often is set aside, and the rest goes on.

    DIR/failed/NAME.json         of the shard or unit of that name; gone once it is done, or on request

A count is read and raised by whoever holds the lock of that work, or the lease, so several processes count together.
Files vouch for themselves, as gates do.
"""

import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from unmask.base.environment import versions
from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import storable
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json
from unmask.base.options import check_annotations
from unmask.lab.store.places import Place, each, place_of
from unmask.lab.store.shards import Shard, Unit, cannot_write, write_synced

FORMAT = "unmask-failure-1"
ATTEMPTS = 3
"""So often a shard or a unit is tried before it is set aside."""
LONGEST_ERROR, LONGEST_TRACEBACK = 500, 20_000
"""Characters that are kept: the beginning of the one, the end of the other."""


@dataclass(frozen=True)
class Failure:
    """Work that failed, and how it did the last time."""

    name: str
    """Of the shard or unit."""
    model: str
    task: str
    attempts: int
    error: str
    """On one line."""
    traceback: str
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        check_annotations(Failure, vars(self), "the failure")

    @property
    def set_aside(self) -> bool:
        return self.attempts >= ATTEMPTS


class Failures:
    """Those of a study's folder."""

    def __init__(self, folder: str | Place):
        self.home = place_of(folder) / "failed"

    def of(self, work: Shard | Unit) -> Failure | None:
        """How the work failed; None if it never did, or has been done since."""
        return self._read(self._path(work.name))

    def set_aside(self) -> list[Failure]:
        """Work that is not tried any more, by name."""
        return [failure for failure in self.all() if failure.set_aside]

    def all(self) -> list[Failure]:
        """Everything that failed and is not done, by name."""
        names = sorted(path.name for path in self.home.glob("*.json"))
        found = each(self.home, lambda name: self._read(self.home / name), names)
        return [failure for failure in found if failure is not None]

    def add(self, work: Shard | Unit, error: BaseException) -> Failure:
        """Count one more. Only for who holds the lock of the work."""
        before = self.of(work)
        whole = storable("".join(traceback.format_exception(error)))
        failure = Failure(
            name=work.name,
            model=work.model,
            task=work.task,
            attempts=1 if before is None else before.attempts + 1,
            error=in_a_line(error),
            traceback=whole[-LONGEST_TRACEBACK:],
            versions=versions(),
        )
        try:
            self.home.mkdir(exist_ok=True)
        except OSError as refused:
            raise cannot_write(self.home, refused) from refused
        write_synced(self._path(work.name), to_hashed_json(FORMAT, asdict(failure)).encode())
        return failure

    def forget(self, work: Shard | Unit) -> None:
        """It has been done."""
        self._remove(self._path(work.name))

    def forget_all(self) -> None:
        """Begin to count anew: everything is tried again."""
        for path in self.home.glob("*.json"):
            self._remove(path)

    def _path(self, name: str) -> Place:
        return self.home / f"{name}.json"

    def _remove(self, path: Place) -> None:
        try:
            with suppress(FileNotFoundError):
                path.unlink()
        except OSError as error:
            raise cannot_write(self.home, error) from error

    def _read(self, path: Place) -> Failure | None:
        """None where there is no such file, or it has just gone: another process has done the work."""
        try:
            return from_hashed_json(
                FORMAT,
                path.read_bytes().decode(),
                lambda body: Failure(**body),
                kind="failure",
                to_body=asdict,
                refusals=(ConfigError,),
            )
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, HashMismatch) as error:
            raise SchemaError(
                f"{str(path)!r} cannot be read ({error}); allowed: what `unmask study run` wrote; run the study with "
                "--retry-failed, which forgets it"
            ) from error


def in_a_line(error: BaseException) -> str:
    """Class and message, short, and without what a file or a screen cannot hold."""
    said = "".join(traceback.format_exception_only(error))
    return " ".join(storable(said).split())[:LONGEST_ERROR]


def as_json(failure: Failure) -> dict[str, Any]:
    """What `status --json` shows."""
    return {**asdict(failure), "set_aside": failure.set_aside}
