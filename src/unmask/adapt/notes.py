"""The record of an adaptive policy: what it notes at each step, and how often it left its fixed action.

Notes are the one channel from a policy into a recorded run; nothing is decided by these.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.core import Trajectory
from unmask.diagnostics import Reading
from unmask.errors import require


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


def noted(axis: str, reading: Reading, open_B: Tensor) -> dict[str, Tensor]:
    """The notes of one axis at one step."""
    return {
        f"{axis}/signal_B": reading.signal_B,
        f"{axis}/evaluated_B": ~reading.abstains_B,
        f"{axis}/deviated_B": open_B,
    }


def coverage(run: Trajectory) -> dict[str, Coverage]:
    """Of each axis that was adapted; empty for other policies."""
    require(bool(run.steps), "steps of the run", 0, "one or more", "decode with record=True")
    zero_B = torch.zeros_like(run.forwards_B)
    found: dict[str, Coverage] = {}
    for step in run.steps:
        for axis in [name.removesuffix(_MARK) for name in step.action.notes if name.endswith(_MARK)]:
            so_far = found.get(axis, Coverage(zero_B, zero_B, zero_B))
            evaluated_B, deviated_B = (step.action.notes[f"{axis}/{name}"] for name in ("evaluated_B", "deviated_B"))
            found[axis] = Coverage(
                so_far.steps_B.index_add(0, step.rows_B, torch.ones_like(step.rows_B)),
                so_far.evaluated_B.index_add(0, step.rows_B, evaluated_B.long()),
                so_far.deviated_B.index_add(0, step.rows_B, deviated_B.long()),
            )
    return found


_MARK = "/deviated_B"
