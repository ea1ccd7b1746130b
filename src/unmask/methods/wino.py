"""WINO (Hong et al.). Taxonomy: draft verification | parallel draft | active region | re-maskable | draft-verify."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, region, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, ModelInput, Needs, Policy, State, Trajectory
from unmask.methods.blocks import check_block_length
from unmask.methods.card import Card
from unmask.methods.shadows import originals, shadow_view

_FIRST_LAST = 30
"""Drafts a block's first step pretends to follow: more than any block re-masks."""


@dataclass(frozen=True)
class WINO(Policy):
    """Draft every position above tau1; re-mask revealed ones that their shadow doubts.

    Each position of the open block has a shadow slot after the canvas: a mask at the same position that reads
    everything but its original. The probability a shadow gives to the standing token verifies it in the same pass.
    """

    name: ClassVar[str] = "wino"
    card: ClassVar[Card] = Card(
        "Hong et al. 2026, WINO (arXiv 2507.18578)",
        "draft verification",
        "parallel draft",
        "active region",
        "re-maskable",
        planning="draft-verify",
        differs=(
            "the last block may be shorter, and rows run together (theirs takes one row)",
            "committed tokens are never doubted: another policy may have committed some",
        ),
        presets={
            "llada/gsm8k": {"tau1": 0.6},
            "llada/math": {"tau1": 0.7},
            "llada/humaneval": {"tau1": 0.7},
            "llada/sudoku": {"tau1": 0.7},
            "llada/mbpp": {"tau1": 0.8},
            "llada/countdown": {"tau1": 0.5},
            "llada/arc": {"tau1": 0.5},
        },
    )
    needs = Needs(shadows=True)
    past_steps = 1
    steps = "ignore"
    block_length: int = 128
    tau1: float = 0.6
    """Draft threshold, strict."""
    tau2: float = 0.9
    """Verification threshold, strict."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "the authors use 128", optional=False)
        for name, value in (("tau1", self.tau1), ("tau2", self.tau2)):
            require(0 <= value <= 1, name, value, "0 to 1", "it is a probability")

    def model_input(self, traj: Trajectory) -> ModelInput:
        state = traj.state
        length = state.tokens_BL.shape[1]
        original_BS, exists_BS = self._originals(state, _block(state, self.block_length))
        asked_BS = exists_BS & state.revisable_BL.gather(1, original_BS)
        standing_BS = torch.where(asked_BS, state.tokens_BL.gather(1, original_BS), -1)
        inputs = shadow_view(state, original_BS, exists_BS)
        return replace(
            inputs,
            wanted_BN=torch.cat((inputs.wanted_BN[:, :length], asked_BS), 1),
            given_BN=torch.cat((torch.full_like(state.tokens_BL, -1), standing_BS), 1),
        )

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        block_B = _block(state, self.block_length)
        end_B1 = ((block_B + 1) * self.block_length)[:, None]
        open_BL = state.masked_BL & (state.rank_BL < end_B1)
        n_B = open_BL.sum(-1)
        sure_BL = open_BL & (traj.current_prediction.confidence_BN[:, : open_BL.shape[1]] > self.tau1)
        cap_B = (7 * n_B // 10).clamp(5, 20)
        drafts_B = torch.minimum(torch.minimum(sure_BL.sum(-1).clamp(min=1), cap_B), n_B)
        return Action(
            score.rows("confidence", state),
            open_BL,
            cardinality.fraction(drafts_B, n_B),
            commitment.commit_none(state),
            remask_BL=self._doubted(traj, block_B, drafts_B),
            notes={"block_B": block_B, "drafts_B": drafts_B},
            rule="confidence",
        )

    def _doubted(self, traj: Trajectory, block_B: Tensor, drafts_B: Tensor) -> Tensor:
        """R: fewer re-masks than the last step drafted, or the canvas would not fill up."""
        state = traj.state
        original_BS, exists_BS = self._originals(state, block_B)
        given_BN = traj.current_prediction.given_BN
        if given_BN is None:
            return torch.zeros_like(state.fixed_BL)
        verify_BL = torch.full(state.tokens_BL.shape, 2.0, dtype=given_BN.dtype, device=given_BN.device)
        asked_BS = exists_BS & state.revisable_BL.gather(1, original_BS)
        shadow_BS = torch.where(asked_BS, given_BN[:, state.tokens_BL.shape[1] :], 2.0)
        # Slots past the block's end point at position 0; min keeps them from overwriting a real entry.
        verify_BL = verify_BL.scatter_reduce(1, original_BS, shadow_BS, "amin")
        doubt_BL = verify_BL < self.tau2
        last_B = traj.notes.get("drafts_B", torch.full_like(block_B, _FIRST_LAST))
        same_block_B = traj.notes.get("block_B", torch.full_like(block_B, -1)) == block_B
        last_B = torch.where(same_block_B, last_B, _FIRST_LAST)
        count_B = torch.minimum(doubt_BL.sum(-1), last_B - 1)
        count_B = torch.where(drafts_B > 1, count_B, 0)
        return score.best(-verify_BL, doubt_BL, count_B)

    def _originals(self, state: State, block_B: Tensor) -> tuple[Tensor, Tensor]:
        """A slot for every position of the block, or of the whole canvas where that is shorter."""
        slots = min(self.block_length, state.tokens_BL.shape[1])
        return originals(state, block_B * self.block_length, slots)


def _block(state: State, size: int) -> Tensor:
    """The leftmost block with a mask."""
    return torch.where(state.masked_BL.any(-1), region.first_mask(state), 0) // size
