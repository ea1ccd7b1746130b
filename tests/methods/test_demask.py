"""DEMASK: the rule of the budget, dependence measured by forwards against the joint, the bound, and the head."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, OtherModel
from unmask.core import Noise, Policy, SamplingParams, State, Trajectory
from unmask.engine import LookCache, StepSettings, decode, predict
from unmask.methods import DEMASK, METHODS, heads, make_policy
from unmask.methods.check import Problem, check_policy
from unmask.methods.demask import measure_dependence
from unmask.models import ExactDenoiser, JointDistribution


def dependence(joint, i, j, seen=None):
    """D_ij from the joint itself."""
    seen = seen or {}
    now = joint.marginals(seen)
    moved = [np.abs(joint.marginals({**seen, j: y})[i] - now[i]).sum() / 2 for y in range(joint.vocab)]
    return float((now[j] * moved).sum())


def said_by(policy, joint, canvas):
    """The policy's measured dependence on a canvas, and the trajectory before its step."""
    denoiser = ExactDenoiser(joint)
    state = State.from_canvases([canvas], steps=1, mask_id=denoiser.mask_id)
    settings = StepSettings(denoiser, SamplingParams())
    traj = Trajectory.start(state, Noise.of([0]))
    traj, _ = predict(settings, traj, policy.model_input(traj), policy.needs)
    looks = LookCache(settings)
    looks.begin(traj.rows_B)
    return measure_dependence(traj, looks, state.masked_BL, policy.outcomes)[0].numpy(), traj


def test_measured_dependence_is_that_of_the_joint():
    joint, policy = JointDistribution.random(4, 3, dependence=2.0, seed=3), DEMASK(head="measured")
    found, _ = said_by(policy, joint, [3, 3, 1, 3])
    for i, j in product((0, 1, 3), repeat=2):
        expected = 0.0 if i == j else dependence(joint, i, j, {2: 1})
        assert found[i, j] == pytest.approx(expected, abs=1e-9)
    assert not found[2].any()
    assert not found[:, 2].any()
    # Of a true joint it is the distance from independence, the same both ways; a network's need not be.
    assert found == pytest.approx(found.T, abs=1e-9)
    assert found[0, 1] > 0.1


def test_the_bound_of_two_positions_is_tight():
    """The sheet's joint: D = 0.3, and so far is the product from it."""
    table = np.array([[0.4, 0.1], [0.1, 0.4]])
    found, _ = said_by(DEMASK(head="measured"), JointDistribution(table), [2, 2])
    product_VV = np.outer(table.sum(1), table.sum(0))
    assert found[0, 1] == found[1, 0] == pytest.approx(0.3)
    assert np.abs(table - product_VV).sum() / 2 == pytest.approx(0.3)


def distance(joint, chosen):
    """Total variation between the joint of some positions and the product of their marginals."""
    others = tuple(i for i in range(joint.n) if i not in chosen)
    table = joint.p.sum(others)
    flat = np.ones_like(table)
    for axis in range(table.ndim):
        marginal = table.sum(tuple(a for a in range(table.ndim) if a != axis), keepdims=True)
        flat = flat * marginal
    return float(np.abs(table - flat).sum() / 2)


def adds_up(joint, order):
    """Whether each position is moved by those before it no more than their influences sum to."""
    for m in range(1, len(order)):
        before, i = order[:m], order[m]
        axes = tuple(a for a in range(joint.n) if a not in (*before, i))
        table = np.moveaxis(joint.p.sum(axes), sorted((*before, i)).index(i), -1)
        weight = table.sum(-1, keepdims=True)
        together = float((weight[..., 0] * np.abs(table / weight - joint.marginals({})[i]).sum(-1) / 2).sum())
        if together > sum(dependence(joint, i, j) for j in before) + 1e-12:
            return False
    return True


@each_case("seed", range(12))
@each_case("budget", [0.05, 0.2, 0.5])
def test_what_is_revealed_together_keeps_the_bound(seed, budget):
    joint = JointDistribution.random(5, 3, dependence=1.0, seed=seed)
    policy = DEMASK(budget, head="measured")
    denoiser = ExactDenoiser(joint)
    state = State.from_canvases([[3] * 5], steps=5, mask_id=3)
    done = decode(denoiser, policy, state, noise=Noise.of([0]))
    first = done.steps[0]
    chosen = first.revealed_BL[0].nonzero().flatten().tolist()
    confidence = first.prediction.confidence_BN[0].tolist()
    order = sorted(chosen, key=lambda i: (-confidence[i], i))
    total = sum(dependence(joint, order[m], j) for m in range(len(order)) for j in order[:m])
    assert total <= budget + 1e-9
    assert adds_up(joint, order)
    assert distance(joint, chosen) <= total + 1e-9


def test_pairs_keep_the_bound_always():
    joint = JointDistribution.random(5, 3, dependence=2.5, seed=1)
    for i, j in combinations(range(5), 2):
        assert distance(joint, [i, j]) == pytest.approx(dependence(joint, i, j), abs=1e-12)


