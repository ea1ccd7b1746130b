"""States along the reference's run, where branches start.

A state is the trajectory of one row as it stood before a step, with as much of its past as anybody reads. The previous
posterior, which the stability rule reads, is not kept: it is a function of the previous canvas, and
`Stepper.recompute_last_step` brings it back with one forward.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch

from unmask.adapt import needs_of
from unmask.api import Request, start_trajectory
from unmask.base.errors import require
from unmask.core import Needs, State, Trajectory, concat, map_tensors
from unmask.engine import raise_faults
from unmask.lab.branching.plan import BranchPlan
from unmask.lab.branching.stepper import Stepper, after_step, check_plain_step, most_past_steps

T = TypeVar("T")

PACKING_THREADS = 4
"""Threads that compress states for the table."""


@dataclass(frozen=True, eq=False)
class ReferenceRun:
    """The reference's run of one prompt: every state that a branch may come back to."""

    request: Request
    states: State
    """Before every step, one row each, on the padded canvas; on the CPU."""
    end_L: np.ndarray
    """The final canvas."""
    passes: tuple[int, ...]
    """Row-forwards of every step: one, unless the reference looks ahead."""

    @property
    def steps(self) -> int:
        """Number of steps that the reference took."""
        return self.states.batch


class SampledStates(NamedTuple):
    """Sampled states whose pasts have one structure, so that they fit into one batch."""

    traj: Trajectory
    """A row for each state, on the CPU: state, noise key and the steps of the past that are kept."""
    run_S: np.ndarray
    """Index of each state's reference run."""
    index_S: np.ndarray
    """Number of the state along its run: 0, 1, ..."""

    def join(self, others: "Sequence[SampledStates]") -> "SampledStates":
        """Join groups of states, ordered by run and step."""
        traj, run_S, index_S = (
            concat([self.traj, *(other.traj for other in others)]),
            *(np.concatenate([getattr(one, name) for one in (self, *others)]) for name in ("run_S", "index_S")),
        )
        order = np.lexsort((index_S, run_S))
        return SampledStates(traj.select(torch.from_numpy(order)), run_S[order], index_S[order])


