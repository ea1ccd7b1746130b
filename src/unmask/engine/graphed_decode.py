"""The loop of `decode` with whole steps as CUDA graphs, over rows that stay in fixed buffers.

A step reads the buffers and writes the next state back, so it can be recorded once and replayed. The host only starts
it, and reads its flags while the next step runs. Finished rows stay in the batch without changes, until few enough are
left for a smaller batch. Tokens, costs and steps equal those of the plain loop.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from unmask.axes import first_open_block
from unmask.core import (
    Denoiser,
    Layout,
    ModelInput,
    Noise,
    Policy,
    Posterior,
    Slots,
    State,
    Step,
    Trajectory,
    axis_letters,
    copy_in,
    cut_canvas,
    has_same_form,
    map_tensors,
    replace_tensors,
    select,
    tensors,
)
from unmask.engine.step import StepSettings, append_step, decide, hide_noise, predict
from unmask.engine.transition import Transition, raise_faults
from unmask.models import GraphCache, NotGraphable

STEPS_AHEAD = 1
"""Number of steps that are started before the host reads the flags of an earlier one, so that the device never waits.
A batch whose last step is not known in advance runs so many steps that change nothing."""
LOGGED_AT_ONCE = 16
"""Number of steps that a log allocates memory for at a time."""


class StepDenoiser(Denoiser, Protocol):
    """A denoiser inside of a graphed step, made by `step_denoiser` of a network or a block cache.

    Its call must not make the host wait for the device.
    """

    def plan_pass(self, state: State, rows_B: Tensor) -> Hashable:
        """Return what decides the shapes of the next pass: a part of the key of its graph. Called before the step."""
        ...


def decode_graphed(
    settings: StepSettings, policy: Policy, traj: Trajectory, *, record: bool
) -> tuple[list[Trajectory], list[Step], Trajectory]:
    """Decode with graphed steps until all rows have ended or a step cannot be recorded.

    Returns the rows that ended, the steps that were taken, and the rows that the plain loop must decode.
    """
    denoiser: Any = settings.denoiser
    graphs: GraphCache = denoiser.step_graphs
    if not _can_be_graphed(settings, policy, traj) or not graphs.busy.acquire(blocking=False):
        return [], [], traj
    try:
        length, done_B = traj.state.tokens_BL.shape[1], policy.done(hide_noise(traj, policy))
        ended = [_without_past(traj).select(done_B.nonzero().flatten())]
        traj = traj.select((~done_B).nonzero().flatten())
        padded = traj.state.pad_to(-(-length // graphs.slots_multiple) * graphs.slots_multiple)
        more, steps, left = _decode_batches(graphs, settings, policy, replace(traj, state=padded), record)
        return (
            ended + [cut_canvas(part, length) for part in more],
            [cut_canvas(step, length) for step in steps],
            cut_canvas(left, length),
        )
    finally:
        graphs.busy.release()


def _decode_batches(
    graphs: GraphCache, settings: StepSettings, policy: Policy, traj: Trajectory, record: bool
) -> tuple[list[Trajectory], list[Step], Trajectory]:
    """Decode in batches that become smaller, until no row is left or a step cannot be recorded."""
    denoiser: Any = settings.denoiser
    going_B = torch.ones_like(traj.rows_B, dtype=torch.bool)
    ended: list[Trajectory] = []
    steps: list[Step] = []
    while traj.state.batch:
        slots = LogitSlots.of(policy, traj.state, record)
        # The key has everything that a recorded step depends on, except values of tensors.
        shapes = tuple((path, part.shape, part.dtype) for path, part in tensors(_without_past(traj)).items())
        same = (policy, settings.sampling, settings.eos_ids, traj.state.mask_id, denoiser.variant)
        key = (*same, slots, traj.rows_B.device, *shapes)

        def make(traj: Trajectory = traj, slots: LogitSlots = slots) -> GraphedRows:
            return GraphedRows(policy.bounded(traj.state.tokens_BL.shape[1]), traj, slots, graphs.make_nested_cache())

        inner: StepDenoiser | None = denoiser.step_denoiser(*traj.state.tokens_BL.shape)
        rows = None if inner is None else graphs.find(key, make)
        if inner is None or rows is None:
            return ended, steps, traj.select(going_B.nonzero().flatten())
        rows.load(traj, going_B)
        refused = False
        try:
            rows.run(replace(settings, denoiser=inner), inner, record=record)
        except NotGraphable as error:
            refused = True
            where = f"steps of {policy.name} over {tuple(traj.state.tokens_BL.shape)} slots"
            graphs.refuse(key, f"steps run one operation at a time, not as a recorded graph: {where}: {error}")
        traj, going_B, gone, taken = rows.unload(fill=not refused)
        ended.append(gone)
        steps += taken
        if refused:
            break
    return ended, steps, traj


def _can_be_graphed(settings: StepSettings, policy: Policy, traj: Trajectory) -> bool:
    """Whether steps of this policy can be graphs; only runs from their first step with ordinary noise can."""
    if not policy.cuda_graph or policy.past_steps < 0 or policy.looks_ahead or settings.planner is not None:
        return False
    try:
        hash(policy)
    except TypeError:
        return False
    return not traj.steps and type(traj.noise) is Noise


def _without_past(traj: Trajectory) -> Trajectory:
    return replace(traj, steps=(), prediction=None, prepaid_B=None)


@dataclass(frozen=True)
class LogitSlots:
    """The slots that get logits in every step: a fixed number, however many masks are left."""

    count: int
    block: int | None
    """Positions per block, if logits are computed for the open block only; None for all wanted slots."""

    @classmethod
    def of(cls, policy: Policy, state: State, record: bool) -> "LogitSlots":
        """Count the slots whose logits are used: those of all answer positions, or of one block.

        One block is enough if the policy fills blocks in order, reads no other predictions, and no steps are recorded.
        """
        counts, needs = state.answer_BL.sum(-1).tolist(), policy.needs
        elsewhere = needs.divergence or needs.posterior or needs.attention or needs.revealed or not policy.block_cache
        block = None if record or elsewhere else getattr(policy, "block_length", None)
        return cls(sum(counts) if block is None else sum(min(block, count) for count in counts), block)

    def pack(self, inputs: ModelInput, state: State) -> ModelInput:
        """Return the input with its wanted slots packed into the fixed number of slots."""
        wanted_BN = inputs.wanted_BN
        if self.block is not None:
            wanted_BN = wanted_BN & first_open_block(state, self.block)
        packed = Slots.pack(wanted_BN, self.count)
        return replace(inputs, wanted_BN=packed.wanted_BN, packed=packed)


class GraphedRows:
    """Rows of one shape in fixed buffers, with the recorded step that changes them."""

    def __init__(self, policy: Policy, like: Trajectory, slots: LogitSlots, graphs: GraphCache):
        self.policy, self.slots, self.graphs = policy, slots, graphs
        self.base = _without_past(like)
        """The trajectory that was loaded last, for its parts that are not tensors."""
        # Outside of inference mode, because a later decode may write to the buffers outside of it.
        with torch.inference_mode(False):
            # Cloned: graphs write to these addresses, and the caller's tensors must not change.
            self.rows = replace_tensors(self.base, [part.clone() for part in tensors(self.base).values()])
            self.going_B = torch.ones_like(like.rows_B, dtype=torch.bool)
            self.fault_B, self.faulty_at_B = torch.zeros_like(like.rows_B), torch.zeros_like(like.rows_B)
            self.flags = torch.zeros(2, dtype=torch.long, device=like.rows_B.device)
        self.history, self.depth = HistoryBuffer(policy.past_steps or 1), 0
        self.log: StepLog | None = None
        self._pending = PendingFlags(self.flags)

    def load(self, traj: Trajectory, going_B: Tensor) -> None:
        """Copy rows into the buffers; `going_B` is False for rows that are done."""
        self.base = _without_past(traj)
        copy_in(list(tensors(self.rows).values()), list(tensors(self.base).values()))
        self.going_B.copy_(going_B)
        self.fault_B.zero_()
        self.depth = len(traj.steps)
        self.history.load(traj.steps, self.going_B, self.slots.count)

    def run(self, settings: StepSettings, denoiser: StepDenoiser, *, record: bool) -> None:
        """Take steps until at most half of the rows still run.

        The settings are not stored: a block cache frees its memory when nothing refers to it any more.
        """
        self.log = StepLog() if record else None
        state = self.rows.state
        # The last step of the run, if the number of steps ends it; no step is started ahead of a known end.
        last = int((state.horizon_B - state.step_B).max()) if self.policy.steps == "end" else -1
        batch, number = len(self.going_B), 0
        self._pending.clear()
        with torch.cuda.device_of(self.flags):
            while True:
                self._start_step(settings, denoiser)
                number += 1
                # One step stays unread, so that the device works while the host reads the flags of the step before.
                while self._pending.waiting > (STEPS_AHEAD if number != last else 0):
                    going, any_fault = self._pending.read()
                    if any_fault:
                        raise_faults(self.fault_B, self.faulty_at_B, self.rows.rows_B)
                    if going <= batch // 2:
                        return

    def unload(self, *, fill: bool = True) -> tuple[Trajectory, Tensor, Trajectory, list[Step]]:
        """Copy the rows out of the buffers, and divide them into those of the next batch and those that ended.

        Returns the rows of the next batch: all that still run, and if `fill` done ones up to a power of two; flags of
        those that run; the rows that ended; the steps that were taken.
        """
        raise_faults(self.fault_B, self.faulty_at_B, self.rows.rows_B)
        taken = self.log.steps(self.history) if self.log is not None else []
        going = self.going_B.tolist()
        count = sum(going)
        # Powers of two, because every number of rows needs a recording of its own.
        size = 1 << (count - 1).bit_length() if fill and count else count
        # Sorted, so that rows keep their order.
        kept = sorted(sorted(range(len(going)), key=lambda row: not going[row])[:size])
        gone = [row for row in range(len(going)) if row not in kept]
        rows_U, gone_U = (torch.tensor(rows, dtype=torch.long, device=self.going_B.device) for rows in (kept, gone))
        whole = replace_tensors(self.base, [part.clone() for part in tensors(self.rows).values()])
        left = replace(whole, steps=self.history.steps(self.depth)) if count else whole
        return left.select(rows_U), self.going_B[rows_U], whole.select(gone_U), taken

    def _start_step(self, settings: StepSettings, denoiser: StepDenoiser) -> None:
        """Start one step, and then the copy of its flags to the host."""
        plan = denoiser.plan_pass(self.rows.state, self.rows.rows_B)
        self.graphs.run((self.depth, plan), lambda: self._step(settings))
        self.depth = min(self.depth + 1, self.history.most)
        if self.log is not None:
            self.log.add(self.history)
        self._pending.start_copy()

    def _step(self, settings: StepSettings) -> None:
        """Take one step of all rows. This is what a graph records: it may only start kernels."""
        with torch.inference_mode():
            # A new trajectory, so that cached properties of a state are not used in a later step.
            now = replace(replace_tensors(self.base, tensors(self.rows).values()), steps=self.history.steps(self.depth))
            inputs = self.slots.pack(self.policy.model_input(hide_noise(now, self.policy)), now.state)
            seen, cost = predict(settings, now, inputs, self.policy.needs)
            action, change = decide(settings, self.policy, seen)
            later = append_step(seen, self.policy.name, action, change, cost, keep=self.history.most)
            next_B = self.going_B & ~self.policy.done(hide_noise(later, self.policy))
            # All values are computed before the first buffer is written.
            updates = self._next_values(now, later, change, next_B)
            self.history.push(later.steps[-1], self.going_B)
            copy_in(*updates)

    def _next_values(
        self, now: Trajectory, later: Trajectory, change: Transition, next_B: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the buffers that a step changes, and their next values. Values of finished rows do not change."""
        rows = [
            torch.where(self.going_B.view(-1, *[1] * (new.dim() - 1)), new, old)
            for new, old in zip(_tensors_changed_by_step(later), _tensors_changed_by_step(now), strict=True)
        ]
        # Flags of the first step with a fault are kept, because the plain loop would stop there.
        first = ~(self.fault_B != 0).any()
        fault_B = torch.where(first, torch.where(self.going_B, change.fault_B, 0), self.fault_B)
        at_B = torch.where(first, now.state.step_B, self.faulty_at_B)
        flags = torch.stack((next_B.sum(), (fault_B != 0).any().long()))
        buffers = [*_tensors_changed_by_step(self.rows), self.fault_B, self.faulty_at_B, self.going_B, self.flags]
        return buffers, [*rows, fault_B, at_B, next_B, flags]


