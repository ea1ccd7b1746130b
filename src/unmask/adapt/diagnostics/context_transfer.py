"""Directed context transfer D(i -> j) = p_i tau_j phi(i -> j), read by the cardinality and commitment diagnostics.

phi(i -> j) is the attention from query j to key i, `attention_BNN[:, j, i]`. D itself is never built, because both
diagnostics need only its row and column sums. `eq:app_context_transfer`
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.adapt.diagnostics.base import compute_once, masked_at_both_steps, ordered_sum, require_part
from unmask.core import Prediction, Step, Trajectory


@dataclass(frozen=True)
class Sensitivity:
    """Sensitivity tau of each position to the context that the last step revealed."""

    tau_BL: Tensor
    """Change of the prediction per unit of received context; 0 where it is unknown."""
    known_BL: Tensor
    """Positions whose tau is known: masked at both steps, in rows whose last step revealed a token."""


def sensitivity(traj: Trajectory, last: Step, epsilon: float) -> Sensitivity:
    """Compute tau_j = delta_j / (epsilon + sum over the positions r revealed by the last step of p_r phi(r -> j)).

    delta is the drift KL(p_t || p_{t-1}) with the new posterior first, so that its mean is the information that j
    gained. `eq:app_target_sensitivity`
    """

    def compute() -> Sensitivity:
        length = traj.state.tokens_BL.shape[1]
        delta_BL = require_part(traj.current_prediction.drift_BN, "drift")[:, :length].double()
        source_BL = torch.where(last.revealed_BL, reliability(last.prediction, length), 0.0)
        received_BL = context_received(attention(last.prediction, length, "attention of the last step"), source_BL)
        known_BL = masked_at_both_steps(traj, last) & ~delta_BL.isnan() & last.revealed_BL.any(-1, keepdim=True)
        return Sensitivity(torch.where(known_BL, delta_BL / (epsilon + received_BL), 0.0), known_BL)

    return compute_once(traj, ("sensitivity", epsilon), compute)


def reliability(prediction: Prediction, length: int) -> Tensor:
    """Return the reliability p of each position: the largest probability of its posterior."""
    return prediction.clean.p_BNK[:, :length, 0].double()


def attention(prediction: Prediction, length: int, name: str = "attention") -> Tensor:
    """Return the attention phi between the positions of the canvas, without the slots behind it."""
    return require_part(prediction.attention_BNN, name)[:, :length, :length]


def context_received(phi_BLL: Tensor, source_BL: Tensor) -> Tensor:
    """Return the context that each position j receives from weighted sources: sum over i of phi(i -> j) source_i."""
    return ordered_sum(phi_BLL * source_BL[:, None, :].to(phi_BLL.dtype)).double()


def context_supplied(phi_BLL: Tensor, target_BL: Tensor) -> Tensor:
    """Return the context that each position i gives to weighted targets: sum over j of phi(i -> j) target_j."""
    return ordered_sum((phi_BLL * target_BL[:, :, None].to(phi_BLL.dtype)).transpose(1, 2)).double()
