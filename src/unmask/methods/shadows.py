"""Shadow slots: what the model would say at a position if it could not see the token there, in one pass for many."""

from dataclasses import replace

import torch
from torch import Tensor

from unmask.core import ModelInput, Needs, State


def originals(state: State, start_B: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Canvas position that each slot doubles, from the answer's rank `start_B` on, and whether there is one."""
    wanted_BS = start_B[:, None] + torch.arange(slots, device=start_B.device)
    rank_BL = torch.where(state.answer_BL, state.rank_BL, -1)
    match_BSL = rank_BL[:, None, :] == wanted_BS[:, :, None]
    return match_BSL.long().argmax(-1), match_BSL.any(-1)


def shadow_view(state: State, original_BS: Tensor, exists_BS: Tensor) -> ModelInput:
    """The canvas, then one mask per slot at its original's position.

    A slot reads everything but its original; the canvas does not read the slots, so its own predictions stay the same.
    """
    length, slots = state.tokens_BL.shape[1], original_BS.shape[1]
    plain = ModelInput.of(state, Needs())
    size = length + slots
    attend_BNN = torch.zeros(state.batch, size, size, dtype=torch.bool).to(state.tokens_BL.device)
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
