"""What a run wrote down: its identity, its curve, and checkpoints from which it goes on after a kill."""

import csv
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from unmask.atomic import atomic_write, sync, write_text
from unmask.errors import ConfigError, SchemaError
from unmask.train.config import Config, differences

IDENTITY, CURVE, SCORES = "run.json", "curve.csv", "scores.csv"
CHECKPOINTS = "checkpoints"
KEPT = 2


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


def claim(folder: Path, config: Config, data: str) -> None:
    """Take a folder for this run, and throw away what a kill left half written."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (folder / CHECKPOINTS).glob(".step-*.partial"):
        stale.unlink()
    write_text(folder / IDENTITY, json.dumps({"config": config.flat(), "data": data}, indent=2) + "\n")


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
        return
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"))
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
    """A checkpoint that is complete or absent; older ones go, but for the last two."""
    home = folder / CHECKPOINTS
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"step-{step:08d}.pt"
    with atomic_write(path) as partial, partial.open("wb") as file:
        torch.save(dict(state), file)
        sync(file)
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()
    return path


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted((folder / CHECKPOINTS).glob("step-*.pt"))


def newest(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The last checkpoint, or None; tensors and plain values only, no code."""
    paths = checkpoints(folder)
    if not paths:
        return None
    try:
        state: dict[str, Any] = torch.load(paths[-1], map_location=device, weights_only=True)
    except Exception as error:
        raise SchemaError(
            f"{paths[-1]} cannot be read ({error}); allowed: a checkpoint of this run; delete it to go on from the one "
            "before"
        ) from error
    return state


def _csv(head: list[str], rows: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return text.getvalue()
