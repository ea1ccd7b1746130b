"""What waits for what: the future of every branch, each run once however many branches have it.

Futures are a function of what the continuation reads (`digests`), whatever states, candidates or axes rows come from.
A row that arrives where another has been joins that one's future there, and its own run ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.core import Noise, Policy, State, Trajectory
from unmask.errors import ContractError
from unmask.lab.branch.bucket import Bucket, number_of
from unmask.lab.branch.costs import AxisCost
from unmask.lab.branch.digests import RowSummary, summarize
from unmask.lab.branch.plan import Continuation
from unmask.lab.branch.pools import Ending, Future, RowPool, selected
from unmask.lab.branch.stepper import OwnStep, StepCost, moved_on
from unmask.transition import raise_faults


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

    def stepped(self, pool: RowPool, before: Trajectory, step: OwnStep) -> None:
        """The pool's batch after a step: each row has ended, or settled, or run into a known future, or goes on."""
        for future, took in zip(pool.futures, step.passes, strict=True):
            future.add_step(took)
        traj, change = moved_on(before, pool.policy.name, step, pool.keep), step.change
        flags = {"faulty": change.fault_B != 0}
        if revising := self._settled_under(pool.policy):
            flags["left"] = (change.revealed_BL & ~change.state.committed_BL).any(-1)
        if pool.settled is not None and self.merge:
            flags["settled"] = ~traj.state.revisable_BL.any(-1)
        rows = self._summary(pool, traj, flags=flags)
        if any(rows.flags["faulty"]):
            raise_faults(change.fault_B, before.state.step_B, before.rows_B)
        if revising and any(rows.flags["left"]):
            raise ContractError(
                f"the reference {pool.policy.name} left a position revisable after a branch, but not on its own way; "
                f"allowed: always or never; study {', '.join(revising)} around a reference that commits all it reveals"
            )
        self._sort(pool, traj, rows)

    def _settled_under(self, policy: Policy) -> list[str]:
        """Axes whose rows settle under a policy, which must not make anything revisable again."""
        return [axis for axis, after in self.bucket.continuations.items() if policy == after.settled]

    def _sort(self, pool: RowPool, traj: Trajectory, rows: RowSummary) -> None:
        """Every row of a batch to where it goes on."""
        settled_rows = rows.flags.get("settled") or [False] * len(rows.done)
        going_on: list[int] = []
        settled: list[int] = []
        for row, (future, prompt, done) in enumerate(zip(pool.futures, pool.prompts, rows.done, strict=True)):
            if done:
                future.end = rows.canvas_BL[row].copy()
            elif settled_rows[row]:
                settled.append(row)
            elif rows.digests is None:
                going_on.append(row)
            else:
                here = (future, future.length)
                place = self._known[prompt].setdefault(rows.digests[row], here)
                if place is here:
                    going_on.append(row)
                else:
                    future.next, future.at = place
        if settled:
            self._hand_over(pool, traj, settled)
        pool.retire(traj, going_on)
        self._rehouse(pool, traj)

    def _hand_over(self, pool: RowPool, traj: Trajectory, rows: list[int]) -> None:
        """Rows with nothing left to revise go on under the settled policy."""
        assert pool.settled is not None
        leaving = replace(selected(traj, rows), steps=())
        futures, prompts = [pool.futures[row] for row in rows], [pool.prompts[row] for row in rows]
        owners = [future.owner for future in futures]
        accounts = [future.account for future in futures]
        places = self._enter(self._pool(Continuation(pool.settled), leaving), leaving, prompts, owners, accounts)
        for future, place in zip(futures, places, strict=True):
            future.next, future.at = place

    def _rehouse(self, pool: RowPool, traj: Trajectory) -> None:
        """After its own first step the continuation's notes are there, whatever the candidate's were."""
        home = self._pool(Continuation(pool.policy, pool.settled), traj)
        if home is not pool and pool.futures:
            assert pool.live is not None
            home.add(pool.live, pool.futures, pool.prompts)
            pool.retire(pool.live, [])

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
        rows = self._summary(pool, traj, points)
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
            pool.add(selected(traj, fresh), [places[row][0] for row in fresh], [prompts[row] for row in fresh])
        return places

    def _summary(
        self,
        pool: RowPool,
        traj: Trajectory,
        points: Sequence[int] | None = None,
        flags: Mapping[str, Tensor] | None = None,
    ) -> RowSummary:
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
        if reference.memory != 0 or self.bucket.draws(reference):
            return
        pool = RowPool(number_of(reference, self._policies), Continuation(reference))
        for prompt, path in enumerate(self.bucket.paths):
            future = Future(owner=-1)
            future.end = path.end_L
            for passes in path.passes:
                future.add_step(passes)
            noise = Noise(torch.zeros(path.steps, dtype=torch.long))
            digests = self._summary(pool, Trajectory.start(path.states, noise)).digests
            assert digests is not None
            self._known[prompt] = {digest: (future, at) for at, digest in enumerate(digests)}


def settled_rows(state: State) -> list[bool]:
    """Rows with nothing left to revise."""
    settled: list[bool] = (~state.revisable_BL.any(-1)).tolist()
    return settled


def follow(future: Future, at: int) -> Ending:
    """The final canvas of a future, and what it takes from its `at`-th step on."""
    if future.whole is None:
        _follow_whole(future)
    whole: Ending | None = future.whole
    assert whole is not None
    return Ending(whole.canvas_L, whole.steps - at, whole.passes - future.spent[at])


def _follow_whole(future: Future) -> None:
    """What a future and those it runs into come to from their beginnings, noted in each."""
    chain = [future]
    while chain[-1].whole is None and (after := chain[-1].next) is not None:
        chain.append(after)
    for one in reversed(chain):
        if one.whole is not None:
            continue
        if one.next is not None:
            rest = follow(one.next, one.at)
            one.whole = Ending(rest.canvas_L, one.length + rest.steps, one.spent[-1] + rest.passes)
        elif one.end is not None:
            one.whole = Ending(one.end, one.length, one.spent[-1])
        else:
            raise ContractError("a branch has no end; allowed: futures that finish; this is a bug of the engine")
