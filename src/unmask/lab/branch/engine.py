"""The branch engine: Q(z, a) of many states and candidates, each piece of equal work done once.

A branch takes a candidate's action once at a state of the reference trajectory, then the reference's to the end; the
answer is judged. Candidates at one state share their random numbers: the stream is a hash of state and rollout.

    states      sample            the reference decodes every prompt; spaced states of its way are kept
    expand      Expander.expand   diagnostics are read at a state, and every alternative takes its step there
    futures     FutureTable       each row that comes out has a future known by its digest, or starts one
    guests      own_step          a whole method takes one, with looks ahead and views of its own
    stepper     Stepper.step      so does the reference, on its own way and after a branch
    advance     BucketRun         rows of one continuation take a step together until all futures have an end
    accounting  Ledger            each forward is paid for by one branch; the others' savings are booked by reason

`merge=False` runs every branch for itself at the same forward shape; the tables are the same to the bit.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from unmask.adapt import needs_of
from unmask.api import Request, start_trajectory
from unmask.base.errors import require
from unmask.core import Denoiser, SamplingParams
from unmask.lab.branch.accounting import Ledger, shared_out
from unmask.lab.branch.bucket import Bucket
from unmask.lab.branch.costs import AxisCost, BranchCost
from unmask.lab.branch.expand import Expander
from unmask.lab.branch.futures import FirstStep, Flight, FutureTable
from unmask.lab.branch.guests import memory_of_past
from unmask.lab.branch.plan import EngineSettings, Plan
from unmask.lab.branch.pools import RowPool, follow
from unmask.lab.branch.readings import StoredReading
from unmask.lab.branch.states import ReferenceRun, sample
from unmask.lab.branch.stepper import Stepper, check_plain


class Branch(NamedTuple):
    """One branch and its answer."""

    prompt: str
    state: int
    step: int
    masked: int
    axis: str
    candidate: str
    rollout: int
    answer: tuple[int, ...]
    """Its tokens."""
    first: FirstStep
    diagnostic: str = ""
    """The name of the one whose proposal it is; empty for a candidate."""
    extra_forwards: int = 0
    """Looks ahead of its own step, as `decode` counts them."""
    extra_tokens: int = 0
    """Slots that its own step read beyond one pass over the canvas."""


class BranchProgress(NamedTuple):
    """Where a block stands."""

    states: int
    branches: int
    """Started so far."""
    forwards: int
    """Row-forwards done."""


@dataclass(frozen=True)
class BranchResult:
    """The branches of some prompts."""

    paths: tuple[ReferenceRun, ...]
    distinct: tuple[Branch, ...]
    """Prompt by prompt, state by state, axes and candidates in order, rollouts last; of rollouts that draw nothing
    the first."""
    rollouts: tuple[tuple[int, ...], ...]
    """Which each of those stands for, its own the first."""
    report: BranchCost
    readings: tuple[StoredReading, ...] = ()
    """Prompt by prompt, state by state, axis by axis, in the order of the plan's diagnostics."""

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """All of them, in the same order."""
        pairs = zip(self.distinct, self.rollouts, strict=True)
        return tuple(branch._replace(rollout=rollout) for branch, rollouts in pairs for rollout in rollouts)


def run(
    denoiser: Denoiser,
    plan: Plan,
    requests: Sequence[Request],
    settings: EngineSettings,
    on_progress: Callable[[BranchProgress], None] = lambda progress: None,
) -> BranchResult:
    """Sample states of the prompts, branch every candidate from each, and continue to the end."""
    (result,) = run_together(denoiser, plan, [requests], settings, on_progress)
    return result


def run_together(
    denoiser: Denoiser,
    plan: Plan,
    blocks: Sequence[Sequence[Request]],
    settings: EngineSettings,
    on_progress: Callable[[BranchProgress], None] = lambda progress: None,
) -> list[BranchResult]:
    """The same for several blocks of prompts, whose rows share forwards: what one leaves empty another fills."""
    for requests in blocks:
        require(bool(requests), "prompts", [], "one or more", "pass a prompt")
        ids = [request.id for request in requests]
        require(len(set(ids)) == len(ids), "prompt ids", ids, "no id twice", "tables go by these ids")
    stepper = Stepper(denoiser, SamplingParams(temperature=plan.temperature), settings.rows, settings.live)
    results = [_Collected(plan, requests) for requests in blocks]
    members = [(block, request) for block, requests in enumerate(blocks) for request in requests]
    with torch.inference_mode():
        # A bucket follows from the prompt alone, so its shape does not depend on its company.
        for slots in sorted({request.padded_length(settings.bucket) for _, request in members}):
            alike = [(block, request) for block, request in members if request.padded_length(settings.bucket) == slots]
            owners = [results[block] for block, _ in alike]
            bucket = Bucket(plan, _reference_runs(stepper, plan, [request for _, request in alike], slots))
            with _few_collections():
                BucketRun(bucket, stepper, settings, owners, on_progress).run()
    for one, calls in zip(results, shared_out(stepper.calls, [one.work for one in results]), strict=True):
        one.report.calls = calls
    return [one.whole() for one in results]


