"""The options of commands that can run on a cluster, and the model as such a command sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unmask.cli.options import LoadOptions
from unmask.cli.where import Address, GpusPerWorker, On, Workers, where_of

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.lab.calibrate import LoadingCluster
    from unmask.lab.cluster import Ray
    from unmask.lab.cluster.model_workers import ModelWorkers


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Where it runs."""

    on: On = None
    address: Address = None
    workers: Workers = None
    gpus_per_worker: GpusPerWorker = None

    @property
    def where(self) -> "Ray | None":
        return where_of(self.on, self.address, self.gpus_per_worker, self.workers)

    @contextmanager
    def opened(self, load: LoadOptions, name: str) -> "Iterator[tuple[Model, ModelWorkers | None]]":
        """A model of this process; or one that stands for that of a cluster's workers, and those."""
        cluster = self.where
        if cluster is None:
            yield load.load(name), None
            return
        with load.remote(name, cluster) as model:
            yield model.here, model.workers

    @contextmanager
    def open_for_study(self, load: LoadOptions, name: str) -> "Iterator[tuple[Model, LoadingCluster | None]]":
        """The same for work that starts workers of its own, on one connection: one worker has looked at the model."""
        from unmask.lab.calibrate import LoadingCluster
        from unmask.lab.cluster.connect import connected

        cluster = self.where
        if cluster is None:
            yield load.load(name), None
            return
        with connected(cluster):
            with load.remote(name, replace(cluster, workers=1)) as model:
                here, loader = model.here, model.loader
            yield here, LoadingCluster(cluster, loader)
