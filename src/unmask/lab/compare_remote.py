"""A comparison whose batches are decoded and judged by the workers of a cluster; this process plans, keeps and reports.

Batches follow from the prompts alone, as on one machine, so that answers are the same. Some are decoded ahead of who
asks for them, so that no worker waits; what is kept is written in the order of one machine.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unmask.api import LoadedModel
from unmask.base.user_code import error_location
from unmask.core import Policy, Search
from unmask.lab.cluster.faults import out_of_memory
from unmask.lab.cluster.model_workers import AHEAD, ModelWorkers, Shared, result_of
from unmask.lab.cluster.workers import sendable
from unmask.lab.compare import BatchCall, ComparePlan, DecodedBatch, LocalDecoder
from unmask.lab.compare_failed import PLACE
from unmask.lab.compare_prompts import PromptBatch
from unmask.lab.compare_timing import BatchClock


@dataclass
class WorkerPart:
    """What a worker keeps of a comparison: the plan, and what it has decoded with so far."""

    plan: ComparePlan
    jobs: int | None
    warm_up: bool
    decoder: LocalDecoder | None = field(default=None, repr=False)

    def on(self, model: LoadedModel) -> LocalDecoder:
        if self.decoder is None or self.decoder.model is not model:
            self.decoder = LocalDecoder(model, self.plan, self.jobs, self.warm_up)
        return self.decoder


class ClusterDecoder:
    """Decodes batches on workers; `model` is the one here that stands for theirs."""

    def __init__(
        self,
        workers: ModelWorkers,
        model: LoadedModel,
        plan: ComparePlan,
        jobs: int | None = None,
        warm_up: bool = False,
    ):
        self.workers, self.plan = workers, plan
        self.part: Shared = workers.share(WorkerPart(plan, jobs, warm_up))
        self.clock = BatchClock(model.denoiser.device, getattr(model.denoiser, "machine", None))
        self._begun: deque[tuple[BatchCall, Future[Any]]] = deque()
        self._left: deque[BatchCall] = deque()

    def expect(self, calls: Sequence[BatchCall]) -> None:
        """Asked for soon, after all that were expected before."""
        self._left.extend(calls)
        self._begin()

    def decode(self, call: BatchCall) -> DecodedBatch:
        """What was expected and not asked for is dropped: its policy has failed."""
        future = self._of(call)
        self._begin()
        done: DecodedBatch | FailedBatch = result_of(future)
        if isinstance(done, FailedBatch):
            raise done.error_with_place()
        return done

    def _of(self, call: BatchCall) -> "Future[Any]":
        ahead = [*(begun for begun, _ in self._begun), *self._left]
        if not any(call.same(other) for other in ahead):
            # Its file was there, and is damaged.
            return self._submit(call)
        while self._begun:
            begun, future = self._begun.popleft()
            if call.same(begun):
                return future
            future.cancel()
        while not call.same(self._left.popleft()):
            pass
        return self._submit(call)

    def _begin(self) -> None:
        """A few for each worker: what they return waits here."""
        while self._left and len(self._begun) < AHEAD * self.workers.pool.size:
            call = self._left.popleft()
            self._begun.append((call, self._submit(call)))

    def _submit(self, call: BatchCall) -> "Future[Any]":
        # Policies of the plan are there; controls are sized on the way.
        own = None if call.arm in self.plan.policies else call.policy
        what = f"{call.task}, {call.arm}"
        return self.workers.submit(decode_on_worker, self.part, call.task, call.arm, own, call.batch, what=what)


class FailedBatch(NamedTuple):
    """An error of a policy, with its place, which only the process knows where it was raised."""

    error: BaseException
    place: str

    def error_with_place(self) -> BaseException:
        self.error.__dict__[PLACE] = self.place
        return self.error


def decode_on_worker(
    model: LoadedModel, part: Shared, task: str, arm: str, own: Policy | Search | None, batch: PromptBatch
) -> DecodedBatch | FailedBatch:
    """One batch of the plan, or of a policy that is not in it."""
    mine: WorkerPart = part.open()
    policy = mine.plan.policies[arm] if own is None else own
    try:
        return mine.on(model).decode(BatchCall(task, arm, policy, batch))
    except (Exception, SystemExit) as error:
        if out_of_memory(error):
            raise
        return FailedBatch(sendable(error), error_location(error, type(policy)))
