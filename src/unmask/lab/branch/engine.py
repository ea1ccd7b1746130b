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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from unmask.adapt.gated import needs_of
from unmask.core import Denoiser, Proposal
from unmask.errors import ContractError, Unfinished, require
from unmask.lab.branch.accounting import AxisCost, BranchCost, Ledger
from unmask.lab.branch.bucket import Bucket
from unmask.lab.branch.expand import Expander
from unmask.lab.branch.futures import FirstStep, FutureTable, follow
from unmask.lab.branch.guests import memory_of_past
from unmask.lab.branch.plan import EngineSettings, Plan
from unmask.lab.branch.pools import RowPool
from unmask.lab.branch.readings import StoredReading
from unmask.lab.branch.states import ReferenceRun, sample
from unmask.lab.branch.stepper import Stepper, check_plain, moved_on
from unmask.request import Request, begin
from unmask.transition import Transition


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
    branches: tuple[Branch, ...]
    """Prompt by prompt, state by state, axes and candidates in order, rollouts last."""
    report: BranchCost
    readings: tuple[StoredReading, ...] = ()
    """Prompt by prompt, state by state, axis by axis, in the order of the plan's diagnostics."""


def run(
    denoiser: Denoiser,
    plan: Plan,
    requests: Sequence[Request],
    settings: EngineSettings,
    on_progress: Callable[[BranchProgress], None] = lambda progress: None,
) -> BranchResult:
    """Sample states of the prompts, branch every candidate from each, and continue to the end."""
    require(bool(requests), "prompts", [], "one or more", "pass a prompt")
    ids = [request.id for request in requests]
    require(len(set(ids)) == len(ids), "prompt ids", ids, "no id twice", "tables go by these ids")
    stepper = Stepper(denoiser, Proposal(temperature=plan.temperature), settings.rows, settings.live)
    report = BranchCost({axis: AxisCost() for axis in plan.candidates})
    paths: list[ReferenceRun] = []
    branches: list[Branch] = []
    readings: list[StoredReading] = []
    with torch.inference_mode():
        # A bucket follows from the prompt alone, so its shape does not depend on its company.
        for slots in sorted({request.slots(settings.bucket) for request in requests}):
            members = [request for request in requests if request.slots(settings.bucket) == slots]
            bucket = Bucket(plan, _reference_runs(stepper, plan, members, slots))
            work = BucketRun(bucket, stepper, settings, report, on_progress)
            paths += bucket.paths
            branches += work.branches()
            readings += work.readings
    report.trajectory = sum(sum(path.passes) for path in paths)
    report.calls = stepper.calls
    place = {id: at for at, id in enumerate(ids)}
    order = {name: at for at, name in enumerate(plan.proposals)}
    return BranchResult(
        tuple(sorted(paths, key=lambda path: place[path.request.id])),
        tuple(sorted(branches, key=lambda branch: place[branch.prompt])),
        report,
        tuple(sorted(readings, key=lambda reading: (place[reading.prompt], reading.state, order[reading.diagnostic]))),
    )


def _reference_runs(stepper: Stepper, plan: Plan, requests: Sequence[Request], slots: int) -> list[ReferenceRun]:
    """The reference's way through prompts, its states with all that candidates and diagnostics read of the past."""
    diagnostics = list(plan.diagnostics.values())
    start = begin(stepper.denoiser, requests, plan.seed, slots)
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
            needs=needs_of([plan.reference], diagnostics),
            memory=memory_of_past(plan.guests, max([1, *(diagnostic.memory for diagnostic in diagnostics)])),
        )
    )


class BucketRun:
    """The branches of the prompts of one bucket: states are expanded as long as there is room, then rows advance."""

    def __init__(
        self,
        bucket: Bucket,
        stepper: Stepper,
        settings: EngineSettings,
        report: BranchCost,
        on_progress: Callable[[BranchProgress], None],
    ):
        self.bucket, self.stepper, self.settings, self.on_progress = bucket, stepper, settings, on_progress
        self.futures = FutureTable(bucket, settings.merge)
        self.ledger = Ledger(bucket, report, settings.merge)
        self.expander = Expander(bucket, stepper, self.futures, self.ledger)

    @property
    def readings(self) -> list[StoredReading]:
        return self.expander.readings

    def branches(self) -> Iterator[Branch]:
        """Run everything; branches in the order of prompts, states, candidates and rollouts."""
        per_state = self.bucket.branches_per_state
        # As many states at once as the limit on waiting branches allows.
        todo = self.bucket.chunks(max(1, min(self.stepper.live, self.settings.waiting // per_state)))
        for _ in range(8 * (len(self.bucket.points) + 1) * per_state * self.bucket.most_steps):
            pool = self.futures.largest
            if (pool is None or pool.size < self.stepper.live) and (points := next(todo, None)) is not None:
                self.expander.expand(points)
            elif pool is not None and pool.size:
                self._advance(pool)
            else:
                return self._answers()
            self.on_progress(BranchProgress(self.expander.begun, len(self.futures.tickets), self.ledger.forwards))
        raise Unfinished("branches make no progress; allowed: continuations that end; look at what they reveal")

    def _advance(self, pool: RowPool) -> None:
        """One step of a batch of one pool."""
        before = pool.fill(self.stepper.live)
        step = self.stepper.step(before, pool.policy)
        self._check_commits(pool, step.change)
        for future, passes in zip(pool.futures, step.passes, strict=True):
            self.ledger.pay(self.futures.tickets[future.owner].alternative, passes)
        self.futures.stepped(pool, moved_on(before, pool.policy.name, step, pool.keep), step.passes)

    def _check_commits(self, pool: RowPool, change: Transition) -> None:
        """A policy that rows settle under must not make anything revisable again."""
        axes = [axis for axis, after in self.bucket.continuations.items() if pool.policy == after.settled]
        if axes and bool((change.revealed_BL & ~change.state.committed_BL).any()):
            raise ContractError(
                f"the reference {pool.policy.name} left a position revisable after a branch, but not on its own way; "
                f"allowed: always or never; study {', '.join(axes)} around a reference that commits all it reveals"
            )

    def _answers(self) -> Iterator[Branch]:
        """Every branch with the end of its future; its cost is booked on the way."""
        tickets = self.futures.tickets
        for number in sorted(range(len(tickets)), key=lambda at: tickets[at][:3]):
            ticket = tickets[number]
            point, tried = self.bucket.points[ticket.point], self.bucket.alternatives[ticket.alternative]
            ending = follow(ticket.future, ticket.at)
            self.ledger.close(number, ticket, ending)
            yield Branch(
                prompt=point.request.id,
                state=point.sampled.index,
                step=point.sampled.step,
                masked=point.sampled.masked,
                axis=tried.axis,
                candidate=tried.candidate,
                rollout=ticket.rollout,
                answer=tuple(ending.canvas_L[slice(*point.request.answer)].tolist()),
                first=ticket.first,
                diagnostic=tried.diagnostic,
                extra_forwards=ticket.cost.forwards,
                extra_tokens=ticket.cost.tokens,
            )
