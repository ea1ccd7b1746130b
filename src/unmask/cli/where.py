"""Options that say where work runs: here, or on a Ray cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from unmask.base.errors import require

if TYPE_CHECKING:
    from unmask.lab.cluster import Ray

On = Annotated[str | None, typer.Option("--on", metavar="ray", help="Run on a Ray cluster; docs/cluster.md.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="auto|HOST:PORT", help="Of a running cluster. Default: one is started here and stopped."),
]
GpusPerWorker = Annotated[
    float | None, typer.Option(metavar="N", help="GPUs of a worker. Default: one where the cluster has any.")
]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Workers at most. Default: as many as fit.")]


def where_of(on: str | None, address: str | None, gpus_per_worker: float | None, workers: int | None) -> "Ray | None":
    """A cluster, or None for this process; options of a cluster mean nothing without one."""
    from unmask.lab.cluster import Ray

    given = {"--address": address, "--gpus-per-worker": gpus_per_worker, "--workers": workers}
    if on is None:
        for name, value in given.items():
            require(value is None, name, value, "nothing without --on ray", "add --on ray, or leave it out")
        return None
    require(on == "ray", "--on", on, "ray", "leave it out to run here")
    return Ray(address=address, gpus_per_worker=gpus_per_worker, workers=workers)
