"""MEDAL: a tree that is known whole is brute force over its starts. Its example: test_examples.py."""

import pytest

from tests.helpers.cases import each_case
from tests.helpers.enumerated import free, remaining_confidence, told
from unmask.core import Noise, State
from unmask.engine import decode
from unmask.methods import MEDAL, LLaDA
from unmask.models import ExactDenoiser, JointDistribution

WHOLE = {"positions": 99, "tokens": 99, "actions": 999, "simulations": 10**6, "budget": "1000x"}


def problem(seed, n=4):
    joint = JointDistribution.random(n, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    return joint, exact, State.from_canvases([[exact.mask_id] * n], steps=n, mask_id=exact.mask_id)


def starts(joint, depth):
    """Every canvas of so many tokens, whatever the order of writing them."""
    found = [{}]
    for _ in range(depth):
        found = [{**c, at: token} for c in found for at in free(joint, c) for token in range(joint.vocab)]
    return found


@each_case("depth", [1, 2])
@each_case("seed", range(4))
def test_the_start_of_a_whole_tree_is_brute_force(seed, depth):
    joint, exact, state = problem(seed)
    end = decode(exact, MEDAL(depth=depth, start="confidence", **WHOLE), state, noise=Noise.of([0]))
    best = max(remaining_confidence(joint, canvas) for canvas in starts(joint, depth))
    written = {}
    for step, after in zip(end.steps[:depth], list(end.canvases())[1:], strict=False):
        written |= {at: int(after[at]) for at in step.revealed_BL[0].nonzero().flatten().tolist()}
    assert len(written) == depth
    assert remaining_confidence(joint, written) == pytest.approx(best, abs=1e-9)
    # Every node once: 12 actions, and 9 after each; the leaf that came true is not run again.
    nodes = 12 if depth == 1 else 12 + 12 * 9
    assert int(end.forwards_B) == 1 + nodes + (4 - depth - 1)


def test_by_visits_a_whole_tree_takes_the_best_mean_of_every_level():
    joint, exact, state = problem(1)
    end = decode(exact, MEDAL(depth=1, **WHOLE), state, noise=Noise.of([0]))
    p = told(joint, {}).max(-1)
    gains = {
        (at, token): remaining_confidence(joint, {at: token}) - sum(p[o] for o in range(4) if o != at) / 3
        for at in range(4)
        for token in range(3)
    }
    at, token = max(gains, key=gains.get)
    assert end.steps[0].revealed_BL[0].nonzero().flatten().tolist() == [at]
    assert int(list(end.canvases())[1][at]) == token
    assert float(end.steps[0].action.notes["value"]) == pytest.approx(gains[at, token], abs=1e-9)


def test_after_its_start_it_is_the_base_sampler():
    _, exact, state = problem(2, n=6)
    end = decode(exact, MEDAL(depth=2), state, noise=Noise.of([0]))
    there = end.resume(0, 2)
    base = decode(exact, LLaDA(), there)
    assert base.state.tokens_BL.tolist() == end.state.tokens_BL.tolist()
    assert int(end.steps[0].action.notes["dropped"]) > 0
    assert int(end.steps[1].action.notes["dropped"]) == 0


def test_the_start_is_written_as_fast_as_the_base_writes():
    _, exact, _ = problem(0, n=6)
    state = State.from_canvases([[exact.mask_id] * 6], steps=3, mask_id=exact.mask_id)
    end = decode(exact, MEDAL(depth=4, simulations=40, budget="100x"), state, noise=Noise.of([0]))
    assert [int(step.revealed_BL.sum()) for step in end.steps] == [2, 2, 2]


def test_actions_stay_in_the_first_block():
    _, exact, state = problem(3)
    end = decode(exact, MEDAL(block_length=2, depth=2), state, noise=Noise.of([0]))
    early = end.steps[0].revealed_BL | end.steps[1].revealed_BL
    assert early[0].tolist() == [True, True, False, False]