def _tensors_changed_by_step(traj: Trajectory) -> list[Tensor]:
    """List the tensors of a trajectory that a step changes."""
    state = traj.state
    counts = (traj.forwards_B, traj.processed_B, traj.remasks_B)
    return [state.tokens_BL, state.committed_BL, state.step_B, *(count for count in counts if count is not None)]


class PendingFlags:
    """Flags of the last steps that are being copied to the host, which reads them while the next step runs."""

    def __init__(self, flags: Tensor):
        self.flags = flags
        pinned = flags.is_cuda
        # A host buffer for each step that runs, so that no copy is overwritten before it is read.
        self.slots = [torch.zeros(flags.shape, dtype=flags.dtype, pin_memory=pinned) for _ in range(STEPS_AHEAD + 1)]
        self.events = [torch.cuda.Event() if pinned else None for _ in self.slots]
        self.clear()

    def clear(self) -> None:
        """Drop all flags that were not read."""
        self._free, self._sent = deque(range(STEPS_AHEAD + 1)), deque[int]()

    @property
    def waiting(self) -> int:
        """Number of steps whose flags were not read yet."""
        return len(self._sent)

    def start_copy(self) -> None:
        """Start to copy the flags of the last step to the host: number of running rows, and whether any has a fault."""
        slot = self._free.popleft()
        self.slots[slot].copy_(self.flags, non_blocking=True)
        if (event := self.events[slot]) is not None:
            event.record()
        self._sent.append(slot)

    def read(self) -> tuple[int, bool]:
        """Wait for the oldest flags; return the number of rows still running, and whether any row has a fault."""
        slot = self._sent.popleft()
        if (event := self.events[slot]) is not None:
            event.synchronize()
        self._free.append(slot)
        going, any_fault = self.slots[slot].tolist()
        return going, bool(any_fault)


