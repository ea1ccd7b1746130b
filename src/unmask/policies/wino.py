"""WINO (Hong et al.). Taxonomy: draft and verify | parallel draft | active block | re-maskable | draft-verify."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, region, score
from unmask.core import Action, LookAhead, Needs, Policy, State, Trajectory, View
from unmask.errors import require

_FIRST_LAST = 30
"""Drafts a block's first step pretends to follow: more than any block re-masks."""


@dataclass(frozen=True)
class WINO(Policy):
    """Draft every position above tau1; re-mask revealed ones that their shadow doubts.

    Each position of the open block has a shadow slot after the canvas: a mask at the same position that reads
    everything but its original. The probability a shadow gives to the standing token verifies it in the same pass.
    """

    name: ClassVar[str] = "wino"
    block_length: int = 128
    tau1: float = 0.6
    """Draft threshold, strict."""
    tau2: float = 0.9
    """Verification threshold, strict."""

    def __post_init__(self) -> None:
        ok = 1 <= self.block_length <= 1_000_000
        require(ok, "block_length", self.block_length, "1 to 1000000", "the authors use 128")
        for name, value in (("tau1", self.tau1), ("tau2", self.tau2)):
            require(0 <= value <= 1, name, value, "0 to 1", "it is a probability")

    @property
    def needs(self) -> Needs:
        return Needs(shadows=True)

    @property
    def memory(self) -> int:
        return 1

    def view(self, traj: Trajectory) -> View:
        state = traj.state
        length, slots = state.tokens_BL.shape[1], self._slots(state)
        block = _block(state, self.block_length)
        original_BS, exists_BS = _originals(state, block, self.block_length, slots)
        standing_BS = torch.where(
            exists_BS & state.revisable_BL.gather(1, original_BS), state.tokens_BL.gather(1, original_BS), -1
        )
        plain = View.of(state, Needs())
        attend_BNN = torch.zeros(state.batch, length + slots, length + slots, dtype=torch.bool)
        attend_BNN = attend_BNN.to(state.tokens_BL.device)
        attend_BNN[:, :, :length] = state.valid_BL[:, None, :]
        attend_BNN[:, length:, length:] = exists_BS[:, None, :]
        own_BSL = torch.nn.functional.one_hot(original_BS, length).bool()
        attend_BNN[:, length:, :length] &= ~own_BSL
        cat = torch.cat
        return replace(
            plain,
            tokens_BN=cat((state.tokens_BL, torch.full_like(original_BS, state.mask_id)), 1),
            position_BN=cat((plain.position_BN, original_BS), 1),
            valid_BN=cat((plain.valid_BN, exists_BS), 1),
            fixed_BN=cat((plain.fixed_BN, torch.zeros_like(exists_BS)), 1),
            wanted_BN=cat((plain.wanted_BN, standing_BS >= 0), 1),
            attend_BNN=attend_BNN,
            given_BN=cat((torch.full_like(state.tokens_BL, -1), standing_BS), 1),
        )

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        block_B = _block(state, self.block_length)
        end_B1 = ((block_B + 1) * self.block_length)[:, None]
        open_BL = state.masked_BL & (state.rank_BL < end_B1)
        n_B = open_BL.sum(-1)
        sure_BL = open_BL & (traj.seen.confidence_BN[:, : open_BL.shape[1]] > self.tau1)
        cap_B = (7 * n_B // 10).clamp(5, 20)
        drafts_B = torch.minimum(torch.minimum(sure_BL.sum(-1).clamp(min=1), cap_B), n_B)
        return Action(
            score.pure("confidence", state),
            open_BL,
            cardinality.fraction(drafts_B, n_B),
            commitment.nothing(state),
            remask_BL=self._doubted(traj, block_B, drafts_B),
            notes={"block_B": block_B, "drafts_B": drafts_B},
        )

    def _doubted(self, traj: Trajectory, block_B: Tensor, drafts_B: Tensor) -> Tensor:
        """R: fewer re-masks than the last step drafted, or the canvas would not fill up."""
        state = traj.state
        slots = self._slots(state)
        original_BS, exists_BS = _originals(state, block_B, self.block_length, slots)
        given_BN = traj.seen.given_BN
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

    def _slots(self, state: State) -> int:
        """Shadow slots: a block, or the whole canvas where that is shorter."""
        return min(self.block_length, state.tokens_BL.shape[1])


def _block(state: State, size: int) -> Tensor:
    """The leftmost block with a mask."""
    return torch.where(state.masked_BL.any(-1), region.first_mask(state), 0) // size


def _originals(state: State, block_B: Tensor, size: int, slots: int) -> tuple[Tensor, Tensor]:
    """Canvas position that each shadow slot doubles, and whether there is one."""
    wanted_BS = block_B[:, None] * size + torch.arange(slots, device=block_B.device)
    rank_BL = torch.where(state.answer_BL, state.rank_BL, -1)
    match_BSL = rank_BL[:, None, :] == wanted_BS[:, :, None]
    return match_BSL.long().argmax(-1), match_BSL.any(-1)
