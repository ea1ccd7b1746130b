"""What a comparison has decoded so far, on disk: a plan, and one file per batch.

A file holds everything that its answers depend on, beside them, and a hash over both. So the same comparison goes on
where it was stopped, nothing of another one is ever read, and what is in a damaged file is decoded again. The seconds
that a batch took lie in a file of their own: the same answers are the same bytes.
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
PLAN, PIECES, TIMES = "plan.json", "pieces", "times"
SAME = "allowed: a new folder, or that of the same comparison; choose another --out"


def computed_by() -> dict[str, Any]:
    """What answers depend on besides a comparison's configuration; the number of threads is no reason to begin anew."""
    return {**{name: value for name, value in versions().items() if name != "threads"}, "code": code_fingerprint()}


def content_hash(value: Any) -> str:
    """Of plain values; names of files are longer than the fingerprints of a study."""
    return fingerprint(value, digits=32)


def hash_of_prompts(members: Sequence[Example]) -> str:
    """Of prompts that are decoded together, in their order, with all that scores their answers."""
    return content_hash([[e.id, e.prompt, e.target, list(e.parts), dict(e.constraints)] for e in members])


def check_same(path: Path, theirs: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse a file of another comparison; `config` is the plan of this one."""
    differ = [name for name, value in config.items() if theirs.get(name) != value]
    if differ:
        raise ConfigError(
            f"{str(path)!r} is of another comparison ({', '.join(differ)} differ); {SAME}, or delete the file"
        )


class ComparePieces:
    """The finished batches of one comparison; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, config: Mapping[str, Any]):
        """Begin or continue in a folder, which is refused where another comparison is in it."""
        self.folder, self.basis = folder, {**config, "computed_by": computed_by()}
        self.damaged: list[Path] = []
        """Files that were not what was written: decoded again."""
        self._config = config
        if folder is not None:
            self._check(folder)

    def has(self, key: Mapping[str, Any]) -> bool:
        """Whether there is a file of this batch; only `read` knows what it is worth."""
        path, _ = self._place(key)
        return path is not None and path.exists()

    def read(self, key: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """The answers of a batch; None where they are to be decoded."""
        path, whole = self._place(key)
        if path is None:
            return None
        try:
            body = _read(path)
            if body["key"] == whole:
                return list(body["rows"])
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, HashMismatch, LookupError):
            pass
        self.damaged.append(path)
        return None

    def read_time(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """How long a batch took; None where nobody knows any more, which is no reason to decode it again."""
        path, whole = self._place(key, TIMES)
        try:
            body = {} if path is None else _read(path)
            return dict(body["time"]) if body.get("key") == whole else None
        except (OSError, UnicodeDecodeError, HashMismatch, LookupError, TypeError, ValueError):
            return None

    def write(self, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], time: Mapping[str, Any]) -> None:
        path, whole = self._place(key)
        beside, _ = self._place(key, TIMES)
        if self.folder is not None and path is not None and beside is not None:
            # Not before there is something to keep: a command that is refused leaves nothing.
            if not (self.folder / PLAN).exists():
                _write(self.folder / PLAN, self._config)
            # The answers last: a batch that is there has its seconds.
            _write(beside, {"key": whole, "time": dict(time)})
            _write(path, {"key": whole, "rows": list(rows)})

    def _place(self, key: Mapping[str, Any], kind: str = PIECES) -> tuple[Path | None, dict[str, Any]]:
        whole = {**key, "basis": content_hash(self.basis)}
        return (None if self.folder is None else self.folder / kind / f"{content_hash(whole)}.json"), whole

    def _check(self, folder: Path) -> None:
        path = folder / PLAN
        try:
            check_same(path, _read(path), self._config)
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
        raise _not_written(path, error) from error


def finished_batches(folder: Path) -> int:
    """How many there are; 0 where there is no such folder."""
    return len(list((folder / PIECES).glob("*.json")))


def _not_written(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{str(path)!r} cannot be written ({error.strerror}); what is finished is kept: make room, or repair the "
        "folder, and run the same command"
    )
