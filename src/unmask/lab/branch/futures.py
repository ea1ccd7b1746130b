"""What waits for what: the future of every branch, each run once however many branches have it.

Futures are a function of what the continuation reads (`digests`), whatever states, candidates or axes rows come from.
A row that arrives where another has been joins that one's future there, and its own run ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.base.errors import ContractError
from unmask.core import Noise, Policy, State, Trajectory
from unmask.engine import raise_faults
from unmask.lab.branch.bucket import Bucket, number_of
from unmask.lab.branch.costs import AxisCost
from unmask.lab.branch.digests import RowSummary, Summary, summarize
from unmask.lab.branch.plan import Continuation
from unmask.lab.branch.pools import Future, RowPool, RunningRows, selected
from unmask.lab.branch.stepper import OwnStep, StepCost, moved_on


class FirstStep(NamedTuple):
    """What a branch's own action did at its state; positions are those of the canvas, which is padded on the right."""

    revealed: tuple[int, ...]
    tokens: tuple[int, ...]
    """Put there, position by position."""
    remasked: tuple[int, ...]
    committed: tuple[int, ...]
    """Positions that became final."""


class Departure(NamedTuple):
    """How branches leave their states by one alternative, one from each."""

    alternative: int
    rollout: int
    firsts: Sequence[FirstStep]
    costs: Sequence[StepCost]
    ran: bool
    """Whether their own passes were run for them; else other branches of the states have paid for them."""
    also: list[int]
    """Rollouts that draw nothing and are the same again: they are added when they are asked for."""

    def of(self, rows: Sequence[int]) -> "Departure":
        """Some of them."""
        return self._replace(firsts=[self.firsts[row] for row in rows], costs=[self.costs[row] for row in rows])


class Ticket(NamedTuple):
    """A branch that waits for its future."""

    point: int
    """Index of the sampled state in the bucket."""
    alternative: int
    rollout: int
    future: Future
    at: int
    """How many forwards into the future it joined."""
    first: FirstStep
    cost: StepCost
    ran: bool
    """Whether its own passes were run for it; else another branch of the state has paid for them."""
    also: list[int]
    """Other rollouts that it stands for."""


class Flight(NamedTuple):
    """Rows that have taken a step of which the host has not heard yet."""

    pool: RowPool
    rows: RunningRows
    """As they were before it."""
    step: OwnStep
    traj: Trajectory
    """As they are now."""
    summary: Summary


