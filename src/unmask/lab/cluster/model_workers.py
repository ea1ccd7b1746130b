"""Workers that hold one model, for whoever has many batches: calls side by side, results in the order of the calls."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from unmask.base.errors import UnmaskError
from unmask.lab.cluster.carry import Parcel, packed
from unmask.lab.cluster.connect import connected, ray_module
from unmask.lab.cluster.pool import WorkerDied, WorkerPool
from unmask.lab.cluster.where import Ray
from unmask.lab.cluster.workers import Setup, WorkerContext

AHEAD = 3
"""Calls under way or done and not asked for yet, for each worker: what the driver may have to hold."""
DEATHS = 3
"""So many workers may die under one call."""


class WorkersLost(UnmaskError):
    """Several workers in a row died at the same work."""


@dataclass(frozen=True)
class Shared:
    """A value that all calls read, sent to each worker once with the user's code that it needs."""

    key: str
    reference: Any

    def open(self) -> Any:
        """On a worker; the last one is kept."""
        if self.key not in _OPENED:
            _OPENED.clear()
            parcel: Parcel = ray_module().get(self.reference)
            _OPENED[self.key] = parcel.open()
        return _OPENED[self.key]


_OPENED: dict[str, Any] = {}


@dataclass(frozen=True)
class ModelWorkers:
    """The workers of a cluster that load one model, each once."""

    pool: WorkerPool
    spec: Any
    """What the model is loaded from."""

    def share(self, value: Any) -> Shared:
        return Shared(os.urandom(8).hex(), self.pool.ray.put(packed(value)))

    def submit(self, function: Callable[..., Any], *arguments: Any, what: str = "") -> "Future[Any]":
        """Have some worker call `function(model, *arguments)`."""
        call = partial(self.pool.submit, _with_model, self.spec, function, arguments)
        return call(what=what or function.__name__, deaths=DEATHS)

    def call(self, function: Callable[..., Any], *arguments: Any, what: str = "") -> Any:
        """The same, waited for."""
        return result_of(self.submit(function, *arguments, what=what))

    def in_order(self, function: Callable[..., Any], calls: Iterable[Sequence[Any]], what: str = "") -> Iterator[Any]:
        """Results of many calls in their order. No more are begun than a few for each worker ahead of who asks."""
        left, begun = iter(calls), deque["Future[Any]"]()
        while True:
            while len(begun) < AHEAD * self.pool.size and (arguments := next(left, None)) is not None:
                begun.append(self.submit(function, *arguments, what=what))
            if not begun:
                return
            yield result_of(begun.popleft())


def result_of(future: "Future[Any]") -> Any:
    """What a call gave, or why it did not."""
    try:
        return future.result()
    except WorkerDied as error:
        raise WorkersLost(
            f"{DEATHS} workers died one after the other at the same work ({str(error).partition(';')[0]}); allowed: "
            "work that fits into a worker's memory; lower the batch, or give a worker more"
        ) from error


@contextmanager
def model_workers(cluster: Ray, load: Callable[[Any], Any], spec: Any) -> Iterator[ModelWorkers]:
    """Workers that make a model of `spec` with `load`, for as long as the context lasts."""
    with connected(cluster) as ray, WorkerPool(ray, cluster, Setup.of(load)) as pool:
        yield ModelWorkers(pool, spec)


def _with_model(context: WorkerContext, spec: Any, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    return function(context.model(spec), *arguments)
