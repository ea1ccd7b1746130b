"""SOAR: runs of the authors' loop (`tests/golden/soar.json`); at full width the best order; collapse."""

import json
from dataclasses import replace
from itertools import permutations

import pytest
import torch

from tests.helpers import paths
from tests.helpers.cases import each_case
from tests.helpers.enumerated import told
from tests.methods.conftest import MASK
from unmask.core import DenoiserWrapper, Noise, SamplingParams, State, Trajectory
from unmask.engine import StepSettings, decode
from unmask.engine.search import CountingContext
from unmask.methods import SOAR
from unmask.methods.examples import logs
from unmask.methods.soar import _Collected
from unmask.models import ExactDenoiser, JointDistribution

GOLDEN = json.loads((paths.GOLDEN / "soar.json").read_text())["cases"]


class Sharpened(DenoiserWrapper):
    """The toy network with its logits multiplied: sure of some tokens."""

    def __init__(self, inner, scale):
        self.denoiser, self.scale = inner, scale

    def __call__(self, view, needs):
        output = self.denoiser(view, needs)
        return replace(output, logits_RV=output.logits_RV * self.scale)


@each_case("case", GOLDEN, ids=lambda case: case["id"])
def test_same_tokens_in_the_same_order_as_the_loop_for_llada(case, toy):
    n = case["gen_length"]
    state = State.from_prompts([case["prompt"]], new_tokens=n, steps=n, mask_id=MASK)
    search = SOAR(width=case["width"], block_length=case["block_length"])
    end = decode(Sharpened(toy(case["toy_seed"]), case["scale"]), search, state, noise=Noise.of([0]))
    assert [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps] == case["revealed"]
    assert end.state.tokens_BL[0].tolist() == case["final"]
    assert float(end.steps[-1].action.notes["value"]) == pytest.approx(case["score"], abs=1e-4)
    # They run paths that are full along with the others.
    assert int(end.forwards_B) <= case["forward_rows"]


def test_the_recorded_runs_search_and_accelerate():
    both = [c for c in GOLDEN if max(c["beam_sizes"]) > 1 and max(map(len, c["revealed"])) > 1]
    assert len(GOLDEN) == 40
    assert len(both) >= 10


def best_order(joint):
    """Over all orders of revealing the most probable tokens one by one: the largest sum of their probabilities."""
    found = []
    for order in permutations(range(joint.n)):
        canvas, total = {}, 0.0
        for at in order:
            p = told(joint, canvas)[at]
            canvas[at], total = int(p.argmax()), total + float(p.max())
        found.append((total, [canvas[at] for at in range(joint.n)]))
    return max(found)


@each_case("value", ["sum", "mean"])
@each_case("seed", range(4))
def test_at_full_width_without_collapse_it_is_brute_force(seed, value):
    joint = JointDistribution.random(5, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    state = State.from_canvases([[exact.mask_id] * 5], steps=5, mask_id=exact.mask_id)
    search = SOAR(width=1000, threshold=1.0, collapse=None, value=value, budget="1000x")
    end = decode(exact, search, state, noise=Noise.of([0]))
    total, answer = best_order(joint)
    assert float(end.steps[-1].action.notes["value"]) == pytest.approx(total / (5 if value == "mean" else 1), abs=1e-6)
    assert end.state.tokens_BL[0].tolist() == answer


def test_a_narrow_beam_may_miss_the_best_order():
    """So that the test above is one."""
    gaps = []
    for seed in range(8):
        joint = JointDistribution.random(5, 3, dependence=2.5, seed=seed)
        exact = ExactDenoiser(joint)
        state = State.from_canvases([[exact.mask_id] * 5], steps=5, mask_id=exact.mask_id)
        end = decode(exact, SOAR(width=1, threshold=1.0), state, noise=Noise.of([0]))
        gaps.append(best_order(joint)[0] - float(end.steps[-1].action.notes["value"]))
    assert min(gaps) > -1e-6
    assert max(gaps) > 1e-3


AFTER = {(0, 1): {2: 0.97, 3: 0.40}, (0, 2): {1: 0.89, 3: 0.75}}
"""The sheet's single-token switch: what stands, and how sure the other positions are."""


@pytest.mark.parametrize(("collapse", "kept"), [(1, [(0, 1, 2)]), (2, [(0, 1, 2), (0, 1, 2)])])
def test_a_single_sure_token(collapse, kept, scripted):
    """The loop for Dream keeps both paths where the best one revealed a single token, the one for LLaDA that one."""

    def answer(tokens, slot, call):
        p = AFTER[tuple(at for at, token in enumerate(tokens) if token != 4)].get(slot, 0.3)
        return logs([p, *[(1 - p) / 3] * 3])

    search = SOAR(threshold=0.9, value="mean", collapse=collapse)
    root = Trajectory.start(State.from_canvases([[4] * 4], steps=4, mask_id=4), Noise.of([0]))
    context = CountingContext(StepSettings(scripted(answer, vocab=4), SamplingParams()), root.rows_B, None)
    beam = []
    for stands, average in (((0, 1), 0.96), ((0, 2), 0.95)):
        tokens_BL = torch.tensor([[4 if at not in stands else 0 for at in range(4)]])
        if stands == (0, 2):
            tokens_BL[0, 2] = 1  # another token there, so that the two paths do not meet
        path = replace(root, state=replace(root.state, tokens_BL=tokens_BL))
        seen = context.predict(path.state, torch.tensor([0]))
        beam.append(_Collected(replace(path, prediction=seen), average, 2 * average, 2))
    children, accelerated = search._children(context, beam)
    assert accelerated
    assert [round(child.value, 4) for child in children] == [0.9633, 0.93, 0.8833]
    left = search.advance(context, {0: beam}, [99])[0].kept
    assert [tuple(i.path.state.revealed_BL[0].nonzero().flatten().tolist()) for i in left] == kept


def test_sure_positions_go_together_but_no_more_than_allowed(scripted):
    state = State.from_canvases([[3] * 8], steps=8, mask_id=3)
    sure = scripted(lambda tokens, slot, call: logs([0.99, 0.005, 0.005]), vocab=3)
    end = decode(sure, SOAR(), state, noise=Noise.of([0]))
    assert [int(step.revealed_BL.sum()) for step in end.steps] == [5, 3]
    assert int(end.forwards_B) == 2
    in_blocks = decode(sure, SOAR(block_length=4), state, noise=Noise.of([0]))
    assert [int(step.revealed_BL.sum()) for step in in_blocks.steps] == [4, 4]