class FutureTable:
    """The futures of one bucket: rows that run them by pool, those known by digest, and the branches that wait."""

    def __init__(self, bucket: Bucket, merge: bool):
        self.bucket, self.merge = bucket, merge
        self.tickets: list[Ticket] = []
        self.branches = 0
        """Begun so far, rollouts that one ticket stands for among them."""
        self.pools: dict[object, RowPool] = {}
        self._policies: list[Policy] = []
        """Continuations, numbered."""
        self._known: list[dict[bytes, tuple[Future, int]]] = [{} for _ in bucket.paths]
        """Per prompt: which future a row has, and where in it the row is, by digest."""
        if merge:
            self._know_reference()

    @property
    def largest(self) -> RowPool | None:
        """The pool with most rows."""
        return max(self.pools.values(), key=lambda pool: pool.size, default=None)

    def join(
        self,
        after: Continuation,
        traj: Trajectory,
        points: Sequence[int],
        departure: Departure,
        accounts: Sequence[AxisCost],
    ) -> None:
        """Rows that have left their states by one alternative: each has a future already, or starts one.

        What it then takes is booked on the row's account.
        """
        pool = self._pool(after, traj)
        first = len(self.tickets)
        owners = range(first, first + len(points))
        prompts = [self.bucket.points[at].path for at in points]
        places = self._enter(pool, traj, prompts, owners, accounts, points)
        alternative, rollout, ran, also = departure.alternative, departure.rollout, departure.ran, departure.also
        self.tickets += [
            Ticket(point, alternative, rollout, future, at, step, cost, ran, also)
            for point, (future, at), step, cost in zip(points, places, departure.firsts, departure.costs, strict=True)
        ]
        self.branches += len(points)

    def repeat(self, departure: Departure, rollout: int) -> None:
        """Another rollout of branches that draw nothing: it has their futures."""
        departure.also.append(rollout)
        self.branches += len(departure.firsts)

    def look(self, pool: RowPool, rows: RunningRows, step: OwnStep) -> "Flight":
        """Rows of a pool after a step, and what the host will know of them."""
        traj, change = moved_on(rows.traj, pool.policy.name, step, pool.keep), step.change
        flags = {"faulty": change.fault_B != 0}
        if self._settled_under(pool.policy):
            flags["left"] = (change.revealed_BL & ~change.state.committed_BL).any(-1)
        if pool.settled is not None and self.merge:
            flags["settled"] = ~traj.state.revisable_BL.any(-1)
        return Flight(pool, rows, step, traj, self._summary(pool, traj, flags=flags))

    def land(self, flight: "Flight") -> None:
        """After its step each row has ended, or settled, or run into a known future, or goes on."""
        pool, rows, step = flight.pool, flight.rows, flight.step
        seen = flight.summary.get()
        if any(seen.flags["faulty"]):
            raise_faults(step.change.fault_B, rows.traj.state.step_B, rows.traj.rows_B)
        if any(seen.flags.get("left", ())):
            axes = self._settled_under(pool.policy)
            raise ContractError(
                f"the reference {pool.policy.name} left a position revisable after a branch, but not on its own way; "
                f"allowed: always or never; study {', '.join(axes)} around a reference that commits all it reveals"
            )
        for future, took in zip(rows.futures, step.passes, strict=True):
            future.add_step(took)
        self._sort(flight, seen)

    def _settled_under(self, policy: Policy) -> list[str]:
        """Axes whose rows settle under a policy, which must not make anything revisable again."""
        return [axis for axis, after in self.bucket.continuations.items() if policy == after.settled]

    def _sort(self, flight: "Flight", seen: RowSummary) -> None:
        """Every row of a batch to where it goes on."""
        going_on: list[int] = []
        settled: list[int] = []
        known, rows = self._known, flight.rows
        settles = seen.flags.get("settled") or [False] * len(seen.done)
        digests: Sequence[bytes | None] = seen.digests or [None] * len(seen.done)
        columns = zip(rows.futures, rows.prompts, seen.done, settles, digests, strict=True)
        for row, (future, prompt, done, settles_now, digest) in enumerate(columns):
            if done:
                future.end = seen.canvas_BL[row].copy()
            elif settles_now:
                settled.append(row)
            elif digest is None:
                going_on.append(row)
            else:
                here = (future, len(future.spent) - 1)
                place = known[prompt].setdefault(digest, here)
                if place is here:
                    going_on.append(row)
                else:
                    future.next, future.at = place
        if settled:
            self._hand_over(flight, settled)
        if going_on:
            # After its own first step the continuation's notes are there, whatever the candidate's were.
            home = self._pool(Continuation(flight.pool.policy, flight.pool.settled), flight.traj)
            home.put_back(rows.after(flight.traj, going_on))

    def _hand_over(self, flight: "Flight", at: list[int]) -> None:
        """Rows with nothing left to revise go on under the settled policy."""
        assert flight.pool.settled is not None
        rows = flight.rows.after(flight.traj, at)
        leaving = replace(rows.traj, steps=())
        owners = [future.owner for future in rows.futures]
        accounts = [future.account for future in rows.futures]
        pool = self._pool(Continuation(flight.pool.settled), leaving)
        places = self._enter(pool, leaving, rows.prompts, owners, accounts)
        for future, place in zip(rows.futures, places, strict=True):
            future.next, future.at = place

    def _enter(
        self,
        pool: RowPool,
        traj: Trajectory,
        prompts: Sequence[int],
        owners: Sequence[int],
        accounts: Sequence[AxisCost | None],
        points: Sequence[int] | None = None,
    ) -> list[tuple[Future, int]]:
        """The future of each row that comes to a pool, and where it joins; new ones wait there to be run."""
        rows = self._summary(pool, traj, points).get()
        places: list[tuple[Future, int]] = []
        fresh: list[int] = []
        for row, (prompt, owner, account) in enumerate(zip(prompts, owners, accounts, strict=True)):
            known = self._known[prompt]
            place = known.get(rows.digests[row]) if rows.digests else None
            if place is None:
                place = (Future(owner, account), 0)
                if rows.digests:
                    known[rows.digests[row]] = place
                if rows.done[row]:
                    place[0].end = rows.canvas_BL[row].copy()
                else:
                    fresh.append(row)
            places.append(place)
        if fresh:
            futures, theirs = [places[row][0] for row in fresh], [prompts[row] for row in fresh]
            pool.add(RunningRows(selected(traj, fresh), futures, theirs))
        return places

    def _summary(
        self,
        pool: RowPool,
        traj: Trajectory,
        points: Sequence[int] | None = None,
        flags: Mapping[str, Tensor] | None = None,
    ) -> Summary:
        draws = self.bucket.draws(pool.policy)
        return summarize(pool, traj, merge=self.merge, draws=draws, points=points, flags=flags)

    def _pool(self, after: Continuation, traj: Trajectory) -> RowPool:
        """Rows can share a batch if their pasts have the same structure."""
        kind = number_of(after.policy, self._policies)
        notes = tuple((name, tuple(x.shape[1:]), x.dtype) for name, x in sorted(traj.notes.items()))
        # Of an action, too, some parts may be missing: a method's first step has others than the reference's own.
        actions = tuple((s.action.remask_BL is None, s.action.tokens_BL is None) for s in traj.steps)
        # And the reference may have read slots of its own where a candidate read the canvas.
        slots = tuple((s.prediction.wanted_BN.shape[1], s.prediction.given_BN is None) for s in traj.steps)
        key = (kind, after.settled is not None, actions, notes, slots)
        if key not in self.pools:
            self.pools[key] = RowPool(kind, after)
        return self.pools[key]

    def _know_reference(self) -> None:
        """Branches that come back to the reference's own way end as it did."""
        reference = self.bucket.plan.reference
        if reference.past_steps != 0 or self.bucket.draws(reference):
            return
        pool = RowPool(number_of(reference, self._policies), Continuation(reference))
        for prompt, path in enumerate(self.bucket.paths):
            future = Future(owner=-1)
            future.end = path.end_L
            for passes in path.passes:
                future.add_step(passes)
            noise = Noise(torch.zeros(path.steps, dtype=torch.long))
            digests = self._summary(pool, Trajectory.start(path.states, noise)).get().digests
            assert digests is not None
            self._known[prompt] = {digest: (future, at) for at, digest in enumerate(digests)}


def settled_rows(state: State) -> list[bool]:
    """Rows with nothing left to revise."""
    settled: list[bool] = (~state.revisable_BL.any(-1)).tolist()
    return settled
