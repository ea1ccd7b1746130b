"""WINO (Hong et al. 2026): draft many tokens at once, and mask those again that shadow slots doubt."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import region, score
from unmask.core import Action, BlockLength, LookAhead, ModelInput, Needs, Policy, Probability, State, Trajectory
from unmask.methods.blocks import shadow_input, shadow_positions

_FIRST_LAST = 30
"""Number of earlier drafts assumed at a block's first step; larger than the number that a block remasks."""


@dataclass(frozen=True)
class WINO(Policy):
    """Draft every position above tau1, and mask revealed positions again to which their shadow gives less than tau2.

    Each position of the open block has a shadow slot behind the canvas: a mask at the same position that reads
    everything except its original. The probability that it gives to the token there verifies it in the same pass.
    """

    name: ClassVar[str] = "wino"
    needs = Needs(shadows=True)
    past_steps = 1
    steps = "ignore"
    block_length: BlockLength = 128
    tau1: Probability = 0.6
    """Confidence above which a position is drafted."""
    tau2: Probability = 0.9
    """Probability below which a revealed token is doubted."""

    @property
    def remasks(self) -> bool:
        return self.tau2 > 0

    def model_input(self, traj: Trajectory) -> ModelInput:
        state = traj.state
        original_BS, exists_BS, asked_BS = self._shadow_slots(state)
        standing_BS = torch.where(asked_BS, state.tokens_BL.gather(1, original_BS), -1)
        inputs = shadow_input(state, original_BS, exists_BS)
        return replace(
            inputs,
            wanted_BN=torch.cat((inputs.wanted_BN[:, : state.tokens_BL.shape[1]], asked_BS), 1),
            given_BN=torch.cat((torch.full_like(state.tokens_BL, -1), standing_BS), 1),
        )

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, block_B = traj.state, self._block_number(traj.state)
        open_BL = state.masked_BL & (state.rank_BL < ((block_B + 1) * self.block_length)[:, None])
        n_B = open_BL.sum(-1)
        sure_B = (open_BL & (traj.confidence_BL > self.tau1)).sum(-1).clamp(min=1)
        # The authors' caps: seven tenths of the masks, between 5 and 20.
        drafts_B = torch.minimum(torch.minimum(sure_B, (7 * n_B // 10).clamp(5, 20)), n_B)
        remask_BL = self._find_doubtful(traj, block_B, drafts_B)
        notes = {"block_B": block_B, "drafts_B": drafts_B}
        return Action.top(state, open_BL, drafts_B, commit=False, remask_BL=remask_BL, notes=notes)

    def _find_doubtful(self, traj: Trajectory, block_B: Tensor, drafts_B: Tensor) -> Tensor:
        """Return the positions to mask again (R): fewer than the last step drafted, or the canvas would never fill."""
        state, given_BN = traj.state, traj.current_prediction.given_BN
        if given_BN is None:
            return torch.zeros_like(state.fixed_BL)
        original_BS, _, asked_BS = self._shadow_slots(state)
        # 2 is above every probability, so positions without a shadow are never doubted.
        verify_BL = torch.full(state.tokens_BL.shape, 2.0, dtype=given_BN.dtype, device=given_BN.device)
        shadow_BS = torch.where(asked_BS, given_BN[:, state.tokens_BL.shape[1] :], 2.0)
        # Slots behind the block's end point at position 0; the minimum keeps them from overwriting a real entry.
        verify_BL = verify_BL.scatter_reduce(1, original_BS, shadow_BS, "amin")
        doubt_BL = verify_BL < self.tau2
        # The drafts of another block do not limit this one.
        last_B = traj.notes.get("drafts_B", torch.full_like(block_B, _FIRST_LAST))
        same_block_B = traj.notes.get("block_B", torch.full_like(block_B, -1)) == block_B
        last_B = torch.where(same_block_B, last_B, _FIRST_LAST)
        count_B = torch.minimum(doubt_BL.sum(-1), last_B - 1)
        return score.best(-verify_BL, doubt_BL, torch.where(drafts_B > 1, count_B, 0))

    def _shadow_slots(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return each shadow slot's position, whether it has one, and whether the token there may be masked again.

        There are as many slots as positions in a block, or on the canvas if that is shorter.
        """
        slots = min(self.block_length, state.tokens_BL.shape[1])
        original_BS, exists_BS = shadow_positions(state, self._block_number(state) * self.block_length, slots)
        return original_BS, exists_BS, exists_BS & state.revisable_BL.gather(1, original_BS)

    def _block_number(self, state: State) -> Tensor:
        """Return the number of the leftmost block with a mask."""
        return torch.where(state.masked_BL.any(-1), region.first_mask_rank(state), 0) // self.block_length
