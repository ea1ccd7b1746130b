"""What a run wrote down: its identity, its curve, and checkpoints from which it goes on after a kill."""

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from unmask.atomic import atomic_write, leftovers, locked, sync, sync_folder, write_text
from unmask.errors import ConfigError, SchemaError
from unmask.strict_json import unique
from unmask.train.config import Config, differences

IDENTITY, CURVE, SCORES = "run.json", "curve.csv", "scores.csv"
CHECKPOINTS, LOCK = "checkpoints", ".lock"
KEPT = 2
SEAL = b"\nunmask training checkpoint, sha256 of the bytes before this line: "
"""Ends a checkpoint, followed by 64 hexadecimal digits; `torch.load` does not mind."""


@dataclass(frozen=True)
class Point:
    """A line of the curve."""

    step: int
    loss: float
    """Mean since the line before."""
    validation: float | None
    rate: float
    gradient: float
    """Norm of the last step's gradient before clipping."""
    tokens: int
    """Slots processed so far, padding included."""
    seconds: float
    """Time spent in training so far, over all attempts."""


@dataclass
class Record:
    """What grows during a run and travels in its checkpoints."""

    points: list[Point] = field(default_factory=list)
    scores: list[tuple[int, str, float]] = field(default_factory=list)
    """Step, task, mean utility."""
    validation: dict[str, float] = field(default_factory=dict)
    """The last validation losses by source."""

    def write(self, folder: Path) -> None:
        """Both CSV files, complete or as they were."""
        names = [part.name for part in fields(Point)]
        write_text(folder / CURVE, _csv(names, [list(asdict(point).values()) for point in self.points]))
        if self.scores:
            write_text(folder / SCORES, _csv(["step", "task", "score"], self.scores))


@contextmanager
def held(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """A folder in which no other process trains, until the caller is done or dead."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            sure = stack.enter_context(locked(folder / LOCK))
        except BlockingIOError as error:
            raise ConfigError(
                f"{folder} is in use by another run ({error.strerror}); allowed: one run at a time in a folder; wait "
                "for it, or use another --out"
            ) from error
        if not sure:
            say(f"{folder} cannot be locked on this file system: see that no second run uses it")
        yield


def claim(folder: Path, config: Config, data: str, exported: tuple[str, ...]) -> None:
    """Take a held folder for this run, and throw away what a kill left half written of it and of what it exports."""
    stale = [path for name in (IDENTITY, CURVE, SCORES, *exported) for path in leftovers(folder / name)]
    for path in (*stale, *(folder / CHECKPOINTS).glob(".step-*.partial")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_text(folder / IDENTITY, json.dumps({"config": config.flat(), "data": data}, indent=2) + "\n")


def check_place(folder: Path) -> None:
    """Refuse a name that the file system cannot hold."""
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        shown = str(folder) if len(str(folder)) <= 200 else f"{str(folder)[:150]} ..."
        raise ConfigError(
            f"{shown!r} cannot be a folder ({why}); allowed: a folder, new or old; choose another"
        ) from error


def check_writable(folder: Path) -> None:
    """Refuse a folder that could not be made or written to; nothing is made yet."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ConfigError(f"{folder} cannot be made, {there} is a file; allowed: a folder, new or old; choose another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{folder} cannot be made, {there} is not writable; allowed: a folder of yours; choose another"
        )


def check(folder: Path, config: Config, data: str) -> None:
    """Refuse a folder that holds another run."""
    path = folder / IDENTITY
    if not path.exists():
        kept = checkpoints(folder)
        if kept:
            raise SchemaError(
                f"{folder} has checkpoints ({kept[-1].name}) but no {IDENTITY}, so nobody can say of which run; "
                f"allowed: both or neither; restore {IDENTITY}, or delete the folder {CHECKPOINTS} to begin again"
            )
        return
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
        differ = differences(config.flat(), theirs["config"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"{path} cannot be read ({error}); allowed: what a run wrote; use another --out") from error
    if differ:
        raise ConfigError(
            f"{folder} holds a run with another configuration: {'; '.join(differ)}; allowed: the same one, to go on "
            "with it; use another --out, or restore the configuration"
        )
    if theirs.get("data") != data:
        raise ConfigError(
            f"{folder} holds a run on data {theirs.get('data')}, this is {data}; allowed: the same data, to go on with "
            "it; use another --out, or restore the texts and the version of the package"
        )


def save(folder: Path, state: Mapping[str, Any], step: int) -> Path:
    """A checkpoint that is complete or absent and carries a hash of its bytes; older ones go, but for the last two."""
    home = folder / CHECKPOINTS
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"step-{step:08d}.pt"
    stored = io.BytesIO()
    torch.save(dict(state), stored)
    with atomic_write(path) as partial, partial.open("wb") as file:
        file.write(stored.getbuffer())
        file.write(SEAL + hashlib.sha256(stored.getbuffer()).hexdigest().encode("ascii"))
        sync(file)
    sync_folder(home)
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()
    return path


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted((folder / CHECKPOINTS).glob("step-*.pt"))


def newest(folder: Path, device: torch.device) -> tuple[Path, dict[str, Any]] | None:
    """The last checkpoint, or None; tensors and plain values only, no code."""
    paths = checkpoints(folder)
    if not paths:
        return None
    try:
        state: dict[str, Any] = torch.load(_unsealed(paths[-1]), map_location=device, weights_only=True)
    except Exception as error:
        raise damaged(paths[-1], error) from error
    return paths[-1], state


def damaged(path: Path, why: object) -> SchemaError:
    """What to do about a checkpoint from which no run can go on: nothing is taken instead of it without a word."""
    older = [other for other in checkpoints(path.parents[1]) if other < path]
    go_on = f"goes on from {older[-1].name}" if older else "begins again"
    return SchemaError(
        f"{path} cannot be read ({why}); allowed: a checkpoint as this run left it; delete it, and the same command "
        f"{go_on}"
    )


def _unsealed(path: Path) -> io.BytesIO:
    """The bytes of a checkpoint, as they were written."""
    stored = path.read_bytes()
    body, digest = stored[: -len(SEAL) - 64], stored[-64:]
    if stored[-len(SEAL) - 64 : -64] != SEAL:
        raise ValueError("it does not end in its hash: cut off, or of another version")
    if hashlib.sha256(body).hexdigest().encode("ascii") != digest:
        raise ValueError("its bytes have changed since they were written: they do not have its hash")
    return io.BytesIO(body)


def _csv(head: list[str], rows: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return text.getvalue()
