"""Folder of a training run: its lock, files that end in their hash, and checkpoints."""

import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from unmask.base.errors import ConfigError, SchemaError
from unmask.base.files import atomic_write, find_leftovers, format_path, lock, os_error_text, sync_file, sync_folder
from unmask.train.config import TrainConfig, describe_differences

CHECKPOINTS, LOCK = "checkpoints", ".lock"
KEPT_CHECKPOINTS = 2
"""Number of checkpoints to keep. With two, a damaged one costs an interval and not the run."""
HASH_LINE = b"\nunmask training, sha256 of the bytes before this line: "
"""Ends a hashed file, followed by 64 hexadecimal digits. `torch.load` ignores what follows its archive."""


def write_hashed(path: Path, content: bytes | memoryview) -> None:
    """Write a file and the hash of its content at its end, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial, partial.open("wb") as file:
        file.write(content)
        file.write(HASH_LINE + hashlib.sha256(content).hexdigest().encode("ascii"))
        # On the disk before it gets its name: after a power failure a named file could otherwise be empty.
        sync_file(file)
    sync_folder(path.parent)


def read_hashed(path: Path, next_step: str) -> bytes:
    """Read a file that `write_hashed` wrote, and check its hash. The error for a changed file ends in `next_step`."""
    stored, size = path.read_bytes(), len(HASH_LINE) + 64
    # A file that is shorter than its line fails the comparison as well.
    content, line = stored[:-size], stored[-size:]
    if line != HASH_LINE + hashlib.sha256(content).hexdigest().encode("ascii"):
        raise SchemaError(
            f"{path} was cut off or changed, or another version wrote it: its bytes do not have the hash at its end; "
            f"allowed: the file as it was written; {next_step}"
        )
    return content


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist; raise `ConfigError` if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(None, "it is not writable")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{format_path(folder)} cannot be used ({os_error_text(error)}); allowed: a folder, new or old, to write "
            "to; choose another"
        ) from error


@contextmanager
def lock_folder(folder: Path, outputs: Iterable[str], log: Callable[[str], None]) -> Iterator[None]:
    """Lock a folder against other training runs until the block ends or the process dies.

    Half written `outputs` that a killed process left behind are deleted: nobody else can be writing them.
    """
    make_folder(folder)
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
        for path in [path for name in outputs for path in find_leftovers(folder / name)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield


def check_same_run(folder: Path, stored: Mapping[str, Any] | None, config: TrainConfig, data_key: str) -> None:
    """Refuse a folder whose stored model or checkpoint has another configuration or other data.

    `stored` is the manifest or the checkpoint; None for a folder that holds neither.
    """
    if stored is None:
        return
    differences = describe_differences(config.flatten(), stored["config"])
    if differences:
        raise ConfigError(
            f"{folder} holds a run with another configuration: {'; '.join(differences)}; allowed: the same one, to go "
            "on with it; use another --out, or restore the configuration"
        )
    if stored["data"] != data_key:
        raise ConfigError(
            f"{folder} holds a run on data {stored['data']}, this is {data_key}; allowed: the same data, to go on with "
            "it; use another --out, or restore the texts and the version of the package"
        )


def save_checkpoint(folder: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint, complete or not at all, and delete all but the last two."""
    home, stored = folder / CHECKPOINTS, io.BytesIO()
    # Into memory first, because the hash is over the finished bytes.
    torch.save(dict(state), stored)
    write_hashed(home / f"step-{state['step']:08d}.pt", stored.getbuffer())
    # With what a process that was killed in here left behind. The folder is locked: nobody else is writing.
    for path in (*list_checkpoints(folder)[:-KEPT_CHECKPOINTS], *home.glob(".step-*.partial")):
        path.unlink()


def list_checkpoints(folder: Path) -> list[Path]:
    """List the paths of complete checkpoints, oldest first."""
    return sorted((folder / CHECKPOINTS).glob("step-*.pt"))


def load_checkpoint(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """Load the newest checkpoint of a folder; return None if there is none.

    A damaged checkpoint is refused, and the message names the one before it, which is never taken silently.
    """
    paths = list_checkpoints(folder)
    if not paths:
        return None
    next_start = f"goes on from {paths[-2].name}" if len(paths) > 1 else "begins again"
    content = read_hashed(paths[-1], f"delete it, and the same command {next_start}")
    # `weights_only` makes tensors and plain values of the file and nothing else: a pickle could run code.
    checkpoint: dict[str, Any] = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    return checkpoint
