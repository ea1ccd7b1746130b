"""The block clock."""

from dataclasses import fields, replace

import torch

from tests.helpers.cases import each_case
from unmask.core import State
from unmask.methods.blocks import BlockClock, block_clock

MASK = 9


@each_case("step", [0, 1, 3, 4, 7])
@each_case("filled", [0, 2, 4])
def test_without_blocks_the_clock_is_that_of_one_block(step, filled):
    state = State.from_prompts([[1], [1, 2]], new_tokens=4, steps=4, mask_id=MASK)
    tokens_BL = state.tokens_BL.clone()
    tokens_BL[0, 1 : 1 + filled] = 3
    state = replace(state, tokens_BL=tokens_BL, step_B=torch.tensor([step, step]))
    none, one = block_clock(state, None), block_clock(state, 4)
    for name in (*(field.name for field in fields(BlockClock) if field.name != "state"), "in_block_BL", "closing_B"):
        assert torch.equal(getattr(none, name), getattr(one, name)), name


def test_the_current_block_is_the_scheduled_one_or_the_first_open_one():
    state = State.from_prompts([[1]], new_tokens=6, steps=6, mask_id=MASK)
    now = block_clock(replace(state, step_B=torch.tensor([3])), 2)
    assert (now.block_B.tolist(), now.inner_B.tolist(), now.start_B.tolist()) == ([1], [1], [2])
    assert now.in_block_BL.tolist() == [[False] * 3 + [True] * 2 + [False] * 2]
    tokens_BL = torch.where(torch.arange(7) < 5, 3, state.tokens_BL)
    ahead = block_clock(replace(state, tokens_BL=tokens_BL), 2)
    assert (ahead.block_B.tolist(), ahead.inner_B.tolist()) == ([2], [0])
    assert ahead.open_BL.tolist() == [[False] * 5 + [True] * 2]
