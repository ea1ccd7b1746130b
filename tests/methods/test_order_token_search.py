"""Order-Token Search: what drafts are scored by, what they cost. Its example: test_examples.py."""

from math import log

import pytest

from tests.helpers.enumerated import told
from unmask.base.errors import ConfigError
from unmask.core import Noise, State
from unmask.engine import decode
from unmask.methods import OrderTokenSearch
from unmask.methods.order_token_search import best_first, block_log_p
from unmask.models import ExactDenoiser, JointDistribution


def run(search, seed=0, n=6, steps=6, key=3):
    joint = JointDistribution.random(n, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    state = State.from_canvases([[exact.mask_id] * n], steps=steps, mask_id=exact.mask_id)
    return joint, decode(exact, search, state, noise=Noise.of([key]))


def test_the_chosen_draft_of_one_block_is_the_likeliest():
    """One block is the whole answer: drafts are scored on a canvas of masks, where brute force knows every p."""
    gains = []
    for key in range(6):
        ends = [
            run(OrderTokenSearch(beams=beams, tau=2.0, block_length=None, budget="100x"), n=4, steps=1, key=key)
            for beams in (4, 1)
        ]
        p = told(ends[0][0], {})
        values = [sum(log(p[at, t]) for at, t in enumerate(end.state.tokens_BL[0].tolist())) for _, end in ends]
        assert float(ends[0][1].steps[-1].action.notes["value"]) == pytest.approx(values[0], abs=1e-5)
        gains.append(values[0] - values[1])
    # The first draft is the one that stands alone without a search.
    assert min(gains) >= 0
    assert max(gains) > 0.5


def test_what_is_not_filled_yet_is_hidden_and_the_rest_of_the_draft_is_not(scripted):
    """A block is scored with the drafted future in view and itself hidden."""
    model = scripted(lambda tokens, slot, call: [0.3, 0.2, 0.1], vocab=3)
    state = State.from_canvases([[3] * 4], steps=4, mask_id=3)
    search = OrderTokenSearch(beams=2, tau=5.0, block_length=2, budget="100x")
    decode(model, search, state, noise=Noise.of([0]))
    scored = [row for view in model.calls if view.given_BN is not None for row in view.tokens_BN.tolist()]
    assert scored
    hidden = [[at for at, token in enumerate(row) if token == 3] for row in scored]
    assert set(map(tuple, hidden)) == {(0, 1), (2, 3)}


def test_forwards_are_those_of_the_sheet_less_what_is_shared():
    """S K + B K^2 where nothing is equal; here the beams' one root and its K drafts are run once, not K times."""
    for beams in (2, 3):
        search = OrderTokenSearch(beams=beams, tau=50.0, block_length=3, budget="1000x")
        _, end = run(search, n=6, steps=6, key=1)
        assert int(end.forwards_B) <= (6 - 1) * beams + 1 + beams + beams**2 <= 6 * beams + 2 * beams**2
        assert int(end.forwards_B) > 6


def test_more_noise_finds_other_answers():
    answers = {
        tuple(run(OrderTokenSearch(tau=tau), key=key)[1].state.tokens_BL[0].tolist())
        for tau in (3.0,)
        for key in range(6)
    }
    assert len(answers) > 1
    assert len({tuple(run(OrderTokenSearch(tau=0.0), key=key)[1].state.tokens_BL[0].tolist()) for key in range(3)}) == 1


def test_an_impossible_token_is_worth_nothing():
    assert block_log_p([0.5, 0.0]) == -float("inf")
    assert best_first([-1.0, -float("inf"), -1.0]) == [0, 2, 1]


def test_fewer_steps_than_blocks_are_refused():
    with pytest.raises(ConfigError, match="one per block"):
        run(OrderTokenSearch(block_length=2), steps=2)
