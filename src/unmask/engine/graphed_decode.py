"""Steps without the host: forward, statistics, policy, transition and the end of rows as one piece of recorded work.

The rows lie in buffers that stay where they are; a step reads them and writes the next state back. So it can be
recorded once and replayed: the host only starts it, and looks at its flags while the next one runs. Rows that are done
stay in the batch and do not change, until so few are left that a smaller batch pays. Tokens, counts and records are
those of the plain loop.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from unmask.axes import first_open_block
from unmask.core import (
    Denoiser,
    ModelInput,
    Noise,
    PackedSlots,
    Policy,
    State,
    Step,
    Trajectory,
    copy_in,
    cut_canvas,
    replace_tensors,
    tensors,
)
from unmask.engine.history import HistoryBuffer, NotGraphable, StepLog
from unmask.engine.step import StepSettings, append_step, decide, hide_noise, predict
from unmask.engine.transition import Transition, raise_faults

AHEAD = 1
"""Steps that are started before the host looks at the flags of an earlier one, so that the device never waits. A batch
whose end nobody can foresee costs as many steps that do nothing."""

Perform = Callable[[Hashable, Callable[[], None]], None]
"""Does some work: at once, or by replaying a recording of it that is kept under the key. Raises `NotGraphable`."""


class StepRecorder(Protocol):
    """What a denoiser has whose passes can be recorded: it keeps recorded steps from one decode to the next."""

    busy: Lock
    """Held by the decode whose rows are in the buffers; another one of the same moment runs the plain loop."""
    grain: int
    """Canvases are padded to a multiple of so many positions: prompts of many lengths share few recordings."""

    def within(self, denoiser: Any) -> Denoiser:
        """The same denoiser without recordings of its own, to be recorded as a part of the step."""
        ...

    def find(self, key: Hashable, make: "Callable[[Perform], GraphedRows]") -> "GraphedRows | None":
        """The steps that are kept under the key; None where they were refused, or are not worth it yet."""
        ...

    def refuse(self, key: Hashable, why: str) -> None:
        """Never again under this key, and the user is told."""
        ...


class GraphedRun(NamedTuple):
    """What came of the steps that could be recorded."""

    ended: list[Trajectory]
    steps: list[Step]
    left: Trajectory
    """Rows that are not done: none, or all of which the steps could not be recorded."""


def decode_graphed(settings: StepSettings, policy: Policy, traj: Trajectory, *, record: bool) -> GraphedRun:
    """Decode as far as steps can be recorded: to the end of all rows, or not at all."""
    recorder: StepRecorder | None = getattr(settings.denoiser, "recorder", None)
    if recorder is None or not _suits(settings, policy, traj) or not recorder.busy.acquire(blocking=False):
        return GraphedRun([], [], traj)
    try:
        return _padded(recorder, settings, policy, traj, record)
    finally:
        recorder.busy.release()


def _padded(
    recorder: StepRecorder, settings: StepSettings, policy: Policy, traj: Trajectory, record: bool
) -> GraphedRun:
    """On longer canvases; what comes of it is cut to the length of the given ones."""
    length, done_B = traj.state.tokens_BL.shape[1], policy.done(hide_noise(traj, policy))
    ended = [_base(traj).select(done_B.nonzero().flatten())]
    traj = traj.select((~done_B).nonzero().flatten())
    padded = replace(traj, state=traj.state.pad_to(-(-length // recorder.grain) * recorder.grain))
    run = _run(recorder, settings, policy, padded, record)
    return GraphedRun(
        ended + [cut_canvas(part, length) for part in run.ended],
        [cut_canvas(step, length) for step in run.steps],
        cut_canvas(run.left, length),
    )


def _run(recorder: StepRecorder, settings: StepSettings, policy: Policy, traj: Trajectory, record: bool) -> GraphedRun:
    """Batches that get smaller, until no row is left or steps are refused."""
    going_B = torch.ones_like(traj.rows_B, dtype=torch.bool)
    ended: list[Trajectory] = []
    steps: list[Step] = []
    while traj.state.batch:
        wanted = LogitSlots.of(policy, traj.state, record)
        key = _key(settings, policy, traj, wanted)

        def make(perform: Perform, traj: Trajectory = traj, wanted: LogitSlots = wanted) -> GraphedRows:
            inner = replace(settings, denoiser=recorder.within(settings.denoiser))
            return GraphedRows(inner, policy.bounded(traj.state.tokens_BL.shape[1]), traj, wanted, perform)

        rows = recorder.find(key, make)
        if rows is None:
            return GraphedRun(ended, steps, traj.select(going_B.nonzero().flatten()))
        rows.load(traj, going_B)
        refused = ""
        try:
            rows.run(record)
        except NotGraphable as error:
            refused = f"steps of {policy.name} over {tuple(traj.state.tokens_BL.shape)} slots: {error}"
            recorder.refuse(key, refused)
        traj, going_B, gone, taken = rows.unload(fill=not refused)
        ended.append(gone)
        steps += taken
        if refused:
            break
    return GraphedRun(ended, steps, traj)


def _suits(settings: StepSettings, policy: Policy, traj: Trajectory) -> bool:
    """Whether the policy's steps can be recorded, from a start without a past."""
    whole = not traj.steps and policy.past_steps >= 0 and type(traj.noise) is Noise
    alone = not policy.looks_ahead and settings.planner is None
    return policy.cuda_graph and whole and alone and _hashable(policy)


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _key(settings: StepSettings, policy: Policy, traj: Trajectory, wanted: "LogitSlots") -> Hashable:
    """All that a recorded step depends on, except numbers on the device."""
    shapes = tuple((path, part.shape, part.dtype) for path, part in tensors(_base(traj)).items())
    variant = getattr(settings.denoiser, "variant", None)
    same = (policy, settings.sampling, settings.eos_ids, traj.state.mask_id, variant)
    return (*same, wanted, traj.rows_B.device, *shapes)


