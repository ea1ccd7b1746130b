"""The block clock of LLaDA and its relatives: which block a row is in, and how far into that block."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.axes import region
from unmask.base.errors import require
from unmask.core import State


@dataclass(frozen=True)
class Clock:
    """Where each row stands in its sequence of blocks."""

    state: State
    open_BL: Tensor
    """Masked positions up to the end of the current block."""
    block_B: Tensor
    start_B: Tensor
    """Where the current block begins, among the answer's positions."""
    size_B: Tensor
    """Answer positions of the current block, M."""
    inner_B: Tensor
    """Step within the block, i."""
    steps_B: Tensor
    """Steps per block, S."""

    @property
    def in_block_BL(self) -> Tensor:
        """Answer positions of the current block."""
        rank_BL, end_B = self.state.rank_BL, self.start_B + self.size_B
        return self.state.answer_BL & (rank_BL >= self.start_B[:, None]) & (rank_BL < end_B[:, None])

    @property
    def closing_B(self) -> Tensor:
        """The block's last step, on which whatever is open must go."""
        return self.inner_B >= self.steps_B - 1


def clock(state: State, block_length: int | None) -> Clock:
    """A pure function of the state. A row that is ahead of its clock moves on to the first open block."""
    answer_B = state.answer_BL.sum(-1)
    if block_length is None:
        nothing_B = torch.zeros_like(answer_B)
        return Clock(state, state.masked_BL, nothing_B, nothing_B, answer_B, state.step_B, state.horizon_B)
    length_B = torch.full_like(answer_B, block_length)
    blocks_B = -(-answer_B // length_B)
    steps_B = -(-state.horizon_B // blocks_B)
    scheduled_B = torch.minimum(state.step_B // steps_B, blocks_B - 1)
    first_B = region.first_mask(state) // length_B
    ahead_B = state.masked_BL.any(-1) & (first_B > scheduled_B)
    block_B = torch.where(ahead_B, first_B, scheduled_B)
    start_B, end_B = block_B * length_B, torch.minimum((block_B + 1) * length_B, answer_B)
    return Clock(
        state=state,
        open_BL=state.masked_BL & (state.rank_BL < end_B[:, None]),
        block_B=block_B,
        start_B=start_B,
        size_B=end_B - start_B,
        inner_B=torch.where(ahead_B, 0, state.step_B - scheduled_B * steps_B),
        steps_B=steps_B,
    )


def open_block(state: State, block_length: int | None) -> Tensor:
    """Masks of the leftmost block that has some; of the whole answer without blocks."""
    return state.masked_BL if block_length is None else region.first_open_block(state, block_length)


def check_block_length(block_length: int | None, published: str, *, optional: bool = True) -> None:
    """Refuse a length that no block can have; `published` is what to choose instead."""
    ok = (optional and block_length is None) or (block_length is not None and 1 <= block_length <= 1_000_000)
    require(ok, "block_length", block_length, "1 to 1000000" + (", or None" if optional else ""), published)


def check_blocks(state: State, block_length: int | None, *, even: bool) -> None:
    """Refuse impossible blocks; `even` adds LLaDA's rules that blocks divide the answer and the steps."""
    if block_length is None:
        return
    check_block_length(block_length, "leave it out for one block")
    for answer, steps in zip(state.answer_BL.sum(-1).tolist(), state.horizon_B.tolist(), strict=True):
        divides = answer % block_length == 0 or not even
        require(divides, "block_length", block_length, f"a divisor of the {answer} new tokens", "change either")
        blocks = -(-answer // block_length)
        fits = steps % blocks == 0 if even else steps >= blocks
        allowed = f"a multiple of the {blocks} blocks" if even else f"{blocks} or more, one per block"
        require(fits, "steps", steps, allowed, "change steps or block_length")
