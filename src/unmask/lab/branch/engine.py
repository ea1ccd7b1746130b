"""The branch engine: Q(z, a) of many states and candidates, each piece of equal work done once.

A branch takes a candidate's action once at a state of the reference trajectory, then the reference's to the end; the
answer is judged. Candidates at one state share their random numbers: the stream is a hash of state and rollout.

Futures are a function of what the continuation reads. A memoryless one reads the canvas, what is committed, the step,
and, if anything is drawn, the row's random numbers: branches that agree on these have one future, whatever states,
candidates or axes they come from. One with memory reads its last step too; there only equal first transitions merge.
`merge=False` runs every branch for itself at the same forward shape; the tables are the same to the bit.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.adapt import Proposed
from unmask.adapt.gated import read_together
from unmask.axes import AXES, ReMDM
from unmask.core import Action, Denoiser, Needs, Noise, Policy, Prediction, Proposal, State, Trajectory, View, row_key
from unmask.core.rows import concat
from unmask.diagnostics import Diagnostic
from unmask.errors import ContractError, Unfinished, require
from unmask.lab.branch.snap import nearest
from unmask.lab.branch.states import ReferenceRun, Sampled, Stepper, moved, moved_on, sample, without_noise
from unmask.policies import Revised
from unmask.policies.candidates import Sets
from unmask.request import Request
from unmask.transition import Transition

PROPOSAL = "proposal"
"""The candidate's name under which a diagnostic's own action is branched."""


@dataclass(frozen=True)
class Engine:
    """How the work is done; tables depend on `rows` and `bucket` alone, and only as rounding does."""

    rows: int
    """Canvases of one forward."""
    live: int = 64
    """Branches that take a step together, `rows` at a time through the denoiser; never fewer than `rows`."""
    bucket: int = 32
    """Canvases are padded to a multiple of this."""
    waiting: int = 4096
    """Branches that are held at once, about: what bounds memory."""
    merge: bool = True
    """False runs every branch for itself."""

    def __post_init__(self) -> None:
        require(self.rows >= 1, "rows", self.rows, "1 or more", "a forward needs a row")
        require(self.live >= 1, "live", self.live, "1 or more", "a step needs a branch")
        ok = self.bucket >= 1 and self.bucket % 32 == 0
        require(ok, "bucket", self.bucket, "a multiple of 32", "networks pad to that anyway")
        require(self.waiting >= 1, "waiting", self.waiting, "1 or more", "a few thousand are few megabytes")


@dataclass(frozen=True)
class Continuation:
    """Who decodes after the candidate's action."""

    policy: Policy
    settled: Policy | None = None
    """Does the same as `policy` once nothing is revisable, and reads less. It must commit all it reveals."""

    def __post_init__(self) -> None:
        known = self.policy.memory in (0, 1)
        require(known, f"memory of {self.policy.name}", self.policy.memory, "0 or 1", "take another continuation")


@dataclass(frozen=True)
class Plan:
    """What is tried at every state, and what follows."""

    reference: Policy
    candidates: Sets
    """By axis and name; the first of every axis is the reference."""
    operator: ReMDM
    """Re-opens what the commitment candidates leave revisable."""
    rollouts: int
    states: int
    """Per prompt."""
    seed: int
    temperature: float = 0.0
    diagnostics: Mapping[str, Diagnostic] = field(default_factory=dict)
    """By axis: read at every state, and what they propose is branched, too."""

    def __post_init__(self) -> None:
        for axis in self.diagnostics:
            known = axis in self.candidates and PROPOSAL not in self.candidates[axis]
            require(known, "axis of a diagnostic", axis, ", ".join(self.candidates), "add its candidates")
        require(self.rollouts >= 1, "rollouts", self.rollouts, "1 or more", "continue each branch at least once")
        for axis, named in self.candidates.items():
            first = next(iter(named.values()), None)
            ok = first == self.reference
            require(ok, f"the first candidate of {axis}", first, "the reference", "put it first")
        require(bool(self.candidates), "axes", [], "one or more", "name an axis")

    def continuation(self, axis: str) -> Continuation:
        """The reference; for commitment together with the operator, or revisable positions would mean nothing."""
        if not AXES[axis].revises:
            return Continuation(self.reference)
        settled = self.reference if self.reference.memory == 0 else None
        return Continuation(Revised(self.reference, self.operator), settled)

    @property
    def choices(self) -> list[tuple[str, str, Policy]]:
        """Axis, name and policy of every candidate, and of every proposal after those of its axis."""
        found = []
        for axis, named in self.candidates.items():
            found += [(axis, name, policy) for name, policy in named.items()]
            if axis in self.diagnostics:
                found.append((axis, PROPOSAL, self.proposals[axis]))
        return found

    @cached_property
    def proposals(self) -> Mapping[str, Proposed]:
        """By axis: the diagnostic's action, and the reference's where it has none."""
        return {axis: Proposed(self.reference, diagnostic) for axis, diagnostic in self.diagnostics.items()}