def _base(traj: Trajectory) -> Trajectory:
    """Where the rows are, without how they got there."""
    return replace(traj, steps=(), prediction=None, prepaid_B=None)


@dataclass(frozen=True)
class LogitSlots:
    """The slots that get logits: so many in every step, whatever is masked by then."""

    rows: int
    block: int | None
    """Answer positions per block where only the open block is read; None for all that the view wants."""

    @classmethod
    def of(cls, policy: Policy, state: State, record: bool) -> "LogitSlots":
        """Of a policy that fills block after block nobody sees the rest, unless steps are recorded."""
        counts, needs = state.answer_BL.sum(-1).tolist(), policy.needs
        elsewhere = needs.divergence or needs.posterior or needs.attention or needs.revealed or not policy.block_cache
        block = None if record or elsewhere else getattr(policy, "block_length", None)
        return cls(sum(counts) if block is None else sum(min(block, count) for count in counts), block)

    def packed(self, inputs: ModelInput, state: State) -> ModelInput:
        """The view with as many rows to answer as there always are."""
        wanted_BN = inputs.wanted_BN
        if self.block is not None:
            wanted_BN = wanted_BN & first_open_block(state, self.block)
        packed = PackedSlots(wanted_BN, self.rows)
        return replace(inputs, wanted_BN=packed.wanted_BN, packed=packed)


