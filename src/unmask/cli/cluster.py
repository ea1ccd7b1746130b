"""The options of commands that can run on a cluster, and the model as such a command sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unmask.cli.options import LoadOptions
from unmask.cli.where import Address, GpusPerWorker, On, Workers, where_of

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.lab.cluster import Executor, Ray


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
    def open_model(self, load: LoadOptions, name: str) -> "Iterator[tuple[Model, Executor | None]]":
        """Open a model of this process; or one without its network, and the workers of a cluster that have it."""
        cluster = self.where
        if cluster is None:
            yield load.load(name), None
            return
        with load.remote(name, cluster) as model:
            yield model.here, model.executor
