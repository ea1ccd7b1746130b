"""Work beside the workers, which needs no model: judging above all. Done by actors that stay.

A task's process may end with the task, and each new one loads the package for seconds. A helper is used again, and
claims no core: one that is spare now may be a worker's, or gone, before Ray has placed an actor, which would then wait
for ever.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from unmask.base.errors import UnmaskError, WorkerDied
from unmask.lab.cluster.carry import CarriedFile
from unmask.lab.cluster.faults import FaultKind, fault_of
from unmask.lab.cluster.workers import HelperActor, received

DEATHS = 3
"""So many helpers may be lost at one piece of work, those apart whose node went."""


class ResultLost(UnmaskError):
    """What a worker had returned went with its node before it was used; the call has to be made again."""


@dataclass
class SideWork:
    """Something to be done beside the workers."""

    function: Callable[..., Any]
    arguments: bytes
    kept: tuple[Any, ...]
    future: "Future[Any]" = field(default_factory=Future)
    deaths: int = DEATHS


@dataclass(eq=False)
class Helper:
    """An actor without a model, and what it is at."""

    handle: Any
    work: SideWork | None = None
    result: Any = None


class Helpers:
    """As many as are asked for at a time; who uses them waits for what `begin` gives."""

    def __init__(self, ray: Any, files: tuple[CarriedFile, ...]):
        self.ray, self._files = ray, ray.put(files)
        self._actor = ray.remote(HelperActor)
        self.waiting: deque[SideWork] = deque()
        self._there: list[Helper] = []

    @property
    def busy(self) -> int:
        return sum(helper.work is not None for helper in list(self._there))

    def futures(self) -> list["Future[Any]"]:
        """Of all that is not done."""
        return [work.future for work in [*self.waiting, *(h.work for h in self._there if h.work)]]

    def begin(self, most: int) -> Iterator[tuple[Any, Helper]]:
        """Start what waits, so many at a time: Ray's reference to how each will have ended, and who is at it."""
        for _ in range(min(len(self.waiting), most - self.busy)):
            helper = next((one for one in self._there if one.work is None), None) or self._start()
            work = helper.work = self.waiting.popleft()
            run = helper.handle.run.options(num_returns=2)
            outcome, helper.result = run.remote(work.function, work.arguments, *work.kept)
            yield outcome, helper

    def _start(self) -> Helper:
        actor = self._actor.options(num_cpus=0, scheduling_strategy="SPREAD")
        self._there.append(Helper(actor.remote(self._files)))
        return self._there[-1]

    def ended(self, helper: Helper, reference: Any) -> None:
        work, result, helper.work, helper.result = helper.work, helper.result, None, None
        assert work is not None
        try:
            outcome = self.ray.get(reference)
            value = None if outcome.error is not None else self.ray.get(result)
        except Exception as error:
            return self._failed(helper, work, error)
        settle(work.future, value, None if outcome.error is None else received(outcome.error))

    def _failed(self, helper: Helper, work: SideWork, error: Exception) -> None:
        """What a worker had returned is gone, which no helper can make; or the helper, and another gets the work."""
        fault = fault_of(self.ray, error)
        if isinstance(error, self.ray.exceptions.ObjectLostError):
            return settle(work.future, error=ResultLost(fault.text))
        self._there.remove(helper)
        self._kill(helper)
        work.deaths -= fault.kind is not FaultKind.NODE
        if work.deaths > 0:
            self.waiting.appendleft(work)
        else:
            settle(work.future, error=WorkerDied(f"{work.function.__name__} ended its process: {fault.text}"))

    def stop(self) -> None:
        for helper in self._there:
            self._kill(helper)

    def _kill(self, helper: Helper) -> None:
        with suppress(Exception):
            self.ray.kill(helper.handle, no_restart=True)


def settle(future: "Future[Any]", value: Any = None, error: BaseException | None = None) -> None:
    """The first to come is heard."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
