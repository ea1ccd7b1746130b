"""Actions made by name equal those spelled out by hand."""

import torch

from unmask.axes import cardinality, score
from unmask.core import Action, State

MASK = 9


def open_state() -> tuple[State, torch.Tensor]:
    state = State.from_prompts([[1, 2], [3]], new_tokens=[4, 6], steps=[2, 3], mask_id=MASK)
    open_BL = state.masked_BL & (state.rank_BL < 3)
    return state, open_BL


def test_top_reveals_a_share_of_the_whole_region():
    state, open_BL = open_state()
    action = Action.top(state, open_BL, torch.tensor([2, 5]))
    assert action.alpha_BJ.equal(score.alpha_rows("confidence", state))
    assert action.rule == "confidence"
    assert action.region_BL.equal(open_BL)
    assert action.kappa_B.equal(cardinality.reveal_fraction(torch.tensor([2, 5]), open_BL.sum(-1)))
    assert action.commit_BL.all()
    nothing = Action.top(state, torch.zeros_like(open_BL), torch.tensor([2, 5]), commit=False)
    assert nothing.kappa_B.tolist() == [0, 0]
    assert not nothing.commit_BL.any()


def test_reveal_chooses_exactly_the_set_or_waits():
    state, open_BL = open_state()
    chosen_BL = open_BL.clone()
    chosen_BL[1] = False
    tokens_BL, notes = torch.where(chosen_BL, 5, -1), {"block_B": torch.tensor([0, 1])}
    action = Action.reveal(chosen_BL, of=open_BL, commit=False, remask_BL=~open_BL, tokens_BL=tokens_BL, notes=notes)
    region_BL, kappa_B = cardinality.reveal_set(chosen_BL, open_BL)
    assert action.alpha_BJ.equal(score.alpha_rows("confidence", state))
    assert action.rule == "confidence"
    assert action.region_BL.equal(region_BL)
    assert action.kappa_B.equal(kappa_B)
    assert kappa_B.tolist() == [1, 0]
    assert action.kappa_B.dtype == kappa_B.dtype
    assert not action.commit_BL.any()
    assert action.remask_BL.equal(~open_BL)
    assert action.tokens_BL is tokens_BL
    assert action.notes == notes


def test_every_action_owns_its_weights():
    """A policy that writes to the weights of one action must not change those of the next."""
    state, open_BL = open_state()
    Action.reveal(open_BL, of=open_BL).alpha_BJ.zero_()
    assert Action.reveal(open_BL, of=open_BL).alpha_BJ.sum() == 2
    score.alpha_rows("confidence", state).zero_()
    assert score.alpha_rows("confidence", state).sum() == 2
