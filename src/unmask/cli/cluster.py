"""The options of commands that can run on a cluster, and the model as such a command sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.options import LoadOptions
from unmask.errors import require

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.lab.cluster import Ray
    from unmask.lab.cluster.model_workers import ModelWorkers

RAY = "ray"
On = Annotated[str | None, typer.Option("--on", metavar="ray", help="Run on a Ray cluster; docs/cluster.md.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="auto|HOST:PORT", help="With --on ray: of a running cluster. Default: one of this machine."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="With --on ray: at most so many. Default: all that fit.")]
GpusPerWorker = Annotated[
    float | None,
    typer.Option(min=0, help="With --on ray: GPUs that a worker holds, a share of one too. Default: 1 if there are."),
]


def where_of(on: str | None, address: str | None, workers: int | None, gpus_per_worker: float | None) -> "Ray | None":
    """Where a command runs; None for this process."""
    from unmask.lab.cluster import Ray

    require(on in (None, RAY), "--on", on, "ray, or nothing for this machine", "write --on ray")
    if on is not None:
        return Ray(address=address, workers=workers, gpus_per_worker=gpus_per_worker)
    given = {"--address": address, "--workers": workers, "--gpus-per-worker": gpus_per_worker}
    for name, value in given.items():
        require(value is None, name, value, "with --on ray", "add it, or leave this out")
    return None


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Where it runs."""

    on: On = None
    address: Address = None
    workers: Workers = None
    gpus_per_worker: GpusPerWorker = None

    @property
    def where(self) -> "Ray | None":
        return where_of(self.on, self.address, self.workers, self.gpus_per_worker)

    @contextmanager
    def opened(self, load: LoadOptions, name: str) -> "Iterator[tuple[Model, ModelWorkers | None]]":
        """A model of this process; or one that stands for that of a cluster's workers, and those."""
        where = self.where
        if where is None:
            yield load.load(name), None
            return
        with load.remote(name, where) as model:
            yield model.here, model.workers
