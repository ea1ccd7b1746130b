"""Blocks of answer positions, with the clock of each row in its block; and shadow slots behind the canvas.

A shadow slot predicts the token of a position without seeing it, so that one pass can verify many tokens.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.axes import cardinality, region
from unmask.base.errors import require
from unmask.core import ModelInput, Needs, State


@dataclass(frozen=True)
class BlockClock:
    """Position of each row in its schedule: its current block, and the steps it has taken there."""

    state: State
    open_BL: Tensor
    """Masked positions up to the end of the current block."""
    block_B: Tensor
    """Number of the current block."""
    start_B: Tensor
    """First answer position of the current block."""
    size_B: Tensor
    """Number M of answer positions in the current block."""
    inner_B: Tensor
    """Number i of steps taken in the block."""
    steps_B: Tensor
    """Number S of steps per block."""

    @property
    def in_block_BL(self) -> Tensor:
        """Mask of the answer positions in the current block."""
        rank_BL, end_B = self.state.rank_BL, self.start_B + self.size_B
        return self.state.answer_BL & (rank_BL >= self.start_B[:, None]) & (rank_BL < end_B[:, None])

    @property
    def closing_B(self) -> Tensor:
        """Mask of the rows on the last step of their block, which must reveal everything in it."""
        return self.inner_B >= self.steps_B - 1

    @property
    def quota_B(self) -> Tensor:
        """Number of positions to reveal by LLaDA's schedule. The last step of a block reveals all that is left."""
        k_B = cardinality.llada_quota(self.size_B, self.steps_B, self.inner_B)
        return torch.where(self.closing_B, self.open_BL.sum(-1), k_B)


def block_clock(state: State, block_length: int | None) -> BlockClock:
    """Return the clock of each row. A row that is ahead of its schedule moves on to its first open block."""
    answer_B = state.answer_BL.sum(-1)
    if block_length is None:
        nothing_B = torch.zeros_like(answer_B)
        return BlockClock(state, state.masked_BL, nothing_B, nothing_B, answer_B, state.step_B, state.horizon_B)
    length_B = torch.full_like(answer_B, block_length)
    blocks_B = -(-answer_B // length_B)
    steps_B = -(-state.horizon_B // blocks_B)
    scheduled_B = torch.minimum(state.step_B // steps_B, blocks_B - 1)
    first_B = region.first_mask_rank(state) // length_B
    # Given tokens or another policy's steps may have filled a block early: waiting for its end would waste steps.
    ahead_B = state.masked_BL.any(-1) & (first_B > scheduled_B)
    block_B = torch.where(ahead_B, first_B, scheduled_B)
    start_B, end_B = block_B * length_B, torch.minimum((block_B + 1) * length_B, answer_B)
    return BlockClock(
        state=state,
        open_BL=state.masked_BL & (state.rank_BL < end_B[:, None]),
        block_B=block_B,
        start_B=start_B,
        size_B=end_B - start_B,
        inner_B=torch.where(ahead_B, 0, state.step_B - scheduled_B * steps_B),
        steps_B=steps_B,
    )


def open_block(state: State, block_length: int | None) -> Tensor:
    """Return the masked positions of the leftmost block with masks; without blocks, of the whole answer."""
    return state.masked_BL if block_length is None else region.first_open_block(state, block_length)


def check_blocks(state: State, block_length: int | None, *, even: bool) -> None:
    """Refuse more blocks than steps. With `even` blocks must divide the answer, and their number the steps."""
    if block_length is None:
        return
    for answer, steps in zip(state.answer_BL.sum(-1).tolist(), state.horizon_B.tolist(), strict=True):
        divides = answer % block_length == 0 or not even
        require(divides, "block_length", block_length, f"a divisor of the {answer} new tokens", "change either")
        blocks = -(-answer // block_length)
        fits = steps % blocks == 0 if even else steps >= blocks
        allowed = f"a multiple of the {blocks} blocks" if even else f"{blocks} or more, one per block"
        require(fits, "steps", steps, allowed, "change steps or block_length")


# Shadow slots


def shadow_positions(state: State, start_B: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Return the canvas position that each shadow slot stands for, and a mask of the slots that have one.

    Slot s stands for answer position `start_B` + s, if the answer is that long.
    """
    wanted_BS = start_B[:, None] + torch.arange(slots, device=start_B.device)
    # -1 matches no slot: given tokens have a rank too.
    rank_BL = torch.where(state.answer_BL, state.rank_BL, -1)
    match_BSL = rank_BL[:, None, :] == wanted_BS[:, :, None]
    return match_BSL.long().argmax(-1), match_BSL.any(-1)


def shadow_input(state: State, original_BS: Tensor, exists_BS: Tensor) -> ModelInput:
    """Return the canvas followed by its shadow slots: masks, each at the position of its original.

    A slot reads everything except its original. The canvas does not read the slots, so its predictions do not change.
    """
    length, slots = state.tokens_BL.shape[1], original_BS.shape[1]
    plain = ModelInput.of(state, Needs())
    size = length + slots
    attend_BNN = torch.zeros(state.batch, size, size, dtype=torch.bool).to(state.tokens_BL.device)
    # Every slot reads the real canvas, and only shadows read shadows: the canvas's own predictions must not move.
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
        wanted_BN=cat((plain.wanted_BN, exists_BS), 1),
        attend_BNN=attend_BNN,
    )
