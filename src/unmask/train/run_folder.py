"""The folder of a training run: one run at a time, which run it is, its curve, and checkpoints that carry a hash."""

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import atomic_write, find_leftovers, lock, sync_file, sync_folder, write_text
from unmask.train.config import TrainConfig, describe_differences

RUN_FILE, CURVE, SCORES = "run.json", "curve.csv", "scores.csv"
MODEL, SNAPSHOT = "model", "snapshot"
CHECKPOINTS, LOCK = "checkpoints", ".lock"
KEPT = 2
"""Checkpoints that are kept, so that a damaged one costs an interval and not the run."""
HASH_LINE = b"\nunmask training checkpoint, sha256 of the bytes before this line: "
"""Ends a checkpoint, followed by 64 hexadecimal digits. `torch.load` ignores what follows its archive."""


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made or written to. Nothing is made yet."""
    for place in (folder, *folder.absolute().parents):
        try:
            os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            # A name that is too long, or one with a NUL in it.
            why = error.strerror if isinstance(error, OSError) else error
            name = str(folder) if len(str(folder)) <= 200 else f"{str(folder)[:150]} ..."
            raise ConfigError(
                f"{name!r} cannot be a folder ({why}); allowed: a folder, new or old; choose another"
            ) from error
        if not place.is_dir():
            raise ConfigError(
                f"{folder} cannot be made, {place} is a file; allowed: a folder, new or old; choose another"
            )
        if not os.access(place, os.W_OK | os.X_OK):
            raise ConfigError(
                f"{folder} cannot be made, {place} is not writable; allowed: a folder of yours; choose another"
            )
        return


@contextmanager
def hold_folder(folder: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Make the folder and keep other processes from training in it until the block ends or the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            is_locked = stack.enter_context(lock(folder / LOCK))
        except BlockingIOError as error:
            raise ConfigError(
                f"{folder} is in use by another run ({error.strerror}); allowed: one run at a time in a folder; wait "
                "for it, or use another --out"
            ) from error
        if not is_locked:
            log(f"{folder} cannot be locked on this file system: see that no second run uses it")
        yield


def check_same_run(folder: Path, config: TrainConfig, data_key: str) -> None:
    """Refuse a folder that holds a run with another configuration or on other data."""
    path = folder / RUN_FILE
    if not path.exists():
        kept = list_checkpoints(folder)
        if kept:
            raise SchemaError(
                f"{folder} has checkpoints ({kept[-1].name}) but no {RUN_FILE}, so nobody can say of which run; "
                f"allowed: both or neither; restore {RUN_FILE}, or delete the folder {CHECKPOINTS} to begin again"
            )
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        differences = describe_differences(config.flat(), stored["config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SchemaError(f"{path} cannot be read ({error}); allowed: what a run wrote; use another --out") from error
    if differences:
        raise ConfigError(
            f"{folder} holds a run with another configuration: {'; '.join(differences)}; allowed: the same one, to go "
            "on with it; use another --out, or restore the configuration"
        )
    if stored.get("data") != data_key:
        raise ConfigError(
            f"{folder} holds a run on data {stored.get('data')}, this is {data_key}; allowed: the same data, to go on "
            "with it; use another --out, or restore the texts and the version of the package"
        )


def claim_folder(folder: Path, config: TrainConfig, data_key: str) -> None:
    """Write which run the folder holds, and delete what a killed process left half written. The caller holds it."""
    stale = [path for name in (RUN_FILE, CURVE, SCORES, MODEL, SNAPSHOT) for path in find_leftovers(folder / name)]
    for path in (*stale, *(folder / CHECKPOINTS).glob(".step-*.partial")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_text(folder / RUN_FILE, json.dumps({"config": config.flat(), "data": data_key}, indent=2) + "\n")


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table, complete or not at all. None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def save_checkpoint(folder: Path, state: Mapping[str, Any], step: int) -> None:
    """Write a checkpoint, complete or not at all, and delete all but the last two."""
    home = folder / CHECKPOINTS
    home.mkdir(parents=True, exist_ok=True)
    stored = io.BytesIO()
    torch.save(dict(state), stored)
    with atomic_write(home / f"step-{step:08d}.pt") as partial, partial.open("wb") as file:
        file.write(stored.getbuffer())
        file.write(HASH_LINE + hashlib.sha256(stored.getbuffer()).hexdigest().encode("ascii"))
        # On the disk before it gets its name: after a power failure a named checkpoint could otherwise be empty.
        sync_file(file)
    sync_folder(home)
    for old in list_checkpoints(folder)[:-KEPT]:
        old.unlink()


def list_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted((folder / CHECKPOINTS).glob("step-*.pt"))


def load_checkpoint(folder: Path, device: torch.device) -> tuple[Path, dict[str, Any]] | None:
    """Read the newest checkpoint, tensors and plain values only; None if there is none."""
    paths = list_checkpoints(folder)
    if not paths:
        return None
    stored, size = paths[-1].read_bytes(), len(HASH_LINE) + 64
    body, line = stored[:-size], stored[-size:]
    if line[:-64] != HASH_LINE:
        raise checkpoint_error(paths[-1], "it does not end in its hash: cut off, or of another version")
    if hashlib.sha256(body).hexdigest().encode("ascii") != line[-64:]:
        raise checkpoint_error(paths[-1], "its bytes have changed since they were written: they do not have its hash")
    return paths[-1], torch.load(io.BytesIO(body), map_location=device, weights_only=True)


def checkpoint_error(path: Path, reason: object) -> SchemaError:
    """Error for a checkpoint that cannot be used. It names the older one: none is taken instead without a word."""
    older = [other for other in list_checkpoints(path.parents[1]) if other < path]
    next_start = f"goes on from {older[-1].name}" if older else "begins again"
    return SchemaError(
        f"{path} cannot be read ({reason}); allowed: a checkpoint as this run left it; delete it, and the same command "
        f"{next_start}"
    )