class HistoryBuffer:
    """The past steps that a graphed step reads: at most `most` of them, stored in one tensor, the newest last."""

    def __init__(self, most: int):
        self.most = most
        self.layout: Layout[tuple[Step, Tensor]] | None = None
        """Places of a step's tensors, and of the flags of rows that took it, in a line of the memory."""
        self.memory: Tensor
        """One line of bytes for each step."""
        self._newest: tuple[Posterior | None, Tensor | None]
        """Posterior and attention of the newest step. Older steps do not keep theirs, because they are large."""

    def steps(self, depth: int) -> tuple[Step, ...]:
        """Return the last `depth` steps.

        The tensors are copies, except posterior and attention of the newest step, which the next step overwrites.
        """
        if not depth or self.layout is None:
            return ()
        # Cloned: the policy may pass on what it reads here, and lines are moved afterwards.
        lines = self.memory[self.most - depth :].clone()
        *older, last = (self.layout.read(line)[0] for line in lines)
        posterior, attention_BNN = self._newest
        whole = replace(last.prediction, posterior=posterior, attention_BNN=attention_BNN)
        return (*older, replace(last, prediction=whole))

    def push(self, step: Step, took_B: Tensor) -> None:
        """Append a step, with flags of the rows that took it."""
        newest, layout = (step.prediction.posterior, step.prediction.attention_BNN), self._prepare_memory(step, took_B)
        if not has_same_form(self._newest, newest):
            raise NotGraphable("what it reads of the posterior changes its shape")
        self._append_line(layout, (step.drop_large_parts(), took_B))
        copy_in(list(tensors(self._newest).values()), list(tensors(newest).values()))

    def load(self, steps: Sequence[Step], took_B: Tensor, slots: int) -> None:
        """Replace the past by that of other rows; its posterior is packed into `slots` rows of logits."""
        if not steps:
            return
        *older, last = steps
        if (old := last.prediction.posterior) is not None:
            packed = Slots.pack(old.slot_BN >= 0, slots)
            row_R = old.slot_BN.flatten()[packed.index_R].clamp(min=0)
            new = replace(old, logits_RV=old.logits_RV[row_R], logz_R=old.logz_R[row_R], slot_BN=packed.row_BN)
            last = replace(last, prediction=replace(last.prediction, posterior=new))
        layout = self._prepare_memory(last, took_B)
        for step in older:
            self._append_line(layout, (step, took_B))
        self.push(last, took_B)

    def _prepare_memory(self, step: Step, took_B: Tensor) -> Layout[tuple[Step, Tensor]]:
        """Allocate the memory for the first step; all later steps must have the same form."""
        if self.layout is None:
            # Canvases are padded here, and the axis letters of a tensor tell where its padding must be cut off later.
            for path, part in tensors(step).items():
                if len(axis_letters(path)) != part.dim():
                    axes = f"does not end in a letter for each of its {part.dim()} axes"
                    raise NotGraphable(f"{path[-1]!r} of its action {axes}")
            self.layout = Layout.of((step.drop_large_parts(), took_B))
            with torch.inference_mode(False):
                self.memory = torch.zeros(self.most, self.layout.size, dtype=torch.uint8, device=took_B.device)
                newest = (step.prediction.posterior, step.prediction.attention_BNN)
                self._newest = map_tensors(newest, torch.zeros_like)
        return self.layout

    def _append_line(self, layout: Layout[tuple[Step, Tensor]], value: tuple[Step, Tensor]) -> None:
        if not has_same_form(layout.form, value):
            raise NotGraphable("what it keeps of a step changes from step to step")
        if self.most > 1:
            # Cloned, because the two ranges overlap, and a copy on a device has no defined order.
            self.memory[:-1].copy_(self.memory[1:].clone())
        layout.write(self.memory[-1], value)


class StepLog:
    """All steps of a run, copied from the history buffer one after the other."""

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []
        self._count = 0

    def add(self, history: HistoryBuffer) -> None:
        """Copy the newest step of the history into the log."""
        at = self._count % LOGGED_AT_ONCE
        if at == 0:
            with torch.inference_mode(False):
                self._pieces.append(history.memory.new_empty(LOGGED_AT_ONCE, history.memory.shape[1]))
        self._pieces[-1][at].copy_(history.memory[-1])
        self._count += 1

    def steps(self, history: HistoryBuffer) -> list[Step]:
        """Return all steps; each has only the rows that took it, as in the plain loop."""
        if history.layout is None or not self._count:
            return []
        lines = [line for piece in self._pieces for line in piece][: self._count]
        values = [history.layout.read(line) for line in lines]
        took = torch.stack([took_B for _, took_B in values]).cpu()
        kept = []
        for (step, _), took_B in zip(values, took, strict=True):
            if bool(took_B.all()):
                kept.append(step)
            elif bool(took_B.any()):
                kept.append(select(step, took_B.nonzero().flatten().to(history.memory.device)))
        return kept