def spaced_steps(steps: int, n: int) -> list[int]:
    """Return the steps floor(i T / n) whose states are sampled, without duplicates."""
    require(steps >= 1, "steps", steps, "1 or more", "decode at least one step")
    require(n >= 1, "states per prompt", n, "1 or more", "sample at least one state")
    return sorted({i * steps // n for i in range(n)})


def sample_states(
    stepper: Stepper, plan: BranchPlan, requests: Sequence[Request], length: int
) -> tuple[list[ReferenceRun], list[SampledStates]]:
    """Decode every prompt with the reference on canvases of `length`, and keep spaced states of each run."""
    reference, diagnostics = plan.reference, list(plan.diagnostics.values())
    one_step = [one.policy for one in plan.alternatives if one.one_step]
    # Every refusal comes before the first forward.
    start = start_trajectory(stepper.forward.denoiser, requests, plan.seed, length)
    for policy in (*one_step, reference):
        policy.check(start.state)
    if not plan.whole_methods:
        check_plain_step(reference, start)
    needs = needs_of([reference, *diagnostics])
    keep = most_past_steps([reference, *one_step], max([1, *(one.past_steps for one in diagnostics)]))
    runs: list[ReferenceRun] = []
    parts: dict[tuple[int, ...], list[SampledStates]] = {}
    for first in range(0, len(requests), stepper.live):
        part = requests[first : first + stepper.live]
        traj = start_trajectory(stepper.forward.denoiser, part, plan.seed, length)
        history, ends = _decode_with_history(stepper, plan, traj, needs, keep)
        part_runs, states = _runs_and_states(part, history, ends, plan.states)
        for one in states:
            structure = tuple(step.prediction.wanted_BN.shape[1] for step in one.traj.steps)
            parts.setdefault(structure, []).append(one._replace(run_S=one.run_S + len(runs)))
        runs += part_runs
    batches = [parts[key] for key in sorted(parts, key=lambda slots: (len(slots), *slots))]
    return runs, [batch[0].join(batch[1:]) for batch in batches]


class StepStart(NamedTuple):
    """Rows before a step of the reference, and the passes that the step took for each row."""

    traj: Trajectory
    passes: tuple[int, ...]


def _decode_with_history(
    stepper: Stepper, plan: BranchPlan, traj: Trajectory, needs: Needs, keep: int
) -> tuple[list[StepStart], dict[int, np.ndarray]]:
    """Decode with the reference; return the rows before every step, and the final canvas of each row."""
    reference = plan.reference
    history: list[StepStart] = []
    ends: dict[int, np.ndarray] = {}
    fault_B, before = torch.zeros_like(traj.rows_B), traj
    while True:
        done_B = reference.done(traj)
        # One read for both kinds of flags: each read waits for the device.
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
        steps = tuple(one.drop_large_parts() for one in traj.steps)
        history.append(StepStart(replace(traj, prediction=None, steps=steps), step.passes))
        traj, fault_B = after_step(traj, reference.name, step, keep), step.change.fault_B


def _runs_and_states(
    requests: Sequence[Request], history: Sequence[StepStart], ends: Mapping[int, np.ndarray], states: int
) -> tuple[list[ReferenceRun], list[SampledStates]]:
    """Cut the history into runs; return them and the sampled states, grouped by step."""
    # Where each run is in the history: (step, row of the batch before it). Rows leave the batch as they finish.
    places: list[list[tuple[int, int]]] = [[] for _ in requests]
    for at, (traj, _) in enumerate(history):
        for row, run in enumerate(traj.rows_B.tolist()):
            places[run].append((at, row))
    chosen = [
        (run, i, *own[step]) for run, own in enumerate(places) for i, step in enumerate(spaced_steps(len(own), states))
    ]
    sampled = []
    for at in sorted({at for _, _, at, _ in chosen}):
        run_S, index_S, row_S = np.array([(run, i, row) for run, i, step, row in chosen if step == at]).T
        # Whole batches go to the host: a copy per row costs more than its numbers.
        rows = history[at].traj.select(torch.from_numpy(row_S).to(history[at].traj.rows_B.device))
        sampled.append(SampledStates(to_device(rows, torch.device("cpu")), run_S, index_S))
    before = [0, *accumulate(len(one.passes) for one in history)]
    whole = to_device(concat([one.traj.state for one in history]), torch.device("cpu"))
    runs = [
        ReferenceRun(
            request=request,
            states=whole.select(torch.tensor([before[at] + row for at, row in own])),
            end_L=ends[run],
            passes=tuple(history[at].passes[row] for at, row in own),
        )
        for run, (request, own) in enumerate(zip(requests, places, strict=True))
    ]
    return runs, sampled


def states_frame(runs: Sequence[ReferenceRun], batches: Sequence[SampledStates]) -> pd.DataFrame:
    """Make a frame of the sampled states: run, number, canvas without padding, and packed trajectory."""
    frames = []
    for traj, run_S, index_S in batches:
        state, own = traj.state, [runs[run] for run in run_S]
        cut = [slice(len(run.request.canvas)) for run in own]
        columns = {
            "run": run_S,
            "prompt": [run.request.id for run in own],
            "state": index_S,
            "step": state.step_B.numpy(),
            "masked": state.masked_BL.sum(-1).numpy(),
            "horizon": [run.request.steps for run in own],
            "taken": [run.steps for run in own],
            "tokens": [row_L[n] for row_L, n in zip(state.tokens_BL.numpy(), cut, strict=True)],
            "fixed": [row_L[n] for row_L, n in zip(state.fixed_BL.numpy(), cut, strict=True)],
            "committed": [row_L[n] for row_L, n in zip(state.committed_BL.numpy(), cut, strict=True)],
            "trajectory": _pack(traj),
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames).sort_values(["run", "state"], ignore_index=True)


def _pack(traj: Trajectory) -> list[bytes]:
    """Pack each state with its past, in several threads: compressors release Python's lock."""
    rows = range(traj.state.batch)
    size = max(16, -(-len(rows) // PACKING_THREADS))
    parts = [rows[first : first + size] for first in range(0, len(rows), size)]
    if len(parts) == 1:
        return traj.rows_to_bytes(rows)
    with ThreadPoolExecutor(PACKING_THREADS) as threads:
        return [packed for part in threads.map(traj.rows_to_bytes, parts) for packed in part]


def to_device(value: T, device: torch.device) -> T:
    """Move every tensor of a value to a device."""
    return map_tensors(value, lambda tensor: tensor.to(device))
