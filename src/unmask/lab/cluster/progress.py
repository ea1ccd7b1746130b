"""Who does what on a cluster, and a log for each worker."""

import time
from pathlib import Path
from typing import Any, NamedTuple


class WorkerNow(NamedTuple):
    """One worker."""

    name: str
    node: str
    doing: str
    """Empty while it starts or waits."""
    seconds: float
    """Since it began with that."""
    said: Any = None
    """What the work says of where it stands."""


class ClusterNow(NamedTuple):
    """A cluster at one moment."""

    workers: tuple[WorkerNow, ...]
    waiting: int
    """Calls that no worker has yet."""
    scoring: int
    """Tasks beside the workers that are under way."""
    lost: int
    """Workers that died or went with their nodes."""
    copies: int
    """Calls that were given to a second worker, because the first took long."""

    @property
    def busy(self) -> int:
        return sum(bool(worker.doing) for worker in self.workers)


class WorkerLogs:
    """`OUT/logs/NAME.log` of every worker: what it did, how long and how it ended. Ray keeps what it printed."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def write(self, worker: str, text: str) -> None:
        """One line. A log that cannot be written stops nothing."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(exist_ok=True)
            with (self.folder / f"{worker}.log").open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n")
        except OSError:
            self.folder = None
