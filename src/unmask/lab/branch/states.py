"""States along the reference trajectory: where branches start from.

A state is the trajectory of one row as it stood before a step, with as much of its past as anyone reads. What a
recording leaves out (the previous posterior, for the stability rule) is a function of the previous canvas, which is
kept; `Stepper.recall` brings it back with one forward.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from unmask.api import Request, start_trajectory
from unmask.base.errors import require
from unmask.core import ALL, Needs, Policy, State, Trajectory, concat, map_tensors
from unmask.engine import raise_faults
from unmask.lab.branch.stepper import Stepper, moved_on

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class StateBatch:
    """States that were met at one step by several rows: they stay together, for a tensor per row costs more than its
    numbers."""

    traj: Trajectory
    """On the CPU, on the bucket's canvas: states, noise keys, and the steps of the past that are kept."""

    @cached_property
    def steps(self) -> list[int]:
        return self.traj.state.step_B.tolist()

    @cached_property
    def masked(self) -> list[int]:
        """m_t, row by row."""
        return self.traj.state.masked_BL.sum(-1).tolist()

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """What the steps of the past read: batches that agree can be joined."""
        return tuple(step.prediction.wanted_BN.shape[1] for step in self.traj.steps)


@dataclass(frozen=True)
class Sampled:
    """A state of the reference trajectory of one prompt."""

    prompt: str
    index: int
    """0 to n - 1 along the trajectory."""
    batch: StateBatch
    row: int

    @property
    def traj(self) -> Trajectory:
        """The state by itself, as row 0."""
        return _first(self.batch.traj.select(torch.tensor([self.row])))

    @property
    def step(self) -> int:
        return self.batch.steps[self.row]

    @property
    def masked(self) -> int:
        """m_t."""
        return self.batch.masked[self.row]


def joined(states: Sequence[Sampled], device: torch.device) -> Trajectory:
    """Some states as the rows of one batch, in their order, on a device."""
    places: dict[StateBatch, list[int]] = {}
    for place, one in enumerate(states):
        places.setdefault(one.batch, []).append(place)
    parts = [batch.traj.select(torch.tensor([states[place].row for place in own])) for batch, own in places.items()]
    whole = moved(parts[0] if len(parts) == 1 else concat(parts), device)
    order = [place for own in places.values() for place in own]
    return whole if order == sorted(order) else whole.select(torch.tensor(order, device=device).argsort())


@dataclass(frozen=True)
class ReferenceRun:
    """The reference's way through one prompt: its states, and everything branches may run into."""

    request: Request
    sampled: tuple[Sampled, ...]
    states: State
    """Before every step, one row each, on the bucket's canvas; on the CPU."""
    end_L: np.ndarray
    """The final canvas."""
    passes: tuple[int, ...]
    """Row-forwards of every step: one, unless the reference looks ahead."""

    @property
    def steps(self) -> int:
        """How many the reference took."""
        return self.states.batch


def spaced(steps: int, n: int) -> list[int]:
    """Step indices floor(i T / n), no duplicates."""
    require(steps >= 1, "steps", steps, "1 or more", "decode at least one step")
    require(n >= 1, "states per prompt", n, "1 or more", "sample at least one state")
    return sorted({i * steps // n for i in range(n)})


def sample(
    stepper: Stepper,
    reference: Policy,
    requests: Sequence[Request],
    *,
    states: int,
    seed: int,
    slots: int,
    needs: Needs | None = None,
    memory: int = 1,
) -> Iterator[ReferenceRun]:
    """Decode every prompt with the reference and keep `states` spaced states of each, in the order given.

    All canvases are padded to `slots`. A state keeps `memory` steps of the past (`ALL` for every one), or what the
    reference's asks for, with what `needs` say of them.
    """
    keep = ALL if ALL in (reference.past_steps, memory) else max(reference.past_steps, memory)
    for at in range(0, len(requests), stepper.live):
        part = requests[at : at + stepper.live]
        traj = start_trajectory(stepper.denoiser, part, seed, slots)
        reference.check(traj.state)
        history, ends = _decoded(stepper, reference, traj, needs or reference.needs, keep)
        yield from _paths(part, history, ends, states)


class Before(NamedTuple):
    """Rows before a step of the reference's, and the passes that the step took for each."""

    traj: Trajectory
    passes: tuple[int, ...]


def _decoded(
    stepper: Stepper, reference: Policy, traj: Trajectory, needs: Needs, keep: int
) -> tuple[list[Before], dict[int, np.ndarray]]:
    """What the rows were before every step, and the canvas that each ended with."""
    history: list[Before] = []
    ends: dict[int, np.ndarray] = {}
    fault_B, before = torch.zeros_like(traj.rows_B), traj
    while True:
        done_B = reference.done(traj)
        faulty, done = torch.stack((fault_B != 0, done_B)).tolist()
        if any(faulty):
            raise_faults(fault_B, before.state.step_B, before.rows_B)
        if any(done):
            end_UL = traj.state.tokens_BL[done_B].cpu().numpy()
            ends |= dict(zip(traj.rows_B[done_B].tolist(), end_UL, strict=True))
            traj = traj.select((~done_B).nonzero().flatten())
        if all(done):
            return history, ends
        before, step = traj, stepper.step(traj, reference, needs)
        history.append(Before(_light(traj), step.passes))
        traj, fault_B = moved_on(traj, reference.name, step, keep), step.change.fault_B


def _paths(
    requests: Sequence[Request], history: Sequence[Before], ends: Mapping[int, np.ndarray], states: int
) -> Iterator[ReferenceRun]:
    """Row by row, what the batch went through step by step; batches come to the host whole, not tensor by row."""
    places: list[list[tuple[int, int]]] = [[] for _ in requests]
    for at, (traj, _) in enumerate(history):
        for row, prompt in enumerate(traj.rows_B.tolist()):
            places[prompt].append((at, row))
    chosen = [[own[step] for step in spaced(len(own), states)] for own in places]
    sampled: dict[tuple[int, int], tuple[StateBatch, int]] = {}
    for at in sorted({at for own in chosen for at, _ in own}):
        rows = [row for own in chosen for step, row in own if step == at]
        at_U = torch.tensor(rows, device=history[at].traj.rows_B.device)
        batch = StateBatch(moved(history[at].traj.select(at_U), torch.device("cpu")))
        sampled |= {(at, row): (batch, i) for i, row in enumerate(rows)}
    before = [0, *accumulate(len(one.passes) for one in history)]
    whole = moved(concat([one.traj.state for one in history]), torch.device("cpu"))
    for prompt, request in enumerate(requests):
        yield ReferenceRun(
            request=request,
            sampled=tuple(Sampled(request.id, i, *sampled[place]) for i, place in enumerate(chosen[prompt])),
            states=whole.select(torch.tensor([before[at] + row for at, row in places[prompt]])),
            end_L=ends[prompt],
            passes=tuple(history[at].passes[row] for at, row in places[prompt]),
        )


def _light(traj: Trajectory) -> Trajectory:
    """As it goes to disk: without heavy parts."""
    return replace(traj, prediction=None, steps=tuple(replace(s, prediction=s.prediction.light) for s in traj.steps))


def _first(traj: Trajectory) -> Trajectory:
    """One row by itself, as row 0."""
    zero_B = torch.zeros(1, dtype=torch.long)
    return replace(traj, rows_B=zero_B, steps=tuple(replace(step, rows_B=zero_B) for step in traj.steps))


def moved(value: T, device: torch.device) -> T:
    """The same value with every tensor on the device."""
    return map_tensors(value, lambda tensor: tensor.to(device))
