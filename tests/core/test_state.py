"""The state: constructors, derived sets, padding, and refusals."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.core import State

MASK = 9


def generation(**changed):
    settings = {"new_tokens": [3, 5], "steps": [2, 5], "mask_id": MASK}
    return State.from_prompts([[1, 2], [4, MASK, 6]], **(settings | changed))


def mixed() -> State:
    """One row with every kind of position: given, masked, revisable, committed, padding."""
    return State(
        tokens_BL=torch.tensor([[1, MASK, MASK, 3, 4, 0, 0]]),
        fixed_BL=torch.tensor([[True, True, False, False, False, True, True]]),
        committed_BL=torch.tensor([[True, True, False, False, True, True, True]]),
        length_B=torch.tensor([5]),
        step_B=torch.tensor([2]),
        horizon_B=torch.tensor([3]),
        mask_id=MASK,
    )


def where(flags_BL):
    return [row.nonzero().flatten().tolist() for row in flags_BL]


def test_infilling_with_tokens_that_may_change():
    state = State.from_canvases([[5, 1, 9]], steps=2, mask_id=MASK, given=[[False, True, False]])
    assert where(state.revisable_BL) == [[0]]
    assert where(state.masked_BL) == [[2]]
    assert where(state.answer_BL) == [[0, 2]]


tokens = st.integers(0, 8)
canvas = st.lists(st.one_of(st.just(MASK), tokens), min_size=1, max_size=12).filter(lambda c: MASK in c)


@given(st.lists(canvas, min_size=1, max_size=4))
def test_every_position_is_of_one_kind(canvases):
    state = State.from_canvases(canvases, steps=1, mask_id=MASK)
    kinds = torch.stack([~state.valid_BL, state.fixed_BL & state.valid_BL, state.masked_BL, state.revealed_BL])
    assert (kinds.long().sum(0) == 1).all()
    for row, tokens_ in enumerate(canvases):
        assert where(state.masked_BL)[row] == [i for i, t in enumerate(tokens_) if t == MASK]
        answer = [i for i in range(len(tokens_)) if state.answer_BL[row, i]]
        assert state.rank_BL[row, answer].tolist() == list(range(len(answer)))


def test_padding_changes_no_derived_set():
    for state in (generation(), mixed()):
        longer, length = state.pad_to(40), state.tokens_BL.shape[1]
        assert longer.tokens_BL.shape[1] == 40
        for name in ("valid_BL", "answer_BL", "masked_BL", "revealed_BL", "revisable_BL"):
            before, after = getattr(state, name), getattr(longer, name)
            assert torch.equal(after[:, :length], before)
            assert not after[:, length:].any()
        assert torch.equal(longer.rank_BL[:, :length], state.rank_BL)
        assert torch.equal(longer.remaining_steps_B, state.remaining_steps_B)
        assert torch.equal(state.pad_to(length).tokens_BL, state.tokens_BL)


REFUSED = {
    "no prompts": (lambda: State.from_prompts([], new_tokens=1, steps=1, mask_id=MASK), "empty"),
    "no canvases": (lambda: State.from_canvases([], steps=1, mask_id=MASK), "empty"),
    "empty prompt": (lambda: State.from_prompts([[1], []], new_tokens=1, steps=1, mask_id=MASK), "row 1 is []"),
    "no new tokens": (lambda: generation(new_tokens=0), "new_tokens of row 0 is 0"),
    "negative new tokens": (lambda: generation(new_tokens=[3, -2]), "new_tokens of row 1 is -2"),
    "no steps": (lambda: generation(steps=0), "steps of row 0 is 0"),
    "more steps than masks": (lambda: generation(steps=[3, 6]), "steps of row 1 is 6"),
    "too few numbers of steps": (lambda: generation(steps=[1]), "number of steps is 1"),
    "too many numbers of steps": (lambda: generation(steps=[1, 1, 1]), "number of steps is 3"),
    "too many answer lengths": (lambda: generation(new_tokens=[1, 1, 1]), "number of new_tokens is 3"),
    "no mask": (lambda: State.from_canvases([[1, 2]], steps=1, mask_id=MASK), "blanks of row 0 is 0"),
    "flags of another length": (
        lambda: State.from_canvases([[1, 9]], steps=1, mask_id=MASK, given=[[True]]),
        "lengths of given is [1]",
    ),
    "flags for another number of rows": (
        lambda: State.from_canvases([[1, 9]], steps=1, mask_id=MASK, given=[[True, False], [True]]),
        "lengths of given is [2, 1]",
    ),
    "padding that shortens": (lambda: generation().pad_to(7), "length is 7"),
}


@each_case("case", REFUSED)
def test_refusals_say_what_what_else_and_what_now(case):
    build, value = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        build()
    what, allowed, todo = str(caught.value).split("; ", 2)
    assert value in what
    assert allowed.startswith("allowed: ")
    assert len(todo) > 10


def test_a_later_state_keeps_what_the_prompt_alone_decides():
    state = State.from_prompts([[1, 2], [3]], new_tokens=[2, 3], steps=2, mask_id=9)
    _ = (state.rank_BL, state.masked_BL)
    tokens_BL = state.tokens_BL.clone()
    tokens_BL[0, 2] = 5
    later = state.advance(tokens_BL, state.committed_BL, state.step_B + 1)
    assert later.rank_BL is state.rank_BL
    assert later.answer_BL is state.answer_BL
    fresh = State(**{f.name: getattr(later, f.name) for f in fields(State)})
    for name in ("valid_BL", "answer_BL", "masked_BL", "revealed_BL", "revisable_BL", "rank_BL"):
        assert torch.equal(getattr(later, name), getattr(fresh, name)), name
    assert later.step_B.tolist() == [1, 1]