def stream(step: int, rollout: int) -> int:
    """The random numbers of a rollout from a state; never of the candidate. 0 is the reference's own run."""
    digest = hashlib.blake2b(f"{step}/{rollout}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


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


class StoredReading(NamedTuple):
    """What a diagnostic said at a state."""

    prompt: str
    state: int
    axis: str
    signal: float
    """NaN where it abstained."""
    abstained: bool
    snapped: str
    """The candidate nearest to the proposal."""
    same: tuple[str, ...]
    """Candidates that lead to the same next state."""
    ingredients: str
    """What the signal was made of, as JSON."""


@dataclass
class AxisCost:
    """Row-forwards of one axis. What a naive run needs is what was done plus what was saved, by reason."""

    branches: int = 0
    done: int = 0
    rollouts: int = 0
    """Rollouts that draw nothing: one stands for all."""
    first: int = 0
    """The forward that all branches of a state share, and futures of candidates that do the same there."""
    futures: int = 0
    """Futures that ran into one known already: another branch's, or the reference's own."""
    settled: int = 0
    """Steps of the revision operator after there is nothing left to revise."""

    @property
    def saved(self) -> int:
        return self.rollouts + self.first + self.futures + self.settled

    @property
    def naive(self) -> int:
        return self.done + self.saved

    def __add__(self, other: "AxisCost") -> "AxisCost":
        return AxisCost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass
class BranchCost:
    """What it cost."""

    axes: dict[str, AxisCost] = field(default_factory=dict)
    trajectory: int = 0
    """Row-forwards of the reference trajectories, the same in every engine."""
    recalled: int = 0
    """Row-forwards that brought previous posteriors back."""
    calls: int = 0
    """Forward passes, each of `rows` rows, dummies included."""

    @property
    def total(self) -> AxisCost:
        return sum(self.axes.values(), AxisCost())

    def __add__(self, other: "BranchCost") -> "BranchCost":
        axes = {
            axis: self.axes.get(axis, AxisCost()) + other.axes.get(axis, AxisCost())
            for axis in {**self.axes, **other.axes}
        }
        return BranchCost(
            axes, self.trajectory + other.trajectory, self.recalled + other.recalled, self.calls + other.calls
        )


class BranchProgress(NamedTuple):
    """Where a block stands."""

    states: int
    branches: int
    """Started so far."""
    forwards: int
    """Row-forwards done."""


@dataclass(frozen=True)
class Block:
    """The branches of some prompts."""

    paths: tuple[ReferenceRun, ...]
    branches: tuple[Branch, ...]
    """Prompt by prompt, state by state, axes and candidates in order, rollouts last."""
    report: BranchCost
    readings: tuple[StoredReading, ...] = ()
    """Prompt by prompt, state by state, axis by axis."""


def run(
    denoiser: Denoiser,
    plan: Plan,
    starts: Sequence[Request],
    engine: Engine,
    on_progress: Callable[[BranchProgress], None] = lambda progress: None,
) -> Block:
    """Sample states of the prompts, branch every candidate from each, and continue to the end."""
    require(bool(starts), "prompts", [], "one or more", "pass a prompt")
    ids = [start.id for start in starts]
    require(len(set(ids)) == len(ids), "prompt ids", ids, "no id twice", "tables go by these ids")
    stepper = Stepper(denoiser, Proposal(temperature=plan.temperature), engine.rows, engine.live)
    found: dict[str, tuple[ReferenceRun, list[Branch], list[StoredReading]]] = {}
    told = list(plan.diagnostics.values())
    needs = reduce(or_, (diagnostic.needs for diagnostic in told), plan.reference.needs)
    memory = max((diagnostic.memory for diagnostic in told), default=1)
    report = BranchCost({axis: AxisCost() for axis in plan.candidates})
    with torch.inference_mode():
        # A bucket follows from the prompt alone, so its shape does not depend on its company.
        for slots in sorted({start.slots(engine.bucket) for start in starts}):
            members = [start for start in starts if start.slots(engine.bucket) == slots]
            sampled = sample(
                stepper,
                plan.reference,
                members,
                states=plan.states,
                seed=plan.seed,
                slots=slots,
                needs=needs,
                memory=memory,
            )
            paths = list(sampled)
            report.trajectory += sum(path.steps for path in paths)
            work = _BranchRun(plan, paths, engine, stepper, report, on_progress)
            for path in paths:
                found[path.start.id] = (path, [], [])
            for branch in work.branches():
                found[branch.prompt][1].append(branch)
            for reading in sorted(work.readings, key=lambda r: (r.state, list(plan.candidates).index(r.axis))):
                found[reading.prompt][2].append(reading)
    report.calls = stepper.calls
    ordered = [found[id] for id in ids]
    return Block(
        tuple(path for path, _, _ in ordered),
        tuple(b for _, part, _ in ordered for b in part),
        report,
        tuple(r for _, _, part in ordered for r in part),
    )


def union(policies: Sequence[Policy]) -> Needs:
    """What all of them need: the first forward at a state serves every candidate."""
    return reduce(or_, (policy.needs for policy in policies))


class _Future:
    """A stretch of rows that one branch ran: its end, or the other future it turned out to be."""

    __slots__ = ("at", "end", "length", "next", "owner")

    def __init__(self, owner: int):
        self.owner = owner
        """The branch that pays; -1 for the reference's own run."""
        self.length = 0
        self.end: np.ndarray | None = None
        self.next: _Future | None = None
        self.at = 0
        """Where in `next` it joins."""


class _Ticket(NamedTuple):
    """A branch that waits for its future."""

    state: int
    """Index into the sampled states."""
    choice: int
    rollout: int
    future: _Future
    at: int
    """How many forwards into the future it joined."""


class _Pool:
    """Live and waiting rows of one continuation policy, all of one structure."""

    def __init__(self, policy: Policy, settled: Policy | None):
        self.policy, self.settled = policy, settled
        self.keep = policy.memory
        self.live: Trajectory | None = None
        self.futures: list[_Future] = []
        self.prompts: list[int] = []
        self.waiting: deque[tuple[Trajectory, list[_Future], list[int]]] = deque()

    @property
    def size(self) -> int:
        return len(self.futures) + sum(len(futures) for _, futures, _ in self.waiting)

    def add(self, traj: Trajectory, futures: list[_Future], prompts: list[int]) -> None:
        self.waiting.append((traj, futures, prompts))

    def fill(self, rows: int) -> Trajectory:
        """The next batch: who is running, and who was waiting longest."""
        parts = [] if self.live is None or not self.futures else [self.live]
        while self.waiting and len(self.futures) < rows:
            traj, futures, prompts = self.waiting.popleft()
            room = rows - len(self.futures)
            if len(futures) > room:
                at_R = torch.arange(len(futures), device=traj.rows_B.device)
                self.waiting.appendleft((traj.select(at_R[room:]), futures[room:], prompts[room:]))
                traj, futures, prompts = traj.select(at_R[:room]), futures[:room], prompts[:room]
            parts.append(traj)
            self.futures, self.prompts = self.futures + futures, self.prompts + prompts
        return parts[0] if len(parts) == 1 else concat(parts)

    def retire(self, traj: Trajectory, stay: list[int]) -> None:
        """Keep the rows that go on."""
        if len(stay) < len(self.futures):
            traj = traj.select(torch.tensor(stay, dtype=torch.long, device=traj.rows_B.device))
        self.live = traj
        self.futures = [self.futures[row] for row in stay]
        self.prompts = [self.prompts[row] for row in stay]


class _BranchRun:
    """The branches of the prompts of one bucket."""

    def __init__(
        self,
        plan: Plan,
        paths: Sequence[ReferenceRun],
        engine: Engine,
        stepper: Stepper,
        report: BranchCost,
        on_progress: Callable[[BranchProgress], None],
    ):
        self.plan, self.paths, self.engine, self.stepper = plan, paths, engine, stepper
        self.report, self.on_progress = report, on_progress
        self.device = stepper.denoiser.device
        self.choices = plan.choices
        self.policies: list[Policy] = []
        """Different ones; the reference is a candidate of every axis."""
        self.kinds: list[Policy] = []
        """Continuations, numbered."""
        self.policy_of = [_index(self.policies, policy) for _, _, policy in self.choices]
        self.needs = union(self.policies)
        self.continuations = {axis: plan.continuation(axis) for axis in plan.candidates}
        if any(bool(path.states.revisable_BL.any()) for path in paths):
            self.continuations = {axis: replace(after, settled=None) for axis, after in self.continuations.items()}
        self.calm = [after.settled for after in self.continuations.values() if after.settled is not None]
        self.states: list[tuple[int, Sampled]] = [(at, s) for at, path in enumerate(paths) for s in path.sampled]
        self.pools: dict[object, _Pool] = {}
        self.known: list[dict[bytes, tuple[_Future, int]]] = [{} for _ in paths]
        """Per prompt: which future a row has, by all that the continuation reads."""
        self.tickets: list[_Ticket] = []
        self.shared: dict[int, dict[tuple[int, int], set[int]]] = {}
        """Per state: the futures that branches before this one have, and whose they are."""
        self.readings: list[StoredReading] = []
        self.begun = self.forwards = 0
        if engine.merge:
            self._know_reference()

    # The order of work

    def branches(self) -> Iterator[Branch]:
        """Run everything; branches in the order of prompts, states, candidates and rollouts."""
        todo = self._chunks()
        limit = 8 * (len(self.states) + 1) * len(self.choices) * self.plan.rollouts * self._most_steps()
        for _ in range(limit):
            pool = max(self.pools.values(), key=lambda pool: pool.size, default=None)
            if (pool is None or pool.size < self.stepper.live) and (chunk := next(todo, None)) is not None:
                self._expand(chunk)
            elif pool is not None and pool.size:
                self._advance(pool)
            else:
                return self._answers()
            self.on_progress(BranchProgress(self.begun, len(self.tickets), self.forwards))
        raise Unfinished("branches make no progress; allowed: continuations that end; look at what they reveal")

    def _most_steps(self) -> int:
        return 4 * max(path.start.steps + path.states.tokens_BL.shape[1] for path in self.paths)

    def _chunks(self) -> Iterator[list[int]]:
        """States that are expanded together: with as much past, within the limit on waiting branches."""
        most = max(1, min(self.stepper.live, self.engine.waiting // (len(self.choices) * self.plan.rollouts)))
        past = [len(sampled.traj.steps) for _, sampled in self.states]
        for steps in sorted(set(past)):
            same = [at for at, n in enumerate(past) if n == steps]
            yield from (same[at : at + most] for at in range(0, len(same), most))

    # The candidates' own step

    def _expand(self, chunk: list[int]) -> None:
        """Every candidate's action at some states, and where each row goes from there."""
        self.begun += len(chunk)
        start = moved(concat([self.states[at][1].traj for at in chunk]), self.device)
        start = replace(start, rows_B=torch.arange(len(chunk), device=self.device))
        view = View.of(start.state, self.needs)
        self._check(start)
        # Only diagnostics read the attention of the step before.
        read = self.needs if self.plan.diagnostics else replace(self.needs, attention=False)
        start = self.stepper.recall(start, read)
        if start.posterior is not None:
            self.report.recalled += len(chunk)
        if self.engine.merge:
            self._expand_once(chunk, start, view)
        else:
            self._expand_each(chunk, start)

    def _check(self, start: Trajectory) -> None:
        for policy in self.policies:
            policy.check(start.state)
            own = policy.view(start)
            plain = own.tokens_BN is start.state.tokens_BL and own.attend_BNN is None
            require(plain, f"the view of {policy.name}", "special", "the canvas itself", "it cannot be branched")

    def _expand_once(self, chunk: list[int], start: Trajectory, view: View) -> None:
        logits = self.stepper.forward(view, self.needs)
        self._paid(self.choices[0][0], len(chunk))
        greedy = self.plan.temperature == 0
        seen: Trajectory | None = None
        kept: dict[int, tuple[Action, Transition]] = {}
        drawless: dict[int, slice] = {}
        """Choices that nothing is drawn for, neither by them nor after them: their branches, once for all rollouts."""
        for rollout in range(self.plan.rollouts):
            noise = self._noise(chunk, [rollout] * len(chunk))
            if seen is None or not greedy:
                seen = self.stepper.predict(replace(start, noise=noise), logits, view, self.needs)
            seen = replace(seen, noise=noise)
            # What nobody drew for is the same in every rollout.
            kept = {at: made for at, made in kept.items() if greedy and not self.policies[at].random}
            for at, policy in enumerate(self.policies):
                if at not in kept:
                    kept[at] = self.stepper.act(seen, policy)
            if rollout == 0:
                self._diagnose(chunk, seen, [kept[at] for at in self.policy_of])
            for choice, at in enumerate(self.policy_of):
                if choice in drawless:
                    self.tickets += [ticket._replace(rollout=rollout) for ticket in self.tickets[drawless[choice]]]
                    continue
                first = len(self.tickets)
                self._enter(chunk, choice, rollout, seen, *kept[at])
                after = self.continuations[self.choices[choice][0]].policy
                if not (self._random(self.policies[at]) or self._random(after)):
                    drawless[choice] = slice(first, len(self.tickets))

    def _diagnose(self, chunk: list[int], seen: Trajectory, made: Sequence[tuple[Action, Transition]]) -> None:
        """What the diagnostics say at some states, and how it compares with what every choice does there."""
        policies = self.plan.proposals
        for axis, reading in read_together(policies, without_noise(seen, *policies.values())).items():
            proposed = self.stepper.change(seen, reading.action)
            places = [at for at, (of, name, _) in enumerate(self.choices) if of == axis and name != PROPOSAL]
            others, names = [made[at] for at in places], [self.choices[at][1] for at in places]
            same_AB = torch.stack([_same(proposed.state, change.state) for _, change in others])
            nearest_B = nearest(axis, seen.state, reading.action, proposed.revealed_BL, [a for a, _ in others])
            signals, abstained = reading.signal_B.tolist(), reading.abstains_B.tolist()
            details = {name: value.tolist() for name, value in sorted(reading.ingredients.items())}
            for row, (at, near, same) in enumerate(zip(chunk, nearest_B.tolist(), same_AB.T.tolist(), strict=True)):
                path, sampled = self.states[at]
                self.readings.append(
                    StoredReading(
                        prompt=self.paths[path].start.id,
                        state=sampled.index,
                        axis=axis,
                        signal=signals[row],
                        abstained=abstained[row],
                        snapped=names[near],
                        same=tuple(name for name, equal in zip(names, same, strict=True) if equal),
                        ingredients=json.dumps({name: values[row] for name, values in details.items()}),
                    )
                )

    def _expand_each(self, chunk: list[int], start: Trajectory) -> None:
        if self.plan.diagnostics:
            whole = replace(start, noise=self._noise(chunk, [0] * len(chunk)))
            view = View.of(whole.state, self.needs)
            logits = self.stepper.forward(view, self.needs)
            seen = self.stepper.predict(whole, logits, view, self.needs)
            self._diagnose(chunk, seen, [self.stepper.act(seen, policy) for _, _, policy in self.choices])
        each = [(choice, rollout) for choice in range(len(self.choices)) for rollout in range(self.plan.rollouts)]
        rows = [(row, *who) for who in each for row in range(len(chunk))]
        for at in range(0, len(rows), self.stepper.live):
            part = rows[at : at + self.stepper.live]
            mine = start.select(torch.tensor([row for row, _, _ in part], device=self.device))
            mine = replace(mine, noise=self._noise([chunk[row] for row, _, _ in part], [r for _, _, r in part]))
            view = View.of(mine.state, self.needs)
            seen = self.stepper.predict(mine, self.stepper.forward(view, self.needs), view, self.needs)
            for choice, rollout in dict.fromkeys((choice, rollout) for _, choice, rollout in part):
                own = [i for i, (_, c, r) in enumerate(part) if (c, r) == (choice, rollout)]
                axis, _, policy = self.choices[choice]
                self._paid(axis, len(own))
                sub = seen.select(torch.tensor(own, device=self.device))
                members = [chunk[part[i][0]] for i in own]
                self._enter(members, choice, rollout, sub, *self.stepper.act(sub, policy))

    def _noise(self, states: list[int], rollouts: list[int]) -> Noise:
        keys = []
        for at, rollout in zip(states, rollouts, strict=True):
            path, sampled = self.states[at]
            keys.append(row_key(self.plan.seed, self.paths[path].start.key, stream(sampled.step, rollout)))
        return Noise.of(keys, self.device)

    def _enter(
        self, chunk: list[int], choice: int, rollout: int, seen: Trajectory, action: Action, change: Transition
    ) -> None:
        """Rows after one candidate's action: each finds its future, or starts one."""
        axis = self.choices[choice][0]
        after = self.continuations[axis]
        # In its plainest form, so that two ways to the same transition leave the same past.
        plain = Action(
            action.alpha_BJ.new_zeros(action.alpha_BJ.shape),
            change.revealed_BL,
            change.revealed_BL.any(-1).to(action.kappa_B.dtype),
            action.commit_BL & change.revealed_BL,
            remask_BL=change.remasked_BL,
            # Without the record of a gate, which no continuation reads.
            notes={name: note for name, note in action.notes.items() if not name.startswith(f"{axis}/")},
        )
        rows = list(range(len(chunk)))
        still = self._settle(change.state, after) if self.engine.merge else [False] * len(rows)
        for policy, members, settled in (
            (after.policy, [row for row in rows if not still[row]], after.settled),
            (after.settled, [row for row in rows if still[row]], None),
        ):
            if policy is None or not members:
                continue
            keep = max(policy.memory, 0)
            past = replace(seen, prediction=_trimmed(seen.seen, policy.needs)) if keep else seen
            traj = moved_on(past, "candidate", plain, change, keep)
            if len(members) < len(rows):
                traj = traj.select(torch.tensor(members, device=self.device))
            pool = self._pool(policy, settled, traj)
            self._join(pool, traj, [(chunk[row], choice, rollout) for row in members])

    def _join(self, pool: _Pool, traj: Trajectory, who: list[tuple[int, int, int]]) -> None:
        """New rows of a pool: finished, known, or to be run."""
        done, canvas, keys = self._look(pool, traj, [state for state, _, _ in who])
        fresh: list[int] = []
        futures: list[_Future] = []
        for row, (state, choice, rollout) in enumerate(who):
            known = self.known[self.states[state][0]]
            future, at = known.get(keys[row], (None, 0)) if keys else (None, 0)
            if future is None:
                future = _Future(owner=len(self.tickets))
                if keys:
                    known[keys[row]] = (future, 0)
                if done[row]:
                    future.end = canvas[row].copy()
                else:
                    fresh.append(row)
                    futures.append(future)
            self.tickets.append(_Ticket(state, choice, rollout, future, at))
        if fresh:
            if len(fresh) < len(who):
                traj = traj.select(torch.tensor(fresh, device=self.device))
            pool.add(traj, futures, [self.states[who[row][0]][0] for row in fresh])

    # The continuation

    def _advance(self, pool: _Pool) -> None:
        """One step of a batch of one pool."""
        traj = pool.fill(self.stepper.live)
        seen = self.stepper.observe(traj, pool.policy)
        action, change = self.stepper.act(seen, pool.policy)
        if pool.policy in self.calm and bool((change.revealed_BL & ~change.state.committed_BL).any()):
            raise ContractError(
                f"the reference {pool.policy.name} left a position revisable after a branch, but not on its own way; "
                "allowed: always or never; study commitment around a reference that commits all it reveals"
            )
        traj = moved_on(seen, pool.policy.name, action, change, pool.keep)
        for future in pool.futures:
            future.length += 1
            self._paid(self.choices[self.tickets[future.owner].choice][0], 1)
        stay: list[int] = []
        settled: list[int] = []
        still = self._settled_rows(pool, traj.state)
        done, canvas, keys = self._look(pool, traj)
        for row, future in enumerate(pool.futures):
            if done[row]:
                future.end = canvas[row].copy()
            elif still[row]:
                settled.append(row)
            elif keys and keys[row] in (known := self.known[pool.prompts[row]]):
                future.next, future.at = known[keys[row]]
            else:
                if keys:
                    known[keys[row]] = (future, future.length)
                stay.append(row)
        if settled:
            self._hand_over(pool, traj, settled)
        pool.retire(traj, stay)
        home = self._pool(pool.policy, pool.settled, traj)
        if home is not pool and pool.futures:
            # After its own first step the continuation's notes are there, whatever the candidate's were.
            assert pool.live is not None
            home.add(pool.live, pool.futures, pool.prompts)
            pool.retire(pool.live, [])

    def _hand_over(self, pool: _Pool, traj: Trajectory, rows: list[int]) -> None:
        """Rows with nothing left to revise go on under the settled policy."""
        assert pool.settled is not None
        gone = replace(traj.select(torch.tensor(rows, device=self.device)), steps=())
        calm = self._pool(pool.settled, None, gone)
        prompts = [pool.prompts[row] for row in rows]
        done, canvas, keys = self._look(calm, gone)
        assert keys is not None
        fresh, futures = [], []
        for at, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
            known, old = self.known[prompt], pool.futures[row]
            if keys[at] not in known:
                future = _Future(old.owner)
                known[keys[at]] = (future, 0)
                if done[at]:
                    future.end = canvas[at].copy()
                else:
                    fresh.append(at)
                    futures.append(future)
            old.next, old.at = known[keys[at]]
        if fresh:
            waiting = gone.select(torch.tensor(fresh, device=self.device))
            calm.add(waiting, futures, [prompts[at] for at in fresh])

    def _settle(self, state: State, after: Continuation) -> list[bool]:
        if after.settled is None:
            return [False] * state.batch
        return (~state.revisable_BL.any(-1)).tolist()

    def _settled_rows(self, pool: _Pool, state: State) -> list[bool]:
        if pool.settled is None or not self.engine.merge:
            return [False] * state.batch
        return (~state.revisable_BL.any(-1)).tolist()

    # What a future depends on

    def _pool(self, policy: Policy, settled: Policy | None, traj: Trajectory) -> _Pool:
        """Rows can share a batch if their pasts have the same structure."""
        at = _index(self.kinds, policy)
        notes = tuple((name, tuple(x.shape[1:]), x.dtype) for name, x in sorted(traj.notes.items()))
        key = (at, settled is not None, len(traj.steps), notes)
        if key not in self.pools:
            self.pools[key] = _Pool(policy, settled)
        return self.pools[key]

    def _random(self, policy: Policy) -> bool:
        return policy.random or self.plan.temperature > 0

    def _look(
        self, pool: _Pool, traj: Trajectory, states: list[int] | None = None
    ) -> tuple[list[bool], np.ndarray, list[bytes] | None]:
        """Which rows are done, their canvases, and their keys if futures are merged here; read in one go."""
        keyed = self.engine.merge and (pool.keep == 0 or states is not None)
        parts = self._key_parts(pool, traj, states) if keyed else []
        tokens_BL = traj.state.tokens_BL.to(torch.int32)
        done, canvas, *rest = _on_host([pool.policy.done(traj), tokens_BL, *parts])
        keys = self._digests(pool, traj, [canvas, *rest]) if keyed else None
        return done.view(bool)[:, 0].tolist(), canvas.view(np.int32), keys

    def _key_parts(self, pool: _Pool, traj: Trajectory, states: list[int] | None = None) -> list[Tensor]:
        """All that a row's future depends on beside its tokens; the prompt is known to the caller."""
        state = traj.state
        parts = [state.committed_BL, state.step_B]
        if self._random(pool.policy):
            parts.append(traj.noise.key_B)
        if pool.keep:
            assert states is not None
            last = traj.steps[-1]
            parts += [last.revealed_BL, last.remasked_BL, last.confidence_BL]
            parts += [note for _, note in sorted(last.action.notes.items())]
            # The rest of the past is that of the state the row came from.
            parts.append(torch.tensor(states, device=self.device))
        return parts

    def _digests(self, pool: _Pool, traj: Trajectory, parts: Sequence[np.ndarray]) -> list[bytes]:
        kind = repr((_index(self.kinds, pool.policy), pool.settled is not None, sorted(traj.notes))).encode()
        return [hashlib.blake2b(kind + row.tobytes(), digest_size=16).digest() for row in np.concatenate(parts, axis=1)]

    def _know_reference(self) -> None:
        """Branches that come back to the reference's own way end as it did."""
        reference = self.plan.reference
        if reference.memory != 0 or self._random(reference):
            return
        pool = _Pool(reference, None)
        for prompt, path in enumerate(self.paths):
            future = _Future(owner=-1)
            future.length, future.end = path.steps, path.end_L
            noise = Noise(torch.zeros(path.steps, dtype=torch.long))
            _, _, keys = self._look(pool, Trajectory.start(path.states, noise))
            assert keys is not None
            self.known[prompt] = {key: (future, at) for at, key in enumerate(keys)}

    # Results

    def _paid(self, axis: str, forwards: int) -> None:
        self.forwards += forwards
        self.report.axes[axis].done += forwards

    def _answers(self) -> Iterator[Branch]:
        order = sorted(
            range(len(self.tickets)),
            key=lambda at: (self.tickets[at].state, self.tickets[at].choice, self.tickets[at].rollout),
        )
        for at in order:
            ticket = self.tickets[at]
            path_at, sampled = self.states[ticket.state]
            start = self.paths[path_at].start
            axis, name, _ = self.choices[ticket.choice]
            end, steps = _follow(ticket.future, ticket.at)
            self._account(at, ticket, steps, self._late(ticket, sampled, start, steps))
            begin, stop = start.answer
            answer = tuple(end[begin:stop].tolist())
            yield Branch(start.id, sampled.index, sampled.step, sampled.masked, axis, name, ticket.rollout, answer)

    def _account(self, at: int, ticket: _Ticket, steps: int, late: int) -> None:
        """What this branch would have cost alone is what it paid and, by reason, what it saved."""
        work = self.report.axes[self.choices[ticket.choice][0]]
        work.branches += 1
        if not self.engine.merge:
            return
        paid, future = 0, ticket.future
        while future.owner == at:
            paid += future.length
            if future.next is None:
                break
            future = future.next
        same = (id(ticket.future), ticket.at)
        shared = self.shared.setdefault(ticket.state, {})
        work.settled += late
        if ticket.choice in shared.get(same, ()):
            work.rollouts += 1 + steps - paid
        elif same in shared:
            work.first += 1 + steps - paid
        else:
            # The first branch of a state pays for the forward that all of them share.
            work.first += bool(shared)
            work.futures += steps - paid
        shared.setdefault(same, set()).add(ticket.choice)

    def _late(self, ticket: _Ticket, sampled: Sampled, start: Request, steps: int) -> int:
        """Steps that the operator would go on for after the row is settled and full."""
        after = self.continuations[self.choices[ticket.choice][0]]
        if after.settled is None:
            return 0
        return max(0, start.steps - (sampled.step + 1 + steps))


def _on_host(parts: Sequence[Tensor]) -> list[np.ndarray]:
    """Tensors of one batch as bytes, row by row, by a single transfer: each one would wait for the device."""
    flat = [part.reshape(len(part), -1).contiguous().view(torch.uint8) for part in parts]
    whole = torch.cat(flat, 1).cpu().numpy()
    ends = np.cumsum([x.shape[1] for x in flat])
    return [np.ascontiguousarray(x) for x in np.split(whole, ends[:-1], axis=1)]


def _same(one: State, other: State) -> Tensor:
    """Rows whose next states are equal."""
    canvas_B = (one.tokens_BL == other.tokens_BL).all(-1)
    return canvas_B & (one.committed_BL == other.committed_BL).all(-1)


def _follow(future: _Future, at: int) -> tuple[np.ndarray, int]:
    """The final canvas of a future, and the forwards from its `at`-th on."""
    steps = -at
    while future.next is not None:
        steps += future.length - future.at
        future = future.next
    if future.end is None:
        raise ContractError("a branch has no end; allowed: futures that finish; this is a bug of the engine")
    return future.end, steps + future.length


def _index(policies: list[Policy], policy: Policy) -> int:
    """Place of a policy in the list, at its end if it is new. By equality: settings may not be hashable."""
    if policy not in policies:
        policies.append(policy)
    return policies.index(policy)


def _trimmed(prediction: Prediction, needs: Needs) -> Prediction:
    """What the continuation would have asked for, so that rows of all candidates have one structure."""
    k, draws = max(needs.top_k, 2), needs.draws

    def cut(statistics):  # type: ignore[no-untyped-def]
        return replace(statistics, top_BNK=statistics.top_BNK[..., :k], p_BNK=statistics.p_BNK[..., :k])

    return replace(
        prediction,
        clean=cut(prediction.clean),
        filtered=cut(prediction.filtered),
        token_BND=prediction.token_BND[..., :draws],
        confidence_BND=prediction.confidence_BND[..., :draws],
        drift_BN=prediction.drift_BN if needs.divergence else None,
        displacement_BN=prediction.displacement_BN if needs.divergence else None,
        attention_BNN=prediction.attention_BNN if needs.attention else None,
        visible_BN=prediction.visible_BN if needs.attention else None,
        hidden_BNH=None,
        posterior=prediction.posterior if needs.divergence or needs.posterior else None,
    )