class GraphedRows:
    """Rows of one shape in buffers of their own, and the step that moves them."""

    def __init__(self, settings: StepSettings, policy: Policy, like: Trajectory, wanted: LogitSlots, perform: Perform):
        self.settings, self.policy, self.wanted, self.perform = settings, policy, wanted, perform
        self.base = _base(like)
        """What is not a tensor, of the rows that were loaded last."""
        with torch.inference_mode(False):
            self.rows = replace_tensors(self.base, [part.clone() for part in tensors(self.base).values()])
            self.going_B = torch.ones_like(like.rows_B, dtype=torch.bool)
            self.fault_B, self.faulty_at_B = torch.zeros_like(like.rows_B), torch.zeros_like(like.rows_B)
            self.flags = torch.zeros(2, dtype=torch.long, device=like.rows_B.device)
        self.past, self.depth = HistoryBuffer(policy.past_steps or 1), 0
        self.records: StepLog | None = None
        self._looks = PendingFlags(self.flags)

    def load(self, traj: Trajectory, going_B: Tensor) -> None:
        """Take up other rows, of which some may be done."""
        self.base = _base(traj)
        copy_in(list(tensors(self.rows).values()), list(tensors(self.base).values()))
        self.going_B.copy_(going_B)
        self.fault_B.zero_()
        self.depth = len(traj.steps)
        self.past.load(traj.steps, self.going_B, self.wanted.rows)

    def run(self, record: bool) -> None:
        """Steps until no row is left, or so few that a smaller batch is worth it."""
        self.records = StepLog() if record else None
        batch, certain, number = len(self.going_B), self._certain_steps(), 0
        self._looks.clear()
        with torch.cuda.device_of(self.flags):
            while True:
                self._start()
                number += 1
                # Nobody runs ahead of an end that is known.
                while self._looks.waiting > (AHEAD if number != certain else 0):
                    going, wrong = self._looks.read()
                    if wrong:
                        raise_faults(self.fault_B, self.faulty_at_B, self.rows.rows_B)
                    if going <= batch // 2:
                        return

    def _start(self) -> None:
        """Start one step, and send for its flags."""
        self.perform(self.depth, self._step)
        self.depth = min(self.depth + 1, self.past.most)
        if self.records is not None:
            self.records.add(self.past)
        self._looks.send()

    def unload(self, *, fill: bool = True) -> tuple[Trajectory, Tensor, Trajectory, list[Step]]:
        """The rows that still run, filled up with done ones to a power of two, and which of them run; the rows that
        have ended; and the steps that were taken."""
        raise_faults(self.fault_B, self.faulty_at_B, self.rows.rows_B)
        taken = self.records.steps(self.past) if self.records is not None else []
        going = self.going_B.tolist()
        count = sum(going)
        size = 1 << (count - 1).bit_length() if fill and count else count
        # Sorted, so that rows keep their order.
        kept = sorted(sorted(range(len(going)), key=lambda row: not going[row])[:size])
        gone = [row for row in range(len(going)) if row not in kept]
        rows_U, gone_U = (torch.tensor(rows, dtype=torch.long, device=self.going_B.device) for rows in (kept, gone))
        whole = replace_tensors(self.base, [part.clone() for part in tensors(self.rows).values()])
        left = replace(whole, steps=self.past.steps(self.depth)) if count else whole
        return left.select(rows_U), self.going_B[rows_U], whole.select(gone_U), taken

    def _certain_steps(self) -> int:
        """After how many steps a run that its steps bound has come to its end; -1 where nobody knows."""
        state = self.rows.state
        return int((state.horizon_B - state.step_B).max()) if self.policy.steps == "end" else -1

    def _step(self) -> None:
        """One step of all rows. Everything in it starts kernels and nothing else."""
        with torch.inference_mode():
            # Made anew, so that nothing that is derived from a state outlives its step.
            now = replace(replace_tensors(self.base, tensors(self.rows).values()), steps=self.past.steps(self.depth))
            inputs = self.wanted.packed(self.policy.model_input(hide_noise(now, self.policy)), now.state)
            seen, cost = predict(self.settings, now, inputs, self.policy.needs)
            action, change = decide(self.settings, self.policy, seen)
            later = append_step(seen, self.policy.name, action, change, cost, keep=self.past.most)
            next_B = self.going_B & ~self.policy.done(hide_noise(later, self.policy))
            # First all that is read, then the buffers it was read from.
            moved = self._moved(now, later, change, next_B)
            self.past.push(later.steps[-1], self.going_B)
            copy_in(*moved)

    def _moved(
        self, now: Trajectory, later: Trajectory, change: Transition, next_B: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Buffers and what comes into them. Rows that are done stay as they are."""
        going_B = self.going_B
        rows = [
            torch.where(going_B.view(-1, *[1] * (new.dim() - 1)), new, old)
            for new, old in zip(_moving(later), _moving(now), strict=True)
        ]
        # Of the first step that goes wrong, as the plain loop finds it.
        first = ~(self.fault_B != 0).any()
        fault_B = torch.where(first, torch.where(going_B, change.fault_B, 0), self.fault_B)
        at_B = torch.where(first, now.state.step_B, self.faulty_at_B)
        flags = torch.stack((next_B.sum(), (fault_B != 0).any().long()))
        buffers = [*_moving(self.rows), self.fault_B, self.faulty_at_B, self.going_B, self.flags]
        return buffers, [*rows, fault_B, at_B, next_B, flags]


def _moving(traj: Trajectory) -> list[Tensor]:
    """What a step changes of a row."""
    state = traj.state
    counts = (traj.forwards_B, traj.processed_B, traj.remasks_B)
    return [state.tokens_BL, state.committed_BL, state.step_B, *(count for count in counts if count is not None)]


class PendingFlags:
    """The flags of the last steps on their way to the host, which reads them while the next one runs."""

    def __init__(self, flags: Tensor):
        self.flags = flags
        pinned = flags.is_cuda
        self.slots = [torch.zeros(flags.shape, dtype=flags.dtype, pin_memory=pinned) for _ in range(AHEAD + 1)]
        self.events = [torch.cuda.Event() if pinned else None for _ in self.slots]
        self._free, self._sent = deque(range(AHEAD + 1)), deque[int]()

    def clear(self) -> None:
        self._free, self._sent = deque(range(AHEAD + 1)), deque[int]()

    @property
    def waiting(self) -> int:
        return len(self._sent)

    def send(self) -> None:
        slot = self._free.popleft()
        self.slots[slot].copy_(self.flags, non_blocking=True)
        if (event := self.events[slot]) is not None:
            event.record()
        self._sent.append(slot)

    def read(self) -> tuple[int, bool]:
        """How many rows ran after the oldest step that was not read, and whether one has gone wrong."""
        slot = self._sent.popleft()
        if (event := self.events[slot]) is not None:
            event.synchronize()
        self._free.append(slot)
        going, wrong = self.slots[slot].tolist()
        return going, bool(wrong)
