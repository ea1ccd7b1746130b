"""LookUM: every set compared is brute force; two ways of choosing. Its example: test_examples.py."""

from itertools import combinations
from math import inf

import pytest
import torch

from tests.helpers.enumerated import free, remaining_entropy, told
from unmask.core import Noise, State
from unmask.engine import decode
from unmask.methods import LookUM
from unmask.models import ExactDenoiser, JointDistribution


def problem(seed, n=6, steps=3):
    joint = JointDistribution.random(n, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    return joint, exact, State.from_canvases([[exact.mask_id] * n], steps=steps, mask_id=exact.mask_id)


def by_brute_force(joint, k):
    """Of all sets of k, the one that leaves least entropy, again and again: sets and the answer."""
    canvas, sets = {}, []
    while places := free(joint, canvas):
        best = told(joint, canvas).argmax(-1)
        tried = [{**canvas, **{at: int(best[at]) for at in s}} for s in combinations(places, min(k, len(places)))]
        after = min(tried, key=lambda later: remaining_entropy(joint, later))
        sets.append(sorted(set(after) - set(canvas)))
        canvas = after
    return sets, [canvas[at] for at in range(joint.n)]


@pytest.mark.parametrize("seed", range(6))
def test_over_all_sets_with_infinite_beta_it_is_brute_force(seed):
    joint, exact, state = problem(seed)
    search = LookUM(exhaustive=True, pool=inf, beta=inf, budget="100x")
    end = decode(exact, search, state, noise=Noise.of([1]))
    sets, answer = by_brute_force(joint, 2)
    assert [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps] == sets
    assert end.state.tokens_BL[0].tolist() == answer
    # One, 15 sets of 6, 6 sets of 4; the last two positions are no choice.
    assert int(end.forwards_B) == 1 + 15 + 6
    assert end.steps[0].action.notes["dropped"].tolist() == [14]


def test_greedy_sets_are_not_always_the_best():
    """So that the test above is one."""
    different = 0
    for seed in range(6):
        _, exact, state = problem(seed)
        runs = [decode(exact, LookUM(**given), state, noise=Noise.of([1])) for given in ({"paths": 1}, BEST)]
        different += not torch.equal(runs[0].steps[0].revealed_BL, runs[1].steps[0].revealed_BL)
    assert different >= 2


BEST = {"exhaustive": True, "pool": inf, "beta": inf, "budget": "100x"}


def test_sets_come_from_the_surest_positions():
    joint, exact, state = problem(0)
    surest = set(told(joint, {}).max(-1).argsort()[::-1][:3].tolist())
    for key in range(20):
        end = decode(exact, LookUM(paths=8, pool=1.5, tau=5.0, beta=0.0), state, noise=Noise.of([key]))
        assert set(end.steps[0].revealed_BL[0].nonzero().flatten().tolist()) <= surest


def test_sharpness_decides_how_often_the_best_set_is_taken():
    _, exact, state = problem(1)
    best = decode(exact, LookUM(**BEST), state, noise=Noise.of([0])).steps[0].revealed_BL
    hits = {
        beta: sum(
            torch.equal(
                decode(exact, LookUM(**{**BEST, "beta": beta}), state, noise=Noise.of([key])).steps[0].revealed_BL, best
            )
            for key in range(16)
        )
        for beta in (0.0, 1000.0)
    }
    assert hits[0.0] < 6 < 12 < hits[1000.0]


def test_particles_are_resampled_by_what_they_gained():
    """With infinite sharpness the best of the particles is followed by all; the end is the best one's."""
    _, exact, state = problem(2, steps=6)
    end = decode(exact, LookUM(paths=4, variant="smc", tau=2.0, pool=3.0, beta=inf), state, noise=Noise.of([5]))
    assert not bool(end.state.masked_BL.any())
    assert max(int(step.action.notes["dropped"]) for step in end.steps) >= 1
    assert int(end.forwards_B) <= 1 + 4 * 5