@contextmanager
def _few_collections() -> Iterator[None]:
    """The search for cycles goes through young objects only, and seldom: branches have none, and there are many."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Collected:
    """What comes of one block of prompts, whatever buckets its prompts are in."""

    def __init__(self, plan: Plan, requests: Sequence[Request]):
        self.plan, self.requests = plan, requests
        self.report = BranchCost({axis: AxisCost() for axis in plan.candidates})
        self.paths: list[ReferenceRun] = []
        self.branches: list[tuple[Branch, tuple[int, ...]]] = []
        self.readings: list[StoredReading] = []

    @property
    def work(self) -> int:
        """Row-forwards."""
        report = self.report
        return report.total.done + report.recalled + sum(sum(path.passes) for path in self.paths)

    def whole(self) -> BranchResult:
        """All of it, in the order of the prompts."""
        place = {request.id: at for at, request in enumerate(self.requests)}
        order = {name: at for at, name in enumerate(self.plan.proposals)}
        self.report.trajectory = sum(sum(path.passes) for path in self.paths)
        self.branches.sort(key=lambda pair: place[pair[0].prompt])
        self.readings.sort(key=lambda reading: (place[reading.prompt], reading.state, order[reading.diagnostic]))
        return BranchResult(
            tuple(sorted(self.paths, key=lambda path: place[path.request.id])),
            tuple(branch for branch, _ in self.branches),
            tuple(rollouts for _, rollouts in self.branches),
            self.report,
            tuple(self.readings),
        )


def _reference_runs(stepper: Stepper, plan: Plan, requests: Sequence[Request], slots: int) -> list[ReferenceRun]:
    """The reference's way through prompts, its states with all that candidates and diagnostics read of the past."""
    diagnostics = list(plan.diagnostics.values())
    start = start_trajectory(stepper.denoiser, requests, plan.seed, slots)
    # Before the first forward.
    for policy in plan.guests:
        policy.check(start.state)
    if not plan.whole:
        check_plain(plan.reference, start)
    return list(
        sample(
            stepper,
            plan.reference,
            requests,
            states=plan.states,
            seed=plan.seed,
            slots=slots,
            needs=needs_of([plan.reference, *diagnostics]),
            memory=memory_of_past(plan.guests, max([1, *(diagnostic.past_steps for diagnostic in diagnostics)])),
        )
    )


class BucketRun:
    """The branches of the prompts of one bucket: states are expanded as long as there is room, then rows advance.

    `owners` are the blocks that the prompts belong to, one for each.
    """

    def __init__(
        self,
        bucket: Bucket,
        stepper: Stepper,
        settings: EngineSettings,
        owners: Sequence[_Collected],
        on_progress: Callable[[BranchProgress], None],
    ):
        self.bucket, self.stepper, self.settings, self.on_progress = bucket, stepper, settings, on_progress
        self.owners = owners
        self.futures = FutureTable(bucket, settings.merge)
        self.ledger = Ledger(bucket, [owner.report for owner in owners], settings.merge)
        self.expander = Expander(bucket, stepper, self.futures, self.ledger)

    def run(self) -> None:
        """Run everything, and give each block what is its own.

        The host hears of a step when the next one is under way: while it looks at the rows of one batch, the device
        is busy with those of another.
        """
        per_state, rows = self.bucket.branches_per_state, self.settings.rows
        # As many states at once as the limit on waiting branches allows, in full forwards.
        most = max(1, min(self.stepper.live, self.settings.waiting // per_state))
        todo = self.bucket.chunks(most - most % rows if most > rows else most)
        flight: Flight | None = None
        while True:
            pool = self.futures.largest
            if (pool is None or pool.size < self.stepper.live) and (points := next(todo, None)) is not None:
                self.expander.expand(points)
            elif pool is not None and pool.size >= (rows if flight else 1):
                # Half of many rows, so that the other half can go next.
                half = pool.size // 2 if flight is None and pool.size >= 2 * rows else pool.size
                following = self._advance(pool, min(half, self.stepper.live))
                if flight:
                    self.futures.land(flight)
                flight = following
            elif flight:
                # Rows that come back may fill a forward.
                self.futures.land(flight)
                flight = None
            else:
                return self._hand_out()
            self.on_progress(BranchProgress(self.expander.begun, self.futures.branches, self.ledger.forwards))

    def _advance(self, pool: RowPool, most: int) -> Flight:
        """One step of a batch of one pool."""
        rows = pool.take(most, self.settings.rows)
        step = self.stepper.step(rows.traj, pool.policy)
        self.ledger.pay_futures(rows.futures, step.passes)
        return self.futures.look(pool, rows, step)

    def _hand_out(self) -> None:
        for path, owner in zip(self.bucket.paths, self.owners, strict=True):
            owner.paths.append(path)
        for point, branch, rollouts in self._answers():
            self.owners[self.bucket.points[point].path].branches.append((branch, rollouts))
        for point, reading in self.expander.readings:
            self.owners[self.bucket.points[point].path].readings.append(reading)

    def _answers(self) -> Iterator[tuple[int, Branch, tuple[int, ...]]]:
        """Every branch with the end of its future; its cost is booked on the way."""
        tickets, points = self.futures.tickets, self.bucket.points
        order = np.lexsort(np.array([ticket[:3] for ticket in tickets]).T[::-1])
        self.ledger.close(tickets, order)
        about = [(one.request.id, one.sampled.index, one.sampled.step, one.sampled.masked) for one in points]
        tried = [(one.axis, one.candidate, one.diagnostic) for one in self.bucket.alternatives]
        ends: dict[int, tuple[int, ...]] = {}
        """Answers, by the canvas they are cut out of: each is of one prompt."""
        for number in order.tolist():
            at, alternative, rollout, future, joined, first, cost, _, also = tickets[number]
            canvas_L = follow(future, joined).canvas_L
            answer = ends.get(id(canvas_L))
            if answer is None:
                answer = ends[id(canvas_L)] = tuple(canvas_L[slice(*points[at].request.answer)].tolist())
            axis, name, diagnostic = tried[alternative]
            own = (axis, name, rollout, answer, first, diagnostic, cost.forwards, cost.tokens)
            yield at, Branch._make((*about[at], *own)), (rollout, *also)
