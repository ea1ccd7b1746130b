"""States along the reference trajectory: where branches start from.

A state is the trajectory of one row as it stood before a step, with as much of its past as anyone reads. What a
recording leaves out (the previous posterior, for the stability rule) is a function of the previous canvas, which is
kept; `Stepper.recall` brings it back with one forward.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

import numpy as np
import torch

from unmask.core import (
    ALL,
    NO_LOOK_AHEAD,
    Action,
    Denoiser,
    DenoiserAround,
    Logits,
    Needs,
    NoNoise,
    Policy,
    Proposal,
    State,
    Trajectory,
    View,
)
from unmask.core.rows import concat, mapped, select
from unmask.decode import Runner, advance, record_of, step_limit
from unmask.denoisers.network import pad_view
from unmask.errors import Unfinished, require
from unmask.request import Request, begin
from unmask.transition import Transition, raise_faults

T = TypeVar("T")
SLOTS = 32
"""Views are padded to a multiple of this, as networks pad anyway."""


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

    @property
    def steps(self) -> int:
        """How many the reference took."""
        return self.states.batch


def spaced(steps: int, n: int) -> list[int]:
    """Step indices floor(i T / n), no duplicates."""
    require(steps >= 1, "steps", steps, "1 or more", "decode at least one step")
    require(n >= 1, "states per prompt", n, "1 or more", "sample at least one state")
    return sorted({i * steps // n for i in range(n)})


class FixedRows(DenoiserAround):
    """A denoiser at one forward shape: `rows` canvases of one length, the last ones filled up with dummies.

    At one shape a row's bits do not depend on its neighbours, so neither do tables on the order of work. A batch of any
    size goes through as many forwards as it takes. Views with slots of their own have one shape more.
    """

    def __init__(self, denoiser: Denoiser, rows: int):
        require(rows >= 1, "rows", rows, "1 or more", "the batch needs a row")
        self.denoiser, self.rows = denoiser, rows
        self.calls = 0
        """Forward passes, whatever they held."""

    def __call__(self, view: View, needs: Needs) -> Logits:
        """Logits of all rows, `rows` at a time."""
        slots = view.tokens_BN.shape[1]
        view = pad_view(replace(view, row_B=None), -(-slots // SLOTS) * SLOTS)
        at_B = torch.arange(len(view.tokens_BN), device=view.tokens_BN.device)
        parts = [view] if len(at_B) <= self.rows else [select(view, at_U) for at_U in at_B.split(self.rows)]
        logits = [self._forward(part, needs) for part in parts]
        return _without_padding(logits[0] if len(logits) == 1 else concat(logits), slots)

    def _forward(self, view: View, needs: Needs) -> Logits:
        """Up to `rows` rows at the full shape."""
        live = len(view.tokens_BN)
        at_B = torch.arange(self.rows, device=view.tokens_BN.device)
        real_B1 = (at_B < live)[:, None]
        whole = view if live == self.rows else select(view, torch.where(at_B < live, at_B, 0))
        # Nothing is asked of the dummies, so the packed answer is that of the real rows.
        logits = self.denoiser(replace(whole, wanted_BN=whole.wanted_BN & real_B1), needs)
        self.calls += logits.forwards
        return replace(
            logits,
            wanted_BN=logits.wanted_BN[:live],
            attention_BNN=None if logits.attention_BNN is None else logits.attention_BNN[:live],
        )


def _without_padding(logits: Logits, slots: int) -> Logits:
    """Nothing is wanted of the padding, so the packed rows stay."""
    if logits.wanted_BN.shape[1] == slots:
        return logits
    read_BNN = None if logits.attention_BNN is None else logits.attention_BNN[:, :slots, :slots]
    return replace(logits, wanted_BN=logits.wanted_BN[:, :slots], attention_BNN=read_BNN)


class Stepper:
    """The decoder's own stepping at one forward shape; batches of any size take a step at once."""

    def __init__(self, denoiser: Denoiser, proposal: Proposal, rows: int, live: int = 1):
        self.forward = FixedRows(denoiser, rows)
        self.runner = Runner(self.forward, proposal)
        self.live = max(rows, live)
        """Rows that take a step together, at most."""

    @property
    def denoiser(self) -> Denoiser:
        return self.forward.denoiser

    @property
    def calls(self) -> int:
        """Forward passes, whatever they held."""
        return self.forward.calls

    def predict(self, traj: Trajectory, logits: Logits, view: View, needs: Needs) -> Trajectory:
        """The trajectory with what the logits say under its noise."""
        return self.runner.predict(traj, logits, view, needs)

    def observe(self, traj: Trajectory, policy: Policy, needs: Needs | None = None) -> Trajectory:
        """The step's own forward; `needs` if somebody else reads it, too."""
        view = policy.view(traj)
        same = view.tokens_BN.shape == traj.state.tokens_BL.shape
        require(same, f"the view of {policy.name}", "longer", "the canvas itself", "such methods cannot be branched")
        return self.runner.observe(traj, view, needs or policy.needs)

    def recall(self, traj: Trajectory, needs: Needs) -> Trajectory:
        """Give the last step back what is not stored, if anybody reads it: its posterior and its attention.

        Costs a forward that was already paid for.
        """
        if not (needs.divergence or needs.posterior):
            return traj
        needs = replace(needs, hidden=False)
        return self.runner.recall(traj, lambda before: View.of(before.state, needs), needs)

    def act(self, traj: Trajectory, policy: Policy) -> tuple[Action, Transition]:
        """The policy's action on a prediction, and what it does."""
        require(
            not policy.looks_ahead,
            f"looks_ahead of {policy.name}",
            True,
            "policies that do not look ahead, in a study",
            "use another reference or candidate, or compare it end to end with `unmask compare`",
        )
        action = policy.act(without_noise(traj, policy), NO_LOOK_AHEAD)
        return action, self.change(traj, action)

    def change(self, traj: Trajectory, action: Action) -> Transition:
        """What an action does."""
        change = self.runner.change(traj, action)
        raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
        return change


