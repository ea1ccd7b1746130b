"""What an answer cost: one list of what is counted, for `generate` and `compare` alike."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.core.state import State
from unmask.core.trajectory import Trajectory


class AnswerCost(NamedTuple):
    """Of one answer, or of several together."""

    forwards: int
    """Denoiser passes, looks ahead and guidance included."""
    extra_forwards: int
    """Of those: beyond one a step."""
    planner_forwards: int
    """Passes of a second network, counted apart."""
    remasks: int
    """How often a revealed position was re-opened."""
    processed_tokens: int
    """What the denoiser's passes read: a longer pass costs more than a short one."""
    tokens: int
    """Answer positions, those that only fill the canvas up among them; `answer_tokens` leaves these out."""


def cost_columns(traj: Trajectory) -> tuple[Tensor, ...]:
    """The fields of `AnswerCost` for every row, on the run's device."""
    zero_B = torch.zeros_like(traj.forwards_B)
    return (
        traj.forwards_B,
        traj.forwards_B - traj.state.step_B,
        zero_B if traj.planner_forwards_B is None else traj.planner_forwards_B,
        zero_B if traj.remasks_B is None else traj.remasks_B,
        traj.processed_B,
        traj.state.answer_BL.sum(-1),
    )


def answer_tokens(state: State, ends: Sequence[int], *, cut: bool) -> Tensor:
    """Tokens of each row's answer without its filler: end of text, and with `cut` all that comes after the first."""
    end_BL = torch.isin(state.tokens_BL, torch.tensor(ends, dtype=torch.long, device=state.tokens_BL.device))
    end_BL &= state.answer_BL
    return (state.answer_BL & ~(end_BL.cumsum(-1) > 0 if cut else end_BL)).sum(-1)


def total_cost(traj: Trajectory) -> AnswerCost:
    """Of all rows together."""
    return AnswerCost(*torch.stack(cost_columns(traj), 1).sum(0).tolist())
