"""Commitment diagnostic: commit a token if its value as lasting context exceeds the pressure to revise it.

`app:commitment_diagnostic`
"""

from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from unmask.adapt.diagnostics.base import (
    Diagnostic,
    Positive,
    Reading,
    abstain,
    open_positions,
    planned_count,
    priority,
    require_part,
)
from unmask.adapt.diagnostics.context_transfer import attention, context_supplied, reliability, sensitivity
from unmask.axes import COMMITMENT, score
from unmask.core import Action, Trajectory


@dataclass(frozen=True)
class CommitmentDiagnostic(Diagnostic):
    """Propose to commit the new tokens whose context value reaches their revision pressure.

    Signal: the largest excess of pressure over value among the new tokens.
    """

    name: ClassVar[str] = "commitment"
    axis: ClassVar[str] = COMMITMENT.name
    ordered: ClassVar[bool] = False
    cuda_graph: ClassVar[bool] = True
    epsilon: Positive = 1e-3
    """Added to the received context in the sensitivity, so that too little attention explains no large change."""
    window: Annotated[int, Field(ge=1)] = 4
    """Number of past transitions over which the largest change of the posterior is taken."""

    @property
    def past_steps(self) -> int:
        return self.window

    def read(self, traj: Trajectory, action: Action) -> Reading:
        last, state = traj.last, traj.state
        if last is None:
            return abstain(traj, action)
        L = state.tokens_BL.shape[1]
        reaction = sensitivity(traj, last, self.epsilon)
        new_BL = score.best(
            priority(traj.current_prediction, action), open_positions(state, action), planned_count(state, action)
        )
        waiting_BL = state.masked_BL & ~new_BL
        # Only positions that stay masked after this step can still use context.
        tau_BL = torch.where(waiting_BL, reaction.tau_BL, 0.0)
        phi_BLL = attention(traj.current_prediction, L)
        beta_BL = reliability(traj.current_prediction, L) * context_supplied(phi_BLL, tau_BL)
        rho_BL = revision_radius(traj, self.window)
        p_BLK = traj.current_prediction.clean.p_BNK[:, :L]
        # A posterior that moved by less than its flip radius cannot have lost its leading token.
        eta_BL = (rho_BL - flip_radius(p_BLK[..., 0], p_BLK[..., 1])).clamp(min=0)

        judged_BL = new_BL & ~rho_BL.isnan()
        # beta is 0 without other masked positions, and unknown if the sensitivity of all of them is unknown.
        valued_B = (reaction.known_BL & waiting_BL).any(-1) | ~waiting_BL.any(-1)
        abstains_B = ~(judged_BL.any(-1) & valued_B)
        # -inf keeps positions out of the maximum that are not judged.
        excess_BL = torch.where(judged_BL, eta_BL - beta_BL, -torch.inf)
        decided_BL = judged_BL & ~abstains_B[:, None]
        nan_BL = torch.full_like(beta_BL, torch.nan)
        return Reading(
            torch.where(abstains_B, torch.nan, excess_BL.amax(-1)),
            abstains_B,
            replace(action, commit_BL=torch.where(decided_BL, beta_BL >= eta_BL, action.commit_BL)),
            {"beta_BL": torch.where(judged_BL, beta_BL, nan_BL), "eta_BL": torch.where(judged_BL, eta_BL, nan_BL)},
        )


def revision_radius(traj: Trajectory, window: int) -> Tensor:
    """Return the revision radius rho: the largest KL(p_{tau-1} || p_tau) over the last transitions; NaN without any.

    Only transitions count at which the position was masked before and after. The old posterior comes first, because the
    ball of `thm:commitment_regime` is centred at it. `eq:app_revision_radius`
    """
    L = traj.state.tokens_BL.shape[1]
    moments = [(traj.current_prediction, traj.state), *((step.prediction, step.state) for step in reversed(traj.steps))]
    rho_BL = torch.full_like(traj.state.tokens_BL, -torch.inf, dtype=torch.float64)
    for (prediction, after), (_, before) in islice(pairwise(moments), window):
        moved_BL = require_part(prediction.displacement_BN, "displacement")[:, :L].double()
        known_BL = after.masked_BL & before.masked_BL & ~moved_BL.isnan()
        rho_BL = torch.where(known_BL, torch.maximum(rho_BL, moved_BL), rho_BL)
    return torch.where(rho_BL.isinf(), torch.nan, rho_BL)


def flip_radius(p1_B: Tensor, p2_B: Tensor) -> Tensor:
    """Return the flip radius gamma: the smallest KL(p || q) that makes the two leading tokens equally probable.

    Computed from the relative margin, whose logarithms lose no digits near a tie and are finite at p2 = 0.
    `eq:commitment_flip_radius`
    """
    p1_B, p2_B = p1_B.double(), p2_B.double()
    margin_B = (p1_B - p2_B) / (p1_B + p2_B)
    return torch.special.xlog1py(p1_B, margin_B) + torch.special.xlog1py(p2_B, -margin_B)
