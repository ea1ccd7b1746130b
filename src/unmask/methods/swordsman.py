"""Swordsman (Zhang et al. 2026): blocks cut where entropy jumps, and a threshold that falls as a block gets easy."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unmask.axes import region, score
from unmask.core import Action, LookAhead, NonNegative, Policy, Probability, Trajectory


@dataclass(frozen=True)
class Swordsman(Policy):
    """End a block where entropy jumps most, and reveal positions above a threshold that falls as the block gets easy.

    A new block ends before the largest rise of entropy between neighbours. Without a large rise it takes all the rest.
    """

    name: ClassVar[str] = "swordsman"
    past_steps = 1
    steps = "ignore"
    cuda_graph = True
    tau_init: Probability = 0.9
    """Confidence threshold at the start of a block."""
    tau_min: NonNegative = 0.1
    """Smallest rise of entropy, in nats, that ends a block."""
    mean: Literal["block", "masked"] = "block"
    """Positions of the block's mean entropy: all of the "block", revealed ones as 0, or only the "masked" ones."""

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        # Revealed positions count as 0 in a block's mean, so the threshold falls as the block fills.
        entropy_BL = torch.where(state.masked_BL, traj.entropy_BL.double(), 0.0)
        notes = self._find_block(traj, entropy_BL)
        block_BL = state.answer_BL & (state.rank_BL >= notes["start_B"][:, None])
        block_BL = block_BL & (state.rank_BL <= notes["end_B"][:, None])
        open_BL = block_BL & state.masked_BL
        mean_B = _mean_over_positions(entropy_BL, open_BL, block_BL if self.mean == "block" else open_BL)
        started_B, ease_B = notes["entropy_B"], notes["ease_B"]
        # A block that began without entropy has 0 / 0 left: no NaN may reach the threshold.
        left_B = torch.where(started_B > 0, mean_B / started_B.clamp(min=1e-300), 0.0).clamp(max=1)
        tau_B = self.tau_init * ((1 - ease_B) + ease_B * left_B.sqrt())
        k_B = (open_BL & (traj.top_p_BL >= tau_B[:, None])).sum(-1).clamp(min=1)
        return Action.reveal(score.best(traj.top_p_BL, open_BL, k_B), of=open_BL, notes=notes)

    def _find_block(self, traj: Trajectory, entropy_BL: Tensor) -> dict[str, Tensor]:
        """Return the notes about each row's block: those of the last step, or new ones if that block is full."""
        state = traj.state
        first_B = region.first_mask_rank(state)
        end_B = self._find_boundary(traj, entropy_BL)
        new_BL = state.masked_BL & (state.rank_BL <= end_B[:, None])
        entropy_B = _mean_over_positions(entropy_BL, new_BL, new_BL)
        # The ease of a block is relative to the hardest one so far, including itself.
        hardest_B = torch.maximum(traj.notes.get("hardest_B", torch.zeros_like(entropy_B)), entropy_B)
        ease_B = torch.where(hardest_B > 0, 1 - entropy_B / hardest_B.clamp(min=1e-300), 0.0)
        new = {"start_B": first_B, "end_B": end_B, "entropy_B": entropy_B, "ease_B": ease_B, "hardest_B": hardest_B}
        if "end_B" not in traj.notes:
            return new
        go_on_B = first_B <= traj.notes["end_B"]
        return {name: torch.where(go_on_B, traj.notes[name], value) for name, value in new.items()}

    def _find_boundary(self, traj: Trajectory, entropy_BL: Tensor) -> Tensor:
        """Return the rank of the last position before the largest rise, or of the last mask if none is large."""
        state = traj.state
        # Neighbours are taken among the masks, because given tokens between them have no entropy.
        order_BL = torch.where(state.masked_BL, state.rank_BL, torch.iinfo(torch.long).max).argsort(dim=-1, stable=True)
        sorted_BL, rank_BL = entropy_BL.gather(1, order_BL), state.rank_BL.gather(1, order_BL)
        masks_B1 = state.masked_BL.sum(-1, keepdim=True)
        rise_BL = sorted_BL.roll(-1, 1) - sorted_BL
        # Behind the last mask there is no neighbour to rise to.
        at_L = torch.arange(rise_BL.shape[1], device=rise_BL.device)
        rise_BL = torch.where(at_L < masks_B1 - 1, rise_BL, float("-inf"))
        largest = rise_BL.max(-1, keepdim=True)
        at_B1 = torch.where(largest.values >= self.tau_min, largest.indices, (masks_B1 - 1).clamp(min=0))
        return rank_BL.gather(1, at_B1).squeeze(1)


def _mean_over_positions(entropy_BL: Tensor, summed_BL: Tensor, counted_BL: Tensor) -> Tensor:
    """Return the mean over positions, as a running sum, so that padding cannot change how it is rounded."""
    total_B = (entropy_BL * summed_BL).cumsum(-1)[:, -1]
    return total_B / counted_BL.sum(-1).clamp(min=1)
