"""The last steps of rows that stay where they are: what a recorded step reads of its past, and what is kept of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.core import Layout, PackedSlots, Posterior, Step, axes_of, copy_in, map_tensors, same_form, select, tensors
from unmask.engine.step import light_step

ROOM = 16
"""Records that are made room for at a time."""


class NotGraphable(Exception):
    """Why some work cannot be recorded."""


@dataclass(frozen=True)
class _Heavy:
    """What a step keeps only as long as it is the newest: it grows with the vocabulary, or with the canvas squared."""

    posterior: Posterior | None
    attention_BNN: Tensor | None

    @classmethod
    def of(cls, step: Step) -> "_Heavy":
        return cls(step.prediction.posterior, step.prediction.attention_BNN)


class HistoryBuffer:
    """At most so many steps in memory of their own, the newest last."""

    def __init__(self, most: int):
        self.most = most
        self.layout: Layout[tuple[Step, Tensor]] | None = None
        """Of a step and of the rows that took it."""
        self.memory: Tensor
        """A line for each step."""
        self._heavy: _Heavy

    def steps(self, depth: int) -> tuple[Step, ...]:
        """The last so many. Only the heavy parts lie where the next step is written to."""
        if not depth or self.layout is None:
            return ()
        lines = self.memory[self.most - depth :].clone()
        *older, last = (self.layout.read(line)[0] for line in lines)
        heavy = self._heavy
        seen = replace(last.prediction, posterior=heavy.posterior, attention_BNN=heavy.attention_BNN)
        return (*older, replace(last, prediction=seen))

    def push(self, step: Step, took_B: Tensor) -> None:
        """Keep one more step, and the rows that took it."""
        heavy, layout = _Heavy.of(step), self._layout(step, took_B)
        if not same_form(self._heavy, heavy):
            raise NotGraphable("what it reads of the posterior changes its shape")
        self._shift_in(layout, (light_step(step), took_B))
        copy_in(list(tensors(self._heavy).values()), list(tensors(heavy).values()))

    def load(self, steps: Sequence[Step], took_B: Tensor, rows: int) -> None:
        """Take up the past of other rows; posteriors have so many packed ones here."""
        if not steps:
            return
        *older, last = steps
        last = _repacked(last, rows)
        layout = self._layout(last, took_B)
        for step in older:
            self._shift_in(layout, (step, took_B))
        self.push(last, took_B)

    def _layout(self, step: Step, took_B: Tensor) -> Layout[tuple[Step, Tensor]]:
        """Made for the first step that comes; later ones must fit."""
        if self.layout is None:
            _check_names(step)
            self.layout = Layout.of((light_step(step), took_B))
            with torch.inference_mode(False):
                self.memory = torch.zeros(self.most, self.layout.size, dtype=torch.uint8, device=took_B.device)
                self._heavy = map_tensors(_Heavy.of(step), lambda part: torch.zeros_like(part))
        return self.layout

    def _shift_in(self, layout: Layout[tuple[Step, Tensor]], value: tuple[Step, Tensor]) -> None:
        if not layout.fits(value):
            raise NotGraphable("what it keeps of a step changes from step to step")
        if self.most > 1:
            self.memory[:-1].copy_(self.memory[1:].clone())
        layout.write(self.memory[-1], value)


class StepLog:
    """Every step that was taken, out of the memory of the past."""

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []
        self._count = 0

    def add(self, past: HistoryBuffer) -> None:
        """Keep the newest step."""
        if self._count % ROOM == 0:
            with torch.inference_mode(False):
                self._pieces.append(past.memory.new_empty(ROOM, past.memory.shape[1]))
        self._pieces[-1][self._count % ROOM].copy_(past.memory[-1])
        self._count += 1

    def steps(self, past: HistoryBuffer) -> list[Step]:
        """Each with the rows that took it, as the plain loop has them; those that nobody took are left out."""
        if past.layout is None or not self._count:
            return []
        lines = [line for piece in self._pieces for line in piece][: self._count]
        values = [past.layout.read(line) for line in lines]
        took = torch.stack([took_B for _, took_B in values]).cpu()
        device = past.memory.device
        kept = []
        for (step, _), took_B in zip(values, took, strict=True):
            if bool(took_B.all()):
                kept.append(step)
            elif bool(took_B.any()):
                kept.append(select(step, took_B.nonzero().flatten().to(device)))
        return kept


def _check_names(step: Step) -> None:
    """Canvases are padded: what is cut off again in the end is found by the letters of its axes."""
    for path, part in tensors(step).items():
        if len(axes_of(path)) != part.dim():
            raise NotGraphable(f"{path[-1]!r} of its action does not end in a letter for each of its {part.dim()} axes")


def _repacked(step: Step, rows: int) -> Step:
    """The same step with another number of packed rows in its posterior."""
    old = step.prediction.posterior
    if old is None:
        return step
    packed = PackedSlots(old.slot_BN >= 0, rows)
    row_R = old.slot_BN.flatten()[packed.index_R].clamp(min=0)
    new = replace(old, logits_RV=old.logits_RV[row_R], logz_R=old.logz_R[row_R], slot_BN=packed.row_BN)
    return replace(step, prediction=replace(step.prediction, posterior=new))