def without_noise(traj: Trajectory, *policies: Policy) -> Trajectory:
    """As policies that draw nothing are to see it: without random numbers."""
    return traj if any(policy.random for policy in policies) else replace(traj, noise=NoNoise(traj.noise.key_B))


def moved_on(traj: Trajectory, name: str, action: Action, change: Transition, keep: int) -> Trajectory:
    """The next state, with `keep` steps of the past (`ALL` for every one); nobody counts what it cost."""
    if keep == 0:
        return replace(traj, state=change.state, prediction=None, steps=())
    nothing_B = torch.zeros_like(traj.rows_B)
    return advance(traj, record_of(traj, name, action, change, nothing_B, nothing_B), change.state, keep)


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


def _decoded(
    stepper: Stepper, reference: Policy, traj: Trajectory, needs: Needs, keep: int
) -> tuple[list[Trajectory], dict[int, np.ndarray]]:
    """What the rows were before every step, and the canvas that each ended with."""
    history: list[Trajectory] = []
    ends: dict[int, np.ndarray] = {}
    for _ in range(step_limit(traj.state)):
        done_B = reference.done(traj)
        for row in done_B.nonzero().flatten().tolist():
            ends[int(traj.rows_B[row])] = traj.state.tokens_BL[row].cpu().numpy()
        traj = traj.select((~done_B).nonzero().flatten())
        if traj.state.batch == 0:
            return history, ends
        history.append(_light(traj))
        seen = stepper.observe(traj, reference, needs)
        action, change = stepper.act(seen, reference)
        traj = moved_on(seen, reference.name, action, change, keep)
    raise Unfinished(
        f"the reference {reference.name} did not finish row {int(traj.rows_B[0])}; look at what it reveals"
    )


def _paths(
    requests: Sequence[Request], history: Sequence[Trajectory], ends: Mapping[int, np.ndarray], states: int
) -> Iterator[ReferenceRun]:
    """Row by row, what the batch went through step by step; batches come to the host whole, not tensor by row."""
    places: list[list[tuple[int, int]]] = [[] for _ in requests]
    for at, traj in enumerate(history):
        for row, prompt in enumerate(traj.rows_B.tolist()):
            places[prompt].append((at, row))
    chosen = [[own[step] for step in spaced(len(own), states)] for own in places]
    sampled: dict[tuple[int, int], Trajectory] = {}
    for at in sorted({at for own in chosen for at, _ in own}):
        rows = [row for own in chosen for step, row in own if step == at]
        at_U = torch.tensor(rows, device=history[at].rows_B.device)
        part = moved(history[at].select(at_U), torch.device("cpu"))
        sampled |= {(at, row): _first(part.select(torch.tensor([i]))) for i, row in enumerate(rows)}
    before = [0, *accumulate(len(traj.rows_B) for traj in history)]
    whole = moved(concat([traj.state for traj in history]), torch.device("cpu"))
    for prompt, request in enumerate(requests):
        yield ReferenceRun(
            request=request,
            sampled=tuple(Sampled(request.id, i, sampled[place]) for i, place in enumerate(chosen[prompt])),
            states=whole.select(torch.tensor([before[at] + row for at, row in places[prompt]])),
            end_L=ends[prompt],
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
