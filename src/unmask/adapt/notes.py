"""The record of an adaptive policy: what it notes at each step, and how often it left its fixed action.

Notes are the one channel from a policy into a recorded run; nothing is decided by these.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.adapt.diagnostics import Reading
from unmask.base.errors import require
from unmask.core import Trajectory


@dataclass(frozen=True)
class Coverage:
    """Steps of each row of a run."""

    steps_B: Tensor
    evaluated_B: Tensor
    """Steps at which there was a signal, so that the gate could have opened; never a row's first."""
    deviated_B: Tensor

    @property
    def share(self) -> float:
        """Deviations by evaluated steps, all rows together; NaN without any."""
        evaluated = int(self.evaluated_B.sum())
        return int(self.deviated_B.sum()) / evaluated if evaluated else float("nan")


def noted(diagnostic: str, reading: Reading, open_B: Tensor) -> dict[str, Tensor]:
    """The notes of one step, under the name of the diagnostic: several of one axis do not mix."""
    return {
        f"{diagnostic}/signal_B": reading.signal_B,
        f"{diagnostic}/evaluated_B": ~reading.abstains_B,
        f"{diagnostic}/deviated_B": open_B,
    }


def without_record(notes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All notes but those that `noted` made, for whichever diagnostic."""
    record = tuple(f"{diagnostic}/" for diagnostic in recorded(notes))
    return {name: note for name, note in notes.items() if not name.startswith(record)}


def coverage(run: Trajectory) -> dict[str, Coverage]:
    """By the name of each diagnostic that was followed; empty for other policies."""
    require(bool(run.steps), "steps of the run", 0, "one or more", "decode with record=True")
    zero_B = torch.zeros_like(run.forwards_B)
    counts: dict[str, Coverage] = {}
    for step in run.steps:
        notes = step.action.notes
        for diagnostic in recorded(notes):
            so_far = counts.get(diagnostic, Coverage(zero_B, zero_B, zero_B))
            evaluated_B, deviated_B = (notes[f"{diagnostic}/{name}"] for name in ("evaluated_B", "deviated_B"))
            counts[diagnostic] = Coverage(
                so_far.steps_B.index_add(0, step.rows_B, torch.ones_like(step.rows_B)),
                so_far.evaluated_B.index_add(0, step.rows_B, evaluated_B.long()),
                so_far.deviated_B.index_add(0, step.rows_B, deviated_B.long()),
            )
    return counts


def recorded(notes: Mapping[str, Tensor]) -> list[str]:
    """The diagnostics that notes are of."""
    return [name.removesuffix(_MARK) for name in notes if name.endswith(_MARK)]


_MARK = "/deviated_B"