def test_other_rules_of_the_budget():
    confidence = torch.tensor([[0.9, 0.8, 0.7]])
    candidate = torch.ones(1, 3, dtype=torch.bool)
    depends = torch.tensor([[[0.0, 0.0, 0.0], [0.08, 0.0, 0.0], [0.03, 0.03, 0.0]]])

    def chosen(**settings):
        return DEMASK(0.1, **settings).select(confidence, candidate, depends)[0][0].tolist()

    assert chosen() == [True, True, False]
    assert chosen(rule="token") == [True, True, True]
    back = depends.clone()
    back[0, 0, 1] = 0.05
    assert DEMASK(0.1, both=True).select(confidence, candidate, back)[0][0].tolist() == [True, False, True]


def test_ties_go_to_the_lower_position():
    same = torch.full((1, 3), 0.5)
    taken = DEMASK(0.0).select(same, torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 3, 3))[0]
    assert taken[0].tolist() == [True, False, False]


def test_forwards_of_measuring_are_counted():
    """One forward of the step, and one for each candidate and outcome."""
    joint = JointDistribution.random(3, 2, dependence=1.0, seed=0)
    state = State.from_canvases([[2, 2, 2]], steps=1, mask_id=2)
    done = decode(ExactDenoiser(joint), DEMASK(float("inf"), head="measured"), state, noise=Noise.of([0]))
    assert done.forwards_B.tolist() == [1 + 3 * 2]


class TestHead:
    def test_a_trained_head_decides(self, demask_head):
        mini = unmask.load("mini")
        done = mini.generate("2+2", policy="demask", head=str(demask_head), budget=0.5, max_new_tokens=8)
        assert done.config["policy"]["head"] == str(demask_head)
        assert done.config["method"]["label"] == "reconstruction"
        one = mini.generate("2+2", policy="demask", head=str(demask_head), budget=0.0, max_new_tokens=8)
        assert one.forwards == 8 >= done.forwards
        everything = mini.generate("2+2", policy="demask", head=str(demask_head), budget=1e9, max_new_tokens=8)
        assert everything.forwards == 1

    def test_rows_ignore_their_neighbours(self, demask_head):
        mini = unmask.load("mini")
        options = {"policy": "demask", "head": str(demask_head), "max_new_tokens": 8}
        both = mini.generate(["2+2", "Describe the lamp."], **options)
        alone = [mini.generate(prompt, **options).text for prompt in ("2+2", "Describe the lamp.")]
        assert list(both.texts) == alone

    def test_exact_needs_none(self):
        done = unmask.load("exact").generate("ab", policy="demask")
        assert done.config["policy"]["head"] == "measured"

    def test_without_one_the_way_to_it_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setattr(heads, "SHIPPED", tmp_path)
        with pytest.raises(ConfigError, match="train one: unmask train head --kind demask --model mini-dream --out"):
            unmask.load("mini-dream").generate("a", policy="demask")
        exact = ExactDenoiser(JointDistribution.random(3, 2, dependence=1.0, seed=0))
        state = State.from_canvases([[2, 2, 2]], steps=1, mask_id=2)
        with pytest.raises(ConfigError, match=r"head of demask is 'auto'.*train one: unmask train head --kind demask"):
            decode(exact, DEMASK(), state, noise=Noise.of([0]))

    def test_of_another_model_or_kind_is_refused(self, demask_head):
        with pytest.raises(OtherModel, match=r"was trained for mini \(.*this is mini-dream"):
            unmask.load("mini-dream").generate("a", policy="demask", head=str(demask_head))
        with pytest.raises(ConfigError, match="is a head for demask; allowed: one for ddpd"):
            unmask.load("mini").generate("a", policy="ddpd", head=str(demask_head))

    def test_for_rows_of_another_width_is_refused(self, demask_head):
        exact = ExactDenoiser(JointDistribution.random(3, 2, dependence=1.0, seed=0))
        state = State.from_canvases([[2, 2, 2]], steps=1, mask_id=2)
        with pytest.raises(ConfigError, match="width of the hidden rows is 2; allowed: 256, the head's"):
            decode(exact, DEMASK(head=str(demask_head)), state, noise=Noise.of([0]))


def test_it_says_what_it_is():
    policy = make_policy("demask")
    assert isinstance(policy, Policy)
    assert METHODS["demask"].learned
    assert replace(policy, head="measured").looks_ahead
    assert not policy.looks_ahead


def test_the_contract_holds_with_a_trained_head(demask_head):
    denoiser = unmask.load("mini").denoiser
    mask = denoiser.vocabulary.mask_id
    state = State.from_canvases([[5, 9, mask, mask]], steps=2, mask_id=mask)
    assert check_policy(make_policy("demask", head=str(demask_head)), Problem(denoiser, state, Noise.of([3]))) is None
