"""Swordsman (Zhang et al.).

Taxonomy: entropy shift / confidence | adaptive threshold | adaptive blocks | irreversible | none.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, region, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Policy, Trajectory
from unmask.methods.card import RECONSTRUCTION, Card

MEANS = ("block", "masked")


@dataclass(frozen=True)
class Swordsman(Policy):
    """Cut the next block where entropy jumps most; reveal what is above a threshold that falls as the block gets easy.

    A new block ends before the largest rise of entropy between neighbours, or takes all that is left if none is large.
    """

    name: ClassVar[str] = "swordsman"
    card: ClassVar[Card] = Card(
        "Zhang et al. 2026, Swordsman (arXiv 2602.04399)",
        "entropy shift / confidence",
        "adaptive threshold",
        "adaptive blocks",
        "irreversible",
        label=RECONSTRUCTION,
        differs=(
            "from the paper's equations; natural logarithms, ties to the first index and a threshold of at most "
            "tau_init are our choice",
        ),
    )
    past_steps = 1
    steps = "ignore"
    cuda_graph = True
    tau_init: float = 0.9
    tau_min: float = 0.1
    """Least rise of entropy (nats) that ends a block."""
    mean: str = "block"
    """Entropy of a block while it is decoded: over the "block", revealed ones as 0, or over the "masked" ones only."""

    def __post_init__(self) -> None:
        require(0 <= self.tau_init <= 1, "tau_init", self.tau_init, "0 to 1", "it is a probability; published: 0.9")
        require(self.tau_min >= 0, "tau_min", self.tau_min, "0 or more", "published: 0.1")
        require(self.mean in MEANS, "mean", self.mean, " or ".join(MEANS), "the paper's text suggests block")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        length = state.tokens_BL.shape[1]
        entropy_BL = torch.where(state.masked_BL, traj.current_prediction.clean.entropy_BN[:, :length].double(), 0.0)
        notes = self._block(traj, entropy_BL)
        block_BL = state.answer_BL & (state.rank_BL >= notes["start_B"][:, None])
        block_BL = block_BL & (state.rank_BL <= notes["end_B"][:, None])
        open_BL = block_BL & state.masked_BL
        counted_BL = block_BL if self.mean == "block" else open_BL
        mean_B = _mean(entropy_BL, open_BL, counted_BL)
        started_B = notes["entropy_B"]
        left_B = torch.where(started_B > 0, mean_B / started_B.clamp(min=1e-300), 0.0).clamp(max=1)
        ease_B = notes["ease_B"]
        tau_B = self.tau_init * ((1 - ease_B) + ease_B * left_B.sqrt())
        confidence_BL = traj.current_prediction.clean.p_BNK[:, :length, 0]
        k_B = (open_BL & (confidence_BL >= tau_B[:, None])).sum(-1).clamp(min=1)
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(score.best(confidence_BL, open_BL, k_B), open_BL),
            commitment.commit_all(state),
            notes=notes,
            rule="confidence",
        )

    def _block(self, traj: Trajectory, entropy_BL: Tensor) -> dict[str, Tensor]:
        """The block of each row: as noted, or cut anew where that one is full."""
        state = traj.state
        first_B = region.first_mask(state)
        end_B = self._boundary(traj, entropy_BL)
        new_BL = state.masked_BL & (state.rank_BL <= end_B[:, None])
        entropy_B = _mean(entropy_BL, new_BL, new_BL)
        zero_B = torch.zeros_like(entropy_B)
        hardest_B = torch.maximum(traj.notes.get("hardest_B", zero_B), entropy_B)
        ease_B = torch.where(hardest_B > 0, 1 - entropy_B / hardest_B.clamp(min=1e-300), 0.0)
        new = {"start_B": first_B, "end_B": end_B, "entropy_B": entropy_B, "ease_B": ease_B, "hardest_B": hardest_B}
        if "end_B" not in traj.notes:
            return new
        go_on_B = first_B <= traj.notes["end_B"]
        return {name: torch.where(go_on_B, traj.notes[name], value) for name, value in new.items()}

    def _boundary(self, traj: Trajectory, entropy_BL: Tensor) -> Tensor:
        """Rank of the last position before the largest rise; of the last mask where no rise reaches tau_min."""
        state = traj.state
        order_BL = torch.where(state.masked_BL, state.rank_BL, torch.iinfo(torch.long).max).argsort(dim=-1, stable=True)
        sorted_BL, rank_BL = entropy_BL.gather(1, order_BL), state.rank_BL.gather(1, order_BL)
        masks_B1 = state.masked_BL.sum(-1, keepdim=True)
        rise_BL = sorted_BL.roll(-1, 1) - sorted_BL
        at_L = torch.arange(rise_BL.shape[1], device=rise_BL.device)
        rise_BL = torch.where(at_L < masks_B1 - 1, rise_BL, float("-inf"))
        largest = rise_BL.max(-1, keepdim=True)
        at_B1 = torch.where(largest.values >= self.tau_min, largest.indices, (masks_B1 - 1).clamp(min=0))
        return rank_BL.gather(1, at_B1).squeeze(1)


def _mean(entropy_BL: Tensor, summed_BL: Tensor, counted_BL: Tensor) -> Tensor:
    """One running sum per row, so that padding cannot change how it is rounded."""
    total_B = (entropy_BL * summed_BL).cumsum(-1)[:, -1]
    return total_B / counted_BL.sum(-1).clamp(min=1)
