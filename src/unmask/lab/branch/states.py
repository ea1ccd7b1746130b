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

from unmask.core import ALL, Needs, Policy, State, Trajectory
from unmask.core.rows import concat, mapped
from unmask.errors import Unfinished, require
from unmask.lab.branch.stepper import Stepper, moved_on
from unmask.request import Request, begin
from unmask.runner import step_limit

T = TypeVar("T")


@dataclass(frozen=True)
class Sampled:
    """A state of the reference trajectory of one prompt."""

    prompt: str
    index: int
    """0 to n - 1 along the trajectory."""
    traj: Trajectory
    """One row on the CPU, on its bucket's canvas: state, noise key, and the steps of the past that are kept."""

    @cached_property
    def step(self) -> int:
        return int(self.traj.state.step_B[0])

    @cached_property
    def masked(self) -> int:
        """m_t."""
        return int(self.traj.state.masked_BL.sum())


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
    keep = ALL if ALL in (reference.memory, memory) else max(reference.memory, memory)
    for at in range(0, len(requests), stepper.live):
        part = requests[at : at + stepper.live]
        traj = begin(stepper.denoiser, part, seed, slots)
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
    for _ in range(step_limit(traj.state)):
        done_B = reference.done(traj)
        for row in done_B.nonzero().flatten().tolist():
            ends[int(traj.rows_B[row])] = traj.state.tokens_BL[row].cpu().numpy()
        traj = traj.select((~done_B).nonzero().flatten())
        if traj.state.batch == 0:
            return history, ends
        step = stepper.step(traj, reference, needs)
        history.append(Before(_light(traj), step.passes))
        traj = moved_on(traj, reference.name, step, keep)
    raise Unfinished(
        f"the reference {reference.name} did not finish row {int(traj.rows_B[0])}; look at what it reveals"
    )


def _paths(
    requests: Sequence[Request], history: Sequence[Before], ends: Mapping[int, np.ndarray], states: int
) -> Iterator[ReferenceRun]:
    """Row by row, what the batch went through step by step; batches come to the host whole, not tensor by row."""
    places: list[list[tuple[int, int]]] = [[] for _ in requests]
    for at, (traj, _) in enumerate(history):
        for row, prompt in enumerate(traj.rows_B.tolist()):
            places[prompt].append((at, row))
    chosen = [[own[step] for step in spaced(len(own), states)] for own in places]
    sampled: dict[tuple[int, int], Trajectory] = {}
    for at in sorted({at for own in chosen for at, _ in own}):
        rows = [row for own in chosen for step, row in own if step == at]
        at_U = torch.tensor(rows, device=history[at].traj.rows_B.device)
        part = moved(history[at].traj.select(at_U), torch.device("cpu"))
        sampled |= {(at, row): _first(part.select(torch.tensor([i]))) for i, row in enumerate(rows)}
    before = [0, *accumulate(len(one.passes) for one in history)]
    whole = moved(concat([one.traj.state for one in history]), torch.device("cpu"))
    for prompt, request in enumerate(requests):
        yield ReferenceRun(
            request=request,
            sampled=tuple(Sampled(request.id, i, sampled[place]) for i, place in enumerate(chosen[prompt])),
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
    return mapped(value, lambda tensor: tensor.to(device))
