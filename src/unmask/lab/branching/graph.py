"""Branches as walks in a graph of states: equal work is done once, and every forward is paid for by one branch.

A branch takes one alternative's action at a sampled state, then the reference's to the end. What follows depends on
the state after that action alone: canvas, what is committed, the step, random numbers where something is drawn, and
the last step where the reference reads it. So states are the nodes of a graph in which each has one successor:

    known   state -> node: a row that arrives where another has been goes on as that one's node
    next    node -> the node one step later
    end     node -> the final canvas, where nothing is left to do

A branch is the walk from the node after its own action to an end. Branches of all candidates, rollouts, states and axes
of a prompt share nodes, and so does the reference's own run.

    sample_states        the reference decodes every prompt, and spaced states of its runs are kept
    expand               diagnostics are read at states, and every alternative takes its step there
    find_nodes           each row that comes out finds its node, or is a new one that waits for its step
    launch_step          rows of one continuation take a step together, until no row waits;
    finish_step          the host reads the outcome while the next step runs
    branches, costs      every walk's answer, and who paid for which forward

The result does not depend on batches or on the order of work. `merge=False` runs every branch by itself.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain, pairwise, product
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unmask.adapt import needs_of, without_deviation_notes
from unmask.api import Request
from unmask.base.errors import ContractError, require
from unmask.core import (
    Action,
    Denoiser,
    ModelInput,
    Needs,
    Noise,
    Policy,
    Prediction,
    SamplingParams,
    State,
    Trajectory,
    concat,
    row_key,
)
from unmask.engine import Transition, raise_faults
from unmask.lab.branching.plan import BatchSettings, BranchPlan, Continuation, random_stream
from unmask.lab.branching.readings import COLUMNS, read_diagnostics
from unmask.lab.branching.states import SampledStates, sample_states, states_frame, to_device
from unmask.lab.branching.stepper import CandidateStep, OwnCost, Stepper, after_step, check_plain_step
from unmask.methods import has_own_input

T = TypeVar("T")

TRANSITION = ("revealed", "revealed_tokens", "remasked", "newly_committed")
"""Columns that say what a branch's own action did: canvas positions, and the tokens put on the revealed ones."""
REFERENCE_RUN, RECOMPUTED = "reference run", "recomputed"
"""Rows of `costs` beside those of the axes: forwards of the reference's own run, and those that brought the posterior
of the step before a state back."""
SAVINGS = ("rollouts", "first", "futures")
"""Why forwards were saved: rollouts for which nothing is drawn; the forward that all branches of a state share, and
branches that do the same there; walks that met a known state."""


class BranchProgress(NamedTuple):
    """Progress of a call of `branch`."""

    states: int
    """States expanded so far."""
    branches: int
    """Branches started so far."""
    forwards: int
    """Row-forwards done."""


