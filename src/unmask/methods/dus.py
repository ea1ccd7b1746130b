"""DUS, Plan for Speed (Luxembourg, Permuter and Nachmani 2026): equally spaced groups of a block, coarse to fine."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import region
from unmask.core import Action, BlockLength, Count, LookAhead, Policy, Probability, Trajectory


@dataclass(frozen=True)
class DUS(Policy):
    """Reveal a block in equally spaced groups, coarse to fine, whatever the model predicts.

    A block of B positions takes about log_a(B) steps. The spacing keeps positions that are revealed together nearly
    independent.
    """

    name: ClassVar[str] = "dus"
    steps = "ignore"
    cuda_graph = True
    block_cache = True
    block_length: BlockLength = 32
    base: Count = 2
    """Factor a between the strides of one group and the next."""
    base_skip: Annotated[int, Field(ge=1, le=64)] = 1
    """The first stride is block_length / base^base_skip."""
    skip: Probability = 0.0
    """Probability below which a scheduled position is skipped, except in a block's last group; the authors use 0.3."""
    leave_skipped: bool = False
    """Leave skipped positions masked at the end, as the authors' code does."""

    @property
    def own_end(self) -> bool:
        return self.leave_skipped

    def done(self, traj: Trajectory) -> Tensor:
        full_B = super().done(traj)
        blocks_B = -(-traj.state.answer_BL.sum(-1) // self.block_length)
        return full_B | (traj.state.step_B >= blocks_B * self._groups_per_block) if self.leave_skipped else full_B

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        level_L = region.table_on_device(tuple(self._group_of_offset), state.tokens_BL.device)
        # Groups are numbered through all blocks, so that step s is due for group s.
        group_BL = (
            state.rank_BL // self.block_length * self._groups_per_block + level_L[state.rank_BL % self.block_length]
        )
        if self.leave_skipped:
            now_B1 = state.step_B[:, None]
            due_BL = state.masked_BL & (group_BL == now_B1)
        else:
            # A row without masks in its group (given tokens, another policy's steps) goes on to the next group.
            lowest_B = torch.where(state.masked_BL, group_BL, torch.iinfo(torch.long).max).amin(-1)
            now_B1 = torch.maximum(state.step_B, lowest_B)[:, None]
            due_BL = state.masked_BL & (group_BL <= now_B1)
        # Nothing is skipped in a block's last group, so that every block is full before the next begins.
        last_B1 = now_B1 % self._groups_per_block == self._groups_per_block - 1
        return Action.reveal(due_BL & ((traj.top_p_BL >= self.skip) | last_B1), of=state.masked_BL)

    @cached_property
    def _group_of_offset(self) -> list[int]:
        """Group number of each offset within a block."""
        return region.dilation_level_per_offset(self.block_length, self.base, self.base_skip)

    @property
    def _groups_per_block(self) -> int:
        return max(self._group_of_offset) + 1
