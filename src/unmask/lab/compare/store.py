"""What a comparison has decoded so far, on disk: a plan, and one file per finished batch.

A file holds the answers of a batch, everything they depend on, and a hash over both. So the same comparison goes on
where it was stopped, nothing of another one is ever read, and what is in a damaged file is decoded again. The seconds
of a batch lie in a file of their own: the same answers are the same bytes in every run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.base.environment import code_fingerprint, versions
from unmask.base.errors import ConfigError, StorageError
from unmask.base.files import write_text
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json
from unmask.lab.store import fingerprint
from unmask.tasks import Example

FORMAT = "unmask-compare-2"
PLAN, BATCHES, TIMES = "plan.json", "pieces", "times"  # stored names
SAME = "allowed: a new folder, or that of the same comparison; choose another --out"


def versions_behind_answers() -> dict[str, Any]:
    """Return the versions and the code hash that answers depend on. The number of threads is left out."""
    return {**{name: value for name, value in versions().items() if name != "threads"}, "code": code_fingerprint()}


def content_hash(value: Any) -> str:
    """Hash plain values to 32 digits, enough for names of files."""
    return fingerprint(value, digits=32)


def hash_prompts(examples: Sequence[Example]) -> str:
    """Hash prompts that are decoded together, in their order, with all that scores their answers."""
    return content_hash([[e.id, e.prompt, e.target, list(e.parts), dict(e.constraints)] for e in examples])


def check_same_comparison(path: Path, theirs: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse a file that belongs to another comparison; `config` is the plan of this one."""
    differ = [name for name, value in config.items() if theirs.get(name) != value]
    if differ:
        raise ConfigError(
            f"{str(path)!r} is of another comparison ({', '.join(differ)} differ); {SAME}, or delete the file"
        )


def count_finished(folder: Path) -> int:
    """Count the finished batches in a folder; 0 where there is no such folder."""
    return len(list((folder / BATCHES).glob("*.json")))


class BatchStore:
    """Finished batches of one comparison on disk; without a folder nothing is stored."""

    def __init__(self, folder: Path | None, config: Mapping[str, Any]):
        """Open a folder, or refuse one that holds another comparison."""
        self.folder, self._config = folder, config
        # Part of the name of every file: after a change of code the batches of old code are not found, and stay.
        self._basis = content_hash({**config, "computed_by": versions_behind_answers()})
        self.damaged: list[Path] = []
        """Damaged files, whose batches are decoded again."""
        if folder is not None:
            self._check_plan(folder / PLAN)

    def read(self, key: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Read the answers of a batch; None where they are to be decoded."""
        if self.folder is None:
            return None
        whole, path = self._locate(key, BATCHES)
        try:
            body = _read(path)
            # The hash says that the file is whole; the key, that it is this batch and no copy of another.
            if body["key"] == whole:
                return list(body["rows"])
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, HashMismatch, LookupError):
            pass
        self.damaged.append(path)
        return None

    def read_time(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read the seconds of a batch; None where they are lost, which is no reason to decode it again."""
        if self.folder is None:
            return None
        whole, path = self._locate(key, TIMES)
        try:
            body = _read(path)
            return dict(body["time"]) if body["key"] == whole else None
        except (OSError, UnicodeDecodeError, HashMismatch, LookupError, TypeError, ValueError):
            return None

    def write(self, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], time: Mapping[str, Any]) -> None:
        """Write a finished batch with its seconds."""
        if self.folder is None:
            return
        # Not before there is something to keep: a command that is refused leaves nothing.
        if not (self.folder / PLAN).exists():
            _write(self.folder / PLAN, self._config)
        whole, path = self._locate(key, TIMES)
        _write(path, {"key": whole, "time": dict(time)})
        # The answers last: a batch that is there has its seconds.
        whole, path = self._locate(key, BATCHES)
        _write(path, {"key": whole, "rows": list(rows)})

    def _locate(self, key: Mapping[str, Any], kind: str) -> tuple[dict[str, Any], Path]:
        assert self.folder is not None
        whole = {**key, "basis": self._basis}
        return whole, self.folder / kind / f"{content_hash(whole)}.json"

    def _check_plan(self, path: Path) -> None:
        try:
            check_same_comparison(path, _read(path), self._config)
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, HashMismatch) as error:
            raise ConfigError(
                f"{str(path)!r} is there and no plan of `unmask compare`, or damaged ({error}); {SAME}, or delete the "
                "file: what is finished is checked piece by piece"
            ) from error


def _read(path: Path) -> dict[str, Any]:
    return from_hashed_json(FORMAT, path.read_text(encoding="utf-8"), dict, kind="comparison")


def _write(path: Path, body: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, to_hashed_json(FORMAT, body))
    except OSError as error:
        raise StorageError(
            f"{str(path)!r} cannot be written ({error.strerror}); what is finished is kept: make room, or repair the "
            "folder, and run the same command"
        ) from error