class BranchFrames(NamedTuple):
    """Results of `branch`. Every frame has a column `request`, the index of the prompt's request."""

    branches: pd.DataFrame
    """A row for each branch: prompt, state, step, masked, axis, candidate, diagnostic, rollout, the tokens of its
    `answer`, the columns of `TRANSITION`, `extra_forwards` and `extra_tokens` of its own step. Ordered by request,
    state, alternative and rollout."""
    readings: pd.DataFrame
    """A row for each diagnostic at each state, as `read_diagnostics` gives it."""
    states: pd.DataFrame
    """A row for each sampled state, as `states_frame` gives it."""
    costs: pd.DataFrame
    """Row-forwards by request and axis: `done`, and those that were saved by reason (`SAVINGS`). Both together are what
    a run of every branch by itself takes."""
    calls: int
    """Forward passes, dummy rows included."""

    def split(self, sizes: Sequence[int]) -> "list[BranchFrames]":
        """Split the frames into consecutive groups of requests. Passes are divided in proportion to row-forwards."""
        ends = np.cumsum(sizes)
        groups = []
        for first, last in zip(ends - sizes, ends, strict=True):
            own = (frame[frame["request"].between(first, last - 1)] for frame in self[:4])
            frames = (frame.assign(request=frame["request"] - first).reset_index(drop=True) for frame in own)
            groups.append(self._replace(**dict(zip(self._fields, frames, strict=False))))
        work = np.cumsum([0, *(group.costs["done"].sum() for group in groups)])
        calls = np.diff(self.calls * work // max(1, work[-1])).tolist()
        return [group._replace(calls=own) for group, own in zip(groups, calls, strict=True)]


def branch(
    denoiser: Denoiser,
    plan: BranchPlan,
    requests: Sequence[Request],
    settings: BatchSettings,
    on_progress: Callable[[BranchProgress], None] = lambda progress: None,
) -> BranchFrames:
    """Sample states of the prompts, branch every alternative from each, and continue every branch to its end."""
    require(bool(requests), "prompts", [], "one or more", "pass a prompt")
    stepper = Stepper(denoiser, SamplingParams(temperature=plan.temperature), settings.rows, settings.live)
    lengths = np.array([request.padded_length(settings.bucket) for request in requests])
    parts: list[list[pd.DataFrame]] = []
    with torch.inference_mode():
        # The length follows from the prompt alone, so the shape of its forwards does not depend on its company.
        for length in np.unique(lengths).tolist():
            numbers = np.flatnonzero(lengths == length)
            alike = [requests[number] for number in numbers.tolist()]
            frames = BucketBranches(plan, stepper, settings, alike, length, on_progress).run()
            parts.append([frame.assign(request=numbers[frame.pop("run").to_numpy(int)]) for frame in frames])
    branches, readings, states, costs = (
        pd.concat(frames).sort_values("request", kind="stable", ignore_index=True)
        for frames in zip(*parts, strict=True)
    )
    return BranchFrames(branches, readings, states, costs, stepper.forward.calls)


class BranchGraph:
    """Nodes with one successor each, as columns of numbers."""

    def __init__(self) -> None:
        self.next = array("q")
        """Successor of every node; -1 while it is unknown, and at an end."""
        self.passes = array("q")
        """Row-forwards of the step from the node to its successor."""
        self.payer = array("q")
        """Number of the branch that had the node's step run; -1 for the reference's own run."""
        self.ends: dict[int, np.ndarray] = {}
        """Final canvases by node."""

    def add(self, payer: int) -> int:
        self.next.append(-1)
        self.passes.append(0)
        self.payer.append(payer)
        return len(self.next) - 1

    def totals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for every node its end, the row-forwards on the way, and how many of them its own payer had run."""
        next_N, passes_N, payer_N = (np.array(column) for column in (self.next, self.passes, self.payer))
        last_N = next_N < 0
        if set(np.flatnonzero(last_N).tolist()) != set(self.ends):
            raise ContractError("a branch has no end; allowed: branches that finish; this is a bug of the engine")
        nodes_N = np.arange(len(next_N))
        next_N = np.where(last_N, nodes_N, next_N)
        end_N, total_N = _follow_walks(next_N, passes_N)
        # The walk is cut where somebody else paid for what follows: at an extra node that costs nothing.
        cut_N = np.append(np.where(payer_N[next_N] == payer_N, next_N, len(nodes_N)), len(nodes_N))
        paid_N = _follow_walks(cut_N, np.append(passes_N, 0))[1][:-1]
        return end_N, total_N, paid_N


def _follow_walks(next_N: np.ndarray, cost_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last node of every walk, and the sum of costs on the way there. A last node is its own successor.

    Every round doubles the stretch that is known, so there are as many as the longest walk has binary digits.
    """
    while True:
        further_N = next_N[next_N]
        if np.array_equal(further_N, next_N):
            return next_N, cost_N
        next_N, cost_N = further_N, cost_N + cost_N[next_N]


class Rows(NamedTuple):
    """A batch of rows that wait for a step; their pasts have the same structure."""

    traj: Trajectory
    node_U: np.ndarray
    run_U: np.ndarray
    """Index of each row's prompt in the bucket."""

    def pick(self, rows_U: np.ndarray) -> "Rows":
        if len(rows_U) == len(self.node_U):
            return self
        return Rows(select_rows(self.traj, rows_U), self.node_U[rows_U], self.run_U[rows_U])


def select_rows(traj: Trajectory, rows_U: np.ndarray) -> Trajectory:
    """Select rows of a trajectory. All rows are returned without a copy, which would take as long as a step."""
    if len(rows_U) == len(traj.rows_B):
        return traj
    return traj.select(torch.from_numpy(rows_U).to(traj.rows_B.device))


class RowPool:
    """Queue of rows that wait for a step of the same continuation, and can share a batch."""

    def __init__(self, after: Continuation):
        self.after = after
        self.size = 0
        self.waiting: deque[Rows] = deque()

    def add(self, rows: Rows, *, next_in_line: bool = False) -> None:
        (self.waiting.appendleft if next_in_line else self.waiting.append)(rows)
        self.size += len(rows.node_U)

    def take(self, most: int, full: int) -> Rows:
        """Take the next batch of at most `most` rows; a multiple of `full` where there are enough."""
        most = min(most, self.size)
        most -= most % full if most >= full else 0
        self.size -= most
        parts: list[Rows] = []
        while most:
            rows = self.waiting.popleft()
            if len(rows.node_U) > most:
                self.waiting.appendleft(rows.pick(np.arange(most, len(rows.node_U))))
                rows = rows.pick(np.arange(most))
            parts.append(rows)
            most -= len(rows.node_U)
        if len(parts) == 1:
            return parts[0]
        trajs, nodes, runs = zip(*parts, strict=True)
        return Rows(concat(trajs), np.concatenate(nodes), np.concatenate(runs))


class StepOutcome(NamedTuple):
    """Flags, canvases and keys of a batch's rows, on the host."""

    flags: dict[str, np.ndarray]
    canvas_BL: np.ndarray
    keys: list[bytes] | None
    """Equal keys of one prompt have equal futures; None where rows are not compared."""


class HostRows:
    """One copy from device to host of everything that the host needs about a batch's rows.

    The copy does not wait: the host launches other work before it calls `read`. Reading flags one by one would make it
    wait for the device as many times.
    """

    def __init__(self, flags: Mapping[str, Tensor], tokens_BL: Tensor, more: Sequence[Tensor] | None, kind: bytes):
        """Start the copy. `more`: what the future depends on besides the canvas; None where rows are not compared."""
        self.names, self.kind, self.keyed = list(flags), kind, more is not None
        self.length = tokens_BL.shape[1]
        # 32 bits hold any token, and the canvas is most of what travels.
        parts = [torch.stack(list(flags.values()), 1), tokens_BL.to(torch.int32), *(more or ())]
        bytes_BN = torch.cat([part.reshape(len(part), -1).contiguous().view(torch.uint8) for part in parts], 1)
        self.event = None
        if bytes_BN.device.type != "cuda":
            self.host = bytes_BN
            return
        # Only pinned memory is filled while the host goes on. The event says when it is; `read` must wait for it.
        self.host = torch.empty(bytes_BN.shape, dtype=torch.uint8, pin_memory=True)
        self.host.copy_(bytes_BN, non_blocking=True)
        self.event = torch.cuda.Event()
        self.event.record(torch.cuda.current_stream(bytes_BN.device))

    def read(self) -> StepOutcome:
        """Wait for the copy to arrive, and unpack it."""
        if self.event is not None:
            self.event.synchronize()
        bytes_BN = self.host.numpy()
        first = len(self.names)
        flags = dict(zip(self.names, bytes_BN[:, :first].astype(bool).T, strict=True))
        content = np.ascontiguousarray(bytes_BN[:, first:])
        canvas_BL = np.ascontiguousarray(content[:, : 4 * self.length]).view(np.int32)
        keys = [self.kind + blake2b(row, digest_size=16).digest() for row in content] if self.keyed else None
        return StepOutcome(flags, canvas_BL, keys)


class LaunchedStep(NamedTuple):
    """A step that the device is computing, whose outcome the host has not read."""

    pool: RowPool
    rows: Rows
    """The rows before the step."""
    step: CandidateStep
    traj: Trajectory
    """The rows after the step."""
    host: HostRows


class Transitions(NamedTuple):
    """Changes that an action made at some states: the columns of `TRANSITION`, row by row."""

    revealed: list[tuple[int, ...]]
    tokens: list[tuple[int, ...]]
    remasked: list[tuple[int, ...]]
    committed: list[tuple[int, ...]]


class BranchGroup(NamedTuple):
    """Branches of one alternative and rollout, one for each of several states."""

    point_U: np.ndarray
    alternative: int
    rollout: int
    node_U: np.ndarray
    """Node of the state after each branch's own action."""
    transitions: Transitions
    costs: Sequence[OwnCost]
    ran: bool
    """Whether their own passes were run for them; else other branches of the states have paid for them."""


class BucketBranches:
    """The branches of all prompts whose canvases are padded to one length."""

    def __init__(
        self,
        plan: BranchPlan,
        stepper: Stepper,
        settings: BatchSettings,
        requests: Sequence[Request],
        length: int,
        on_progress: Callable[[BranchProgress], None],
    ):
        self.plan, self.stepper, self.settings = plan, stepper, settings
        self.requests, self.on_progress = requests, on_progress
        self.runs, self.batches = sample_states(stepper, plan, requests, length)
        self.states = states_frame(self.runs, self.batches)
        # A point is a sampled state: a row of `states`. Batches hold its trajectory in another order.
        self.run_P, self.step_P = (self.states[name].to_numpy() for name in ("run", "step"))
        first_point = np.searchsorted(self.run_P, np.arange(len(requests)))
        self.points = [first_point[batch.run_S] + batch.index_S for batch in self.batches]

        self.tried: list[tuple[Policy, bool]] = []
        """Each policy that acts once, and whether it is a whole method: the reference is a candidate of every axis."""
        self.tried_by = [index_of((one.policy, one.one_step), self.tried) for one in plan.alternatives]
        """Index into `tried` of every alternative."""
        policies = [policy for policy, _ in self.tried]
        needs = needs_of([policy for policy, one_step in self.tried if not (one_step and has_own_input(policy))])
        self.needs = replace(needs, shadows=False) if has_own_input(plan.reference) else needs
        """Of the first forward at a state: it serves every alternative that reads the canvas, and is what a candidate's
        step is recorded to have seen."""
        readers = [policy.needs for policy in policies if policy.needs.divergence or policy.needs.posterior]
        # Whoever reads a masked-again position of the step before must have asked for revealed ones there.
        self.past_needs = replace(needs_of(policies), shadows=False, revealed=any(needs.revealed for needs in readers))
        self.continuations = {axis: plan.continuation(axis) for axis in plan.candidates}
        if any(bool(run.states.revisable_BL.any()) for run in self.runs):
            self.continuations = {axis: replace(after, settled=None) for axis, after in self.continuations.items()}

        self.graph = BranchGraph()
        self.known: dict[bytes, int] = {}
        self.pools: dict[object, RowPool] = {}
        self.policies: list[Policy] = []
        """Continuations, numbered: policies may not be hashable."""
        self.groups: list[BranchGroup] = []
        self.readings: list[pd.DataFrame] = []
        self.recomputed_R = np.zeros(len(requests), int)
        self.begun_states = self.begun_branches = self.forwards = 0
        if settings.merge and plan.reference.past_steps == 0 and not plan.draws(plan.reference):
            self._add_reference_runs()

    def run(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Run all branches; return frames of branches, readings, states and costs with the prompt's index as `run`."""
        rows = self.settings.rows
        per_state = len(self.plan.alternatives) * self.plan.rollouts
        # As many states at once as the limit on waiting branches allows, in full forwards.
        most = max(1, min(self.stepper.live, self.settings.waiting // per_state))
        chunks = self._chunks(most - most % rows if most > rows else most)
        launched: LaunchedStep | None = None
        while True:
            pool = max(self.pools.values(), key=lambda pool: pool.size, default=None)
            if (pool is None or pool.size < self.stepper.live) and (chunk := next(chunks, None)) is not None:
                self.expand(*chunk)
            elif pool is not None and pool.size >= (rows if launched else 1):
                # The next step is launched before the host reads the flags of the last one, so that the device is busy
                # while the host sorts rows. Of many rows half are taken, so that the other half can go next.
                half = pool.size // 2 if launched is None and pool.size >= 2 * rows else pool.size
                following = self.launch_step(pool, min(half, self.stepper.live))
                if launched:
                    self.finish_step(launched)
                launched = following
            elif launched:
                # Rows that come back may fill a forward.
                self.finish_step(launched)
                launched = None
            else:
                break
            self.on_progress(BranchProgress(self.begun_states, self.begun_branches, self.forwards))
        branches = self.branch_frame()
        return self._drop_internal_columns(branches), self.reading_frame(), self.states, self.cost_frame(branches)

    def _chunks(self, most: int) -> Iterator[tuple[SampledStates, np.ndarray, np.ndarray]]:
        for batch, points in zip(self.batches, self.points, strict=True):
            for first in range(0, len(points), most):
                rows = np.arange(first, min(first + most, len(points)))
                yield batch, rows, points[rows]

    # The alternatives' own steps

    def expand(self, batch: SampledStates, rows_U: np.ndarray, point_U: np.ndarray) -> None:
        """Read the diagnostics at some states, and take the step of every alternative and rollout there."""
        self.begun_states += len(point_U)
        device = self.stepper.device
        start = to_device(select_rows(batch.traj, rows_U), device)
        start = replace(start, rows_B=torch.arange(len(point_U), device=device))
        for policy, one_step in self.tried:
            policy.check(start.state)
            if not (one_step or self.plan.whole_methods):
                check_plain_step(policy, start)
        # Only diagnostics read the attention of the step before.
        attention = self.past_needs.attention and bool(self.plan.diagnostics)
        start = self.stepper.recompute_last_step(start, replace(self.past_needs, attention=attention))
        if start.previous_posterior is not None:
            np.add.at(self.recomputed_R, self.run_P[point_U], 1)
        if self.settings.merge:
            self._expand_merged(point_U, start)
        else:
            self._expand_one_by_one(point_U, start)

    def _expand_merged(self, point_U: np.ndarray, start: Trajectory) -> None:
        """Expand states with one forward for all their branches; if nothing is drawn, one rollout stands for all."""
        plan = self.plan
        inputs = ModelInput.of(start.state, self.needs)
        output = self.stepper.forward(inputs, self.needs)
        self.forwards += len(point_U)
        seen: Trajectory | None = None
        steps: dict[int, CandidateStep] = {}
        transitions: dict[int, Transitions] = {}
        """By index into `tried`; those for which nothing is drawn stay from rollout to rollout."""
        drawless: dict[int, list[BranchGroup]] = {}
        """Alternatives for which nothing is drawn, neither in their step nor after it: their branches."""
        for rollout in range(plan.rollouts):
            noise = self._rollout_noise(point_U, rollout)
            if seen is None or plan.temperature > 0:
                seen = self.stepper.add_prediction(replace(start, noise=noise), output, inputs, self.needs)
            seen = replace(seen, noise=noise)
            fresh = set()
            for at, (policy, one_step) in enumerate(self.tried):
                if at not in steps or plan.draws(policy):
                    steps[at] = self.stepper.try_policy(policy, seen, one_step=one_step)
                    transitions[at] = transitions_of(seen.state, steps[at].change)
                    fresh.add(at)
            if rollout == 0:
                self._read_diagnostics(point_U, seen, [steps[at] for at in self.tried_by])
            for number, at in enumerate(self.tried_by):
                if number in drawless:
                    # Neither run nor paid for again.
                    again = [group._replace(rollout=rollout, ran=False) for group in drawless[number]]
                    self.groups += again
                    self.begun_branches += len(point_U)
                    continue
                before = len(self.groups)
                self.start_branches(point_U, number, rollout, seen, steps[at], transitions[at], at in fresh)
                fresh.discard(at)
                after = self.continuations[plan.alternatives[number].axis].policy
                if not (plan.draws(self.tried[at][0]) or plan.draws(after)):
                    drawless[number] = self.groups[before:]

    def _expand_one_by_one(self, point_U: np.ndarray, start: Trajectory) -> None:
        """Expand states with a forward for every branch."""
        alternatives = self.plan.alternatives
        if self.plan.diagnostics:
            seen = self._predict(start, point_U, 0)
            steps = [self.stepper.try_policy(one.policy, seen, one_step=one.one_step) for one in alternatives]
            self._read_diagnostics(point_U, seen, steps)
        for number, rollout in product(range(len(alternatives)), range(self.plan.rollouts)):
            seen, one = self._predict(start, point_U, rollout), alternatives[number]
            step = self.stepper.try_policy(one.policy, seen, one_step=one.one_step)
            self.forwards += len(point_U)
            self.start_branches(point_U, number, rollout, seen, step, transitions_of(seen.state, step.change), True)

    def _predict(self, start: Trajectory, point_U: np.ndarray, rollout: int) -> Trajectory:
        """Run a forward for some states, with the random numbers of a rollout."""
        traj = replace(start, noise=self._rollout_noise(point_U, rollout))
        inputs = ModelInput.of(traj.state, self.needs)
        return self.stepper.add_prediction(traj, self.stepper.forward(inputs, self.needs), inputs, self.needs)

    def _rollout_noise(self, point_U: np.ndarray, rollout: int) -> Noise:
        """Return a rollout's random numbers: a function of prompt, step and rollout, the same for every candidate."""
        steps, prompts = self.step_P[point_U].tolist(), [self.requests[run] for run in self.run_P[point_U]]
        pairs = zip(prompts, steps, strict=True)
        keys = [row_key(self.plan.seed, prompt.key, random_stream(step, rollout)) for prompt, step in pairs]
        return Noise.of(keys, self.stepper.device)

    def _read_diagnostics(self, point_U: np.ndarray, seen: Trajectory, steps: Sequence[CandidateStep]) -> None:
        if not self.plan.diagnostics:
            return
        frame = read_diagnostics(self.plan, seen, steps)
        self.readings.append(frame.assign(point=point_U[frame.pop("row").to_numpy(int)]))

    def start_branches(
        self,
        point_U: np.ndarray,
        number: int,
        rollout: int,
        seen: Trajectory,
        step: CandidateStep,
        transitions: Transitions,
        ran: bool,
    ) -> None:
        """Start branches: rows after an alternative's action, which continue under the policy of its axis."""
        alternative = self.plan.alternatives[number]
        if ran:
            self.forwards += sum(step.passes)
        # Where the reference reads an input of its own, its step has seen other things than a candidate's.
        own_name = has_own_input(alternative.policy) and not alternative.one_step
        name = alternative.policy.name if own_name else "candidate"
        step = step._replace(action=plain_action(step.action, step.change))
        after = self.continuations[alternative.axis]
        parts = [(after, np.arange(len(point_U)))]
        if after.settled is not None and self.settings.merge:
            # Rows with nothing to revise go on under the settled policy at once, where they meet more known states.
            settled_U = (~step.change.state.revisable_BL.any(-1)).cpu().numpy()
            parts = [(after, np.flatnonzero(~settled_U)), (Continuation(after.settled), np.flatnonzero(settled_U))]
        for continuation, rows_U in parts:
            if not len(rows_U):
                continue
            policy = continuation.policy
            past = (
                step._replace(prediction=trim_prediction(step.prediction, policy.needs)) if policy.past_steps else step
            )
            traj = select_rows(after_step(seen, name, past, policy.past_steps), rows_U)
            own_U = point_U[rows_U]
            payer_U = np.arange(self.begun_branches, self.begun_branches + len(rows_U))
            node_U = self.find_nodes(continuation, traj, self.run_P[own_U], payer_U, own_U)
            did = Transitions(*([column[row] for row in rows_U] for column in transitions))
            costs = [step.costs[row] for row in rows_U]
            self.groups.append(BranchGroup(own_U, number, rollout, node_U, did, costs, ran))
            self.begun_branches += len(rows_U)

    # Walks

    def find_nodes(
        self,
        after: Continuation,
        traj: Trajectory,
        run_U: np.ndarray,
        payer_U: np.ndarray,
        point_U: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the node of each row, and queue the rows whose node is new and not final.

        `point_U` are the sampled states that the rows have just left; None for rows that are further on.
        """
        node_U, new_U = self._look_up_nodes(
            np.arange(len(run_U)), run_U, payer_U, self._copy_to_host(after, traj, point_U).read()
        )
        if len(new_U):
            self._queue_of(after, traj).add(Rows(select_rows(traj, new_U), node_U[new_U], run_U[new_U]))
        return node_U

    def _look_up_nodes(
        self, rows_U: np.ndarray, run_B: np.ndarray, payer_B: np.ndarray, outcome: StepOutcome
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the node of each of these rows, and the indices of those whose node is new and not final."""
        graph, nodes, new = self.graph, [], []
        for at, row in enumerate(rows_U.tolist()):
            # Prompts have no states in common: the same canvas is that of another prompt there.
            key = b"%d/" % run_B[row] + outcome.keys[row] if outcome.keys else None
            node = self.known.get(key) if key else None
            if node is None:
                node = graph.add(int(payer_B[row]))
                if key:
                    self.known[key] = node
                if outcome.flags["done"][row]:
                    graph.ends[node] = outcome.canvas_BL[row].copy()
                else:
                    new.append(at)
            nodes.append(node)
        return np.array(nodes, int), np.array(new, int)

    def launch_step(self, pool: RowPool, most: int) -> LaunchedStep:
        """Start one step of a batch on the device, and the copy of its outcome to the host."""
        rows = pool.take(most, self.settings.rows)
        after = pool.after
        step = self.stepper.step(rows.traj, after.policy)
        self.forwards += sum(step.passes)
        traj = after_step(rows.traj, after.policy.name, step, after.policy.past_steps)
        flags = {"faulty": step.change.fault_B != 0}
        if self._axes_settled_under(after.policy):
            flags["left"] = (step.change.revealed_BL & ~step.change.state.committed_BL).any(-1)
        if after.settled is not None and self.settings.merge:
            flags["settled"] = ~traj.state.revisable_BL.any(-1)
        return LaunchedStep(pool, rows, step, traj, self._copy_to_host(after, traj, None, flags))

    def finish_step(self, launched: LaunchedStep) -> None:
        """Read the outcome of a step, and sort its rows: ended, settled, arrived at a known state, or waiting again."""
        pool, rows, step, traj, host = launched
        graph, after, outcome = self.graph, pool.after, host.read()
        flags = outcome.flags
        if flags["faulty"].any():
            raise_faults(step.change.fault_B, rows.traj.state.step_B, rows.traj.rows_B)
        if "left" in flags and flags["left"].any():
            raise ContractError(
                f"the reference {after.policy.name} left a position revisable after a branch, but not on its own way; "
                f"allowed: always or never; study {', '.join(self._axes_settled_under(after.policy))} around a "
                "reference that commits all it reveals"
            )
        payer_B = np.array([graph.payer[node] for node in rows.node_U.tolist()])
        later_B = np.empty(len(payer_B), int)
        settled_B = flags["settled"] & ~flags["done"] if "settled" in flags else np.zeros(len(payer_B), bool)
        if len(settled_U := np.flatnonzero(settled_B)):
            assert after.settled is not None
            left = replace(select_rows(traj, settled_U), steps=())
            later_B[settled_U] = self.find_nodes(
                Continuation(after.settled), left, rows.run_U[settled_U], payer_B[settled_U]
            )
        other_U = np.flatnonzero(~settled_B)
        later_B[other_U], new_U = self._look_up_nodes(other_U, rows.run_U, payer_B, outcome)
        for node, later, passes in zip(rows.node_U.tolist(), later_B.tolist(), step.passes, strict=True):
            graph.next[node], graph.passes[node] = later, passes
        if len(new_U):
            going_on_U = other_U[new_U]
            going_on = Rows(select_rows(traj, going_on_U), later_B[going_on_U], rows.run_U[going_on_U])
            # After its own first step the notes are the continuation's, whatever the candidate's were.
            self._queue_of(after, traj).add(going_on, next_in_line=True)

    def _copy_to_host(
        self,
        after: Continuation,
        traj: Trajectory,
        point_U: np.ndarray | None,
        flags: Mapping[str, Tensor] | None = None,
    ) -> HostRows:
        """Start copying flags, canvases and keys of rows. With a memory, only rows that just left a state have keys."""
        policy, state = after.policy, traj.state
        flags = {"done": policy.done(traj), **(flags or {})}
        if not self.settings.merge or (policy.past_steps and point_U is None):
            return HostRows(flags, state.tokens_BL, None, b"")
        more = [state.committed_BL, state.step_B]
        if self.plan.draws(policy):
            more.append(traj.noise.key_B)
        if policy.past_steps:
            last = traj.steps[-1]
            more += [last.revealed_BL, last.remasked_BL, last.confidence_BL]
            more += [note for _, note in sorted(last.action.notes.items())]
            # The rest of the past is that of the state which the row has left.
            more.append(torch.from_numpy(point_U).to(state.step_B.device))
        names = [step.policy for step in traj.steps]
        kind = (self._policy_index(policy), after.settled is not None, sorted(traj.notes), names)
        return HostRows(flags, state.tokens_BL, more, repr(kind).encode())

    def _queue_of(self, after: Continuation, traj: Trajectory) -> RowPool:
        """Return the queue of rows with this continuation and this structure of the past."""
        notes = tuple((name, tuple(x.shape[1:]), x.dtype) for name, x in sorted(traj.notes.items()))
        # A method's first step may lack parts that the reference's own have, and may have read other slots.
        past = tuple(
            (
                step.action.remask_BL is None,
                step.action.tokens_BL is None,
                step.prediction.wanted_BN.shape[1],
                step.prediction.given_BN is None,
            )
            for step in traj.steps
        )
        key = (self._policy_index(after.policy), after.settled is not None, notes, past)
        return self.pools.setdefault(key, RowPool(after))

    def _policy_index(self, policy: Policy) -> int:
        return index_of(policy, self.policies)

    def _axes_settled_under(self, policy: Policy) -> list[str]:
        """List the axes whose branches continue under a policy once nothing is revisable."""
        return [axis for axis, after in self.continuations.items() if policy == after.settled]

    def _add_reference_runs(self) -> None:
        """Add the reference's own runs to the graph, so that branches that meet them end as they did."""
        graph, after = self.graph, Continuation(self.plan.reference)
        for number, run in enumerate(self.runs):
            traj = Trajectory.start(run.states, Noise(torch.zeros(run.steps, dtype=torch.long)))
            keys = self._copy_to_host(after, traj, None).read().keys
            assert keys is not None
            nodes = [graph.add(-1) for _ in range(run.steps + 1)]
            for (node, later), key, passes in zip(pairwise(nodes), keys, run.passes, strict=True):
                self.known[b"%d/" % number + key] = node
                graph.next[node], graph.passes[node] = later, passes
            graph.ends[nodes[-1]] = run.end_L

    # Frames

    def branch_frame(self) -> pd.DataFrame:
        """Make a frame of all branches with answers and costs, ordered by state, alternative and rollout."""
        groups, alternatives = self.groups, self.plan.alternatives
        size = [len(group.point_U) for group in groups]
        frame = pd.DataFrame(
            {
                "point": np.concatenate([group.point_U for group in groups]),
                "alternative": np.repeat([group.alternative for group in groups], size),
                "rollout": np.repeat([group.rollout for group in groups], size),
                "node": np.concatenate([group.node_U for group in groups]),
                "ran": np.repeat([group.ran for group in groups], size),
            }
        )
        for at, name in enumerate(TRANSITION):
            frame[name] = list(chain.from_iterable(group.transitions[at] for group in groups))
        costs = [cost for group in groups for cost in group.costs]
        frame[["extra_forwards", "extra_tokens", "own_passes"]] = np.array(costs).reshape(-1, 3)
        end_N, total_N, paid_N = self.graph.totals()
        payer_N, node = np.array(self.graph.payer), frame["node"].to_numpy()
        frame["passes"] = total_N[node]
        # A branch paid for its walk as far as it had the steps run; where it met a known state at once, for nothing.
        frame["paid"] = np.where(payer_N[node] == np.arange(len(frame)), paid_N[node], 0)
        frame["end"] = end_N[node]
        frame = frame.sort_values(["point", "alternative", "rollout"], kind="stable", ignore_index=True)

        point, number = frame["point"].to_numpy(), frame["alternative"].to_numpy()
        about = self.states.loc[point, ["run", "prompt", "state", "step", "masked"]].reset_index(drop=True)
        for name in ("axis", "candidate", "diagnostic"):
            about[name] = np.array([getattr(one, name) for one in alternatives], object)[number]
        answers: dict[int, tuple[int, ...]] = {}
        """By end: a node belongs to one prompt."""
        for run, end in zip(about["run"].tolist(), frame["end"].tolist(), strict=True):
            if end not in answers:
                answers[end] = tuple(self.graph.ends[end][slice(*self.requests[run].answer)].tolist())
        frame["answer"] = [answers[end] for end in frame["end"].tolist()]
        return about.join(frame)

    def _drop_internal_columns(self, branches: pd.DataFrame) -> pd.DataFrame:
        own = ["point", "alternative", "node", "ran", "own_passes", "passes", "paid", "end"]
        return branches.drop(columns=own)

    def reading_frame(self) -> pd.DataFrame:
        """Make a frame of all readings, ordered by state, axis and diagnostic."""
        if not self.readings:
            return pd.DataFrame(columns=["run", "prompt", "state", *COLUMNS[1:]])
        frame = pd.concat(self.readings, ignore_index=True)
        order = frame["diagnostic"].map({name: at for at, name in enumerate(self.plan.proposals)})
        frame = frame.assign(order=order).sort_values(["point", "order"], ignore_index=True)
        about = self.states.loc[frame["point"].to_numpy(int), ["run", "prompt", "state"]].reset_index(drop=True)
        return about.join(frame.drop(columns=["point", "order"]))

    def cost_frame(self, branches: pd.DataFrame) -> pd.DataFrame:
        """Make a frame of row-forwards by prompt and axis: those that were run, and those saved, by reason."""
        b = branches
        state_forward = ~b.duplicated("point") if self.settings.merge else 1
        done = b["paid"] + b["own_passes"].where(b["ran"], 0) + state_forward
        costs = b[["run", "axis"]].assign(branches=1, done=done, **dict.fromkeys(SAVINGS, 0))
        if self.settings.merge:
            # The walk of a later branch of the state is new, or known from the same alternative's other rollouts, or
            # known from another alternative that did the same.
            new = ~b.duplicated(["point", "node"])
            same_alternative = b.duplicated(["point", "node", "alternative"])
            saved = 1 + b["passes"] - b["paid"]
            own_again, later = b["own_passes"].where(~b["ran"], 0), b["rollout"] > 0
            costs["rollouts"] = own_again * later + saved * (~new & same_alternative)
            costs["first"] = own_again * ~later + saved * (~new & ~same_alternative) + (new & b.duplicated("point"))
            costs["futures"] = (saved - 1) * new
        costs = costs.groupby(["run", "axis"], sort=False, as_index=False).sum()
        beside = []
        for axis, done_R in (
            (REFERENCE_RUN, [sum(run.passes) for run in self.runs]),
            (RECOMPUTED, self.recomputed_R),
        ):
            zeros = dict.fromkeys(("branches", *SAVINGS), 0)
            beside.append(pd.DataFrame({"run": range(len(self.runs)), "axis": axis, "done": done_R, **zeros}))
        return pd.concat([costs, *beside], ignore_index=True)


def index_of(one: T, known: list[T]) -> int:
    """Return the index of a value in a list; a new one is appended. Policies may not be hashable: a dict would fail."""
    if one not in known:
        known.append(one)
    return known.index(one)


def transitions_of(before: State, change: Transition) -> Transitions:
    """Read the changes of a transition from the device, in one copy for all rows."""
    final_BL = change.state.committed_BL & ~before.committed_BL
    parts = (change.revealed_BL, change.remasked_BL, final_BL, change.state.tokens_BL)
    *flags, tokens_BL = torch.stack([part.to(torch.int32) for part in parts]).cpu().numpy()
    # All rows at once: the positions, and from where to where each row's own stand among them.
    positions = [np.nonzero(flags_BL) for flags_BL in flags]
    ends = [np.searchsorted(row_U, np.arange(len(tokens_BL) + 1)).tolist() for row_U, _ in positions]
    columns = [at_U.tolist() for _, at_U in positions]
    columns.insert(1, tokens_BL[positions[0]].tolist())
    ends.insert(1, ends[0])
    pairs = zip(columns, ends, strict=True)
    return Transitions(*([tuple(own[first:last]) for first, last in pairwise(bounds)] for own, bounds in pairs))


def plain_action(action: Action, change: Transition) -> Action:
    """Replace an action by its effect, so that two actions with one effect leave the same past."""
    return Action(
        action.alpha_BJ.new_zeros(action.alpha_BJ.shape),
        change.revealed_BL,
        change.revealed_BL.any(-1).to(action.kappa_B.dtype),
        action.commit_BL & change.revealed_BL,
        remask_BL=change.remasked_BL,
        # Without the record of a gate, which no continuation reads.
        notes=without_deviation_notes(action.notes),
    )


def trim_prediction(prediction: Prediction, needs: Needs) -> Prediction:
    """Drop the parts of a prediction that the continuation does not read, so that rows of all alternatives batch."""
    k, draws = max(needs.top_k, 2), needs.draws
    return replace(
        prediction,
        clean=prediction.clean.keep_top(k),
        filtered=prediction.filtered.keep_top(k),
        token_BND=prediction.token_BND[..., :draws],
        confidence_BND=prediction.confidence_BND[..., :draws],
        drift_BN=prediction.drift_BN if needs.divergence else None,
        displacement_BN=prediction.displacement_BN if needs.divergence else None,
        attention_BNN=prediction.attention_BNN if needs.attention else None,
        visible_BN=prediction.visible_BN if needs.attention else None,
        hidden_BNH=None,
        posterior=prediction.posterior if needs.divergence or needs.posterior else None,
    )
