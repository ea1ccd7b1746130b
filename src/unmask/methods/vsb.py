"""VSB-style (after Wang, Qiu and Huang 2026): blocks that end where predictions do not depend on the future."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unmask.axes import cardinality, region
from unmask.base.errors import ConfigError, require
from unmask.core import Action, LookAhead, Needs, NonNegative, Policy, Posterior, Probability, State, Trajectory
from unmask.methods.blocks import shadow_input, shadow_positions


@dataclass(frozen=True)
class VSB(Policy):
    """End a block where its predictions with and without the following text agree, and decode it by a threshold.

    At a block's start the next `window` positions are drafted. For each possible end, predictions that read the whole
    draft are compared with predictions that read only up to this end. The longest block whose divergence is small is
    decoded.
    """

    name: ClassVar[str] = "vsb"
    past_steps = 1
    looks_ahead = True
    steps = "ignore"
    window: int = 32
    """Length of the longest block."""
    least: int = 4
    """Length of the shortest block."""
    delta: NonNegative = 0.01
    """Largest divergence, in nats, of a self-contained block."""
    aggregate: Literal["mean", "max"] = "mean"
    threshold: Probability = 0.9
    """Confidence from which positions of the block are revealed; at least one is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ordered = 1 <= self.least <= self.window <= 1024
        require(ordered, "least, window", (self.least, self.window), "1 <= least <= window <= 1024", "e.g. 4, 32")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        end_B = self._find_block_end(traj, look_ahead)
        open_BL = state.masked_BL & (state.rank_BL < end_B[:, None])
        k_B = cardinality.count_above(traj.confidence_BL, self.threshold, open_BL)
        return Action.top(state, open_BL, k_B, notes={"end_B": end_B})

    def _find_block_end(self, traj: Trajectory, look_ahead: LookAhead) -> Tensor:
        """Return the rank behind the block's last position: the noted one, or a new one if that block is full."""
        first_B = region.first_mask_rank(traj.state)
        end_B = traj.notes.get("end_B", torch.zeros_like(first_B)).clone()
        row_U = (first_B >= end_B).nonzero().flatten()
        if len(row_U):
            end_B[row_U] = first_B[row_U] + self._choose_lengths(traj, look_ahead, row_U, first_B[row_U])
        return end_B

    def _choose_lengths(self, traj: Trajectory, look_ahead: LookAhead, row_U: Tensor, first_U: Tensor) -> Tensor:
        """Return the lengths of the blocks that these rows begin."""
        drafted = traj.state.select(row_U)
        in_window_UL = drafted.masked_BL & (drafted.rank_BL < (first_U + self.window)[:, None])
        # The window is filled with the model's own tokens: the text that predictions may depend on.
        drafted = replace(drafted, tokens_BL=torch.where(in_window_UL, traj.token_BL[row_U], drafted.tokens_BL))
        last_U = torch.minimum(first_U + self.window, drafted.answer_BL.sum(-1)) - first_U
        aware = self._predict_window(look_ahead, drafted, row_U, first_U, None)
        length_W = torch.arange(1, self.window + 1, device=row_U.device)
        able_UW = (length_W <= last_U[:, None]) & (length_W >= last_U.clamp(max=self.least)[:, None])
        # Every pair of a row and a length is one hypothetical row, so that no row pays for another row's lengths.
        at_P, width_P = able_UW.nonzero(as_tuple=True)
        length_P = length_W[width_P]
        blind = self._predict_window(look_ahead, drafted.select(at_P), row_U[at_P], first_U[at_P], length_P)
        divergence_PS = _jensen_shannon(aware.select(at_P), blind)[:, -self.window :]
        # A running sum is rounded in the same way whatever the padding.
        mean_P = divergence_PS.cumsum(-1)[:, -1] / length_P
        divergence_UW = torch.full(able_UW.shape, float("inf"), dtype=torch.float64, device=row_U.device)
        divergence_UW[at_P, width_P] = mean_P if self.aggregate == "mean" else divergence_PS.amax(-1)
        return 1 + longest_within(divergence_UW, self.delta)

    def _predict_window(
        self, look_ahead: LookAhead, drafted: State, row_U: Tensor, first_U: Tensor, length_U: Tensor | None
    ) -> Posterior:
        """Predict each position of the window without its own token; `length_U` also hides the text behind a block."""
        size = drafted.tokens_BL.shape[1]
        inputs = shadow_input(drafted, *shadow_positions(drafted, first_U, self.window))
        wanted_UN = inputs.wanted_BN.clone()
        wanted_UN[:, :size] = False
        # A shadow reads the draft, not the other shadows.
        attend_UNN = inputs.attend_BNN.clone()  # type: ignore[union-attr]
        attend_UNN[:, size:, size:] = torch.eye(self.window, dtype=torch.bool, device=row_U.device)
        if length_U is not None:
            beyond_UL = drafted.answer_BL & (drafted.rank_BL >= (first_U + length_U)[:, None])
            attend_UNN[:, :, :size] &= ~beyond_UL[:, None, :]
            wanted_UN[:, size:] &= torch.arange(self.window, device=row_U.device) < length_U[:, None]
        inputs = replace(inputs, attend_BNN=attend_UNN, wanted_BN=wanted_UN)
        posterior = look_ahead.predict(drafted, row_U, Needs(posterior=True, shadows=True), inputs=inputs).posterior
        if posterior is None:
            raise ConfigError("the look-ahead gave no posterior; allowed: an answer to Needs(posterior=True); check it")
        return posterior


def _jensen_shannon(one: Posterior, other: Posterior) -> Tensor:
    """Return the Jensen-Shannon divergence of two predictions at each slot, in nats; 0 where one is missing."""
    both_US = (one.slot_BN >= 0) & (other.slot_BN >= 0)
    log_p = one.log_prob(one.slot_BN[both_US]).double()
    log_q = other.log_prob(other.slot_BN[both_US]).double()
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    divergence = (log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)).sum(-1) / 2
    out_US = torch.zeros(both_US.shape, dtype=torch.float64, device=both_US.device)
    out_US[both_US] = divergence.clamp(min=0)
    return out_US


def longest_within(divergence_UW: Tensor, delta: float) -> Tensor:
    """Return the index of the last divergence up to delta, or of the smallest one if all are larger."""
    size = divergence_UW.shape[1]
    within_UW = divergence_UW <= delta
    last_U = size - 1 - within_UW.flip(-1).long().argmax(-1)
    smallest_U = size - 1 - divergence_UW.flip(-1).argmin(-1)
    return torch.where(within_UW.any(-1), last_U, smallest_U)
