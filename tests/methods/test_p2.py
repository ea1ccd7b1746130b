"""P2: both forms of eta, ties at the cut, a planner, and what eta = 0 equals."""

import math
from dataclasses import replace

import pytest
import torch

from tests.methods.worked import VOCAB, confidences, peaked, revealed, run, table
from unmask.base.errors import ConfigError
from unmask.core import ModelOutput, Noise, State, Trajectory, Vocabulary
from unmask.engine import decode
from unmask.methods.check import Problem, check_policy
from unmask.methods.examples import ScriptedDenoiser
from unmask.methods.p2 import P2

(P,) = table("p2")


def at_step_four(n=6):
    """Three of six revealed, three steps taken of six."""
    state = State.from_canvases([[VOCAB] * n], steps=n, mask_id=VOCAB)
    tokens = torch.tensor([[1] * 3 + [VOCAB] * (n - 3)])
    state = replace(state, tokens_BL=tokens, step_B=torch.tensor([3]))
    return Trajectory.start(state, Noise.of([0]))


def one_step(policy, p=P, planner=None):
    """Newly revealed, re-masked, and masked after the step."""
    traj = decode(confidences([p]), policy, at_step_four(len(p)), planner=planner)
    step = traj.steps[0]
    after = traj.steps[1].state.masked_BL[0] if len(traj.steps) > 1 else traj.state.masked_BL[0]
    return [mask_L.nonzero().flatten().tolist() for mask_L in (step.revealed_BL[0], step.remasked_BL[0], after)]


def test_the_two_forms_of_eta_rank_differently():
    """Revealed .9 against masked .5 at eta = 2: the code keeps the revealed one, Eq. 7 prefers the masked one."""
    p = [0.9, 0.2, 0.999, 0.5, 0.999, 0.999]
    assert one_step(P2(2.0), p)[2] == [1, 3]
    assert one_step(P2(2.0, form="probability"), p)[2] == [0, 1]


def test_ties_at_the_cut_are_kept_unless_exact():
    p = [0.9, 0.5, 0.9, 0.5, 0.5, 0.9]
    assert one_step(P2(), p)[2] == []
    assert len(one_step(P2(exact=True), p)[2]) == 2


class Planner:
    """Says the sheet's probabilities of the draft at revealed positions."""

    vocabulary = Vocabulary(VOCAB, VOCAB)
    device = torch.device("cpu")

    def __init__(self, p):
        self.p, self.canvases = p, []

    def __call__(self, view, needs):
        self.canvases.append(view.tokens_BN[0].tolist())
        rows = [peaked(self.p[at]) for _, at in view.wanted_BN.nonzero().tolist()]
        return ModelOutput(torch.tensor(rows).double(), view.wanted_BN)


def test_a_planner_judges_what_stands():
    planner = Planner([0.95, 0.90, 0.30, 0.5, 0.5, 0.5])
    assert one_step(P2(planner=True), planner=planner) == [[3, 5], [2], [2, 4]]
    # It reads the whole draft: no mask is left in it.
    assert planner.canvases[0] == [1] * 6


def test_the_planner_is_counted_apart():
    traj = decode(confidences([P]), P2(planner=True), at_step_four(), planner=Planner([0.5] * 6))
    assert int(traj.planner_forwards_B) == len(traj.steps) == int(traj.forwards_B)


def test_eta_zero_never_remasks_and_reveals_the_schedule():
    traj = run(confidences([P]), P2(0.0), 6)
    assert [len(step) for step in revealed(traj)] == [1] * 6
    assert not any(bool(step.remasked_BL.any()) for step in traj.steps)
    assert revealed(traj) == [[0], [5], [2], [3], [1], [4]]


@pytest.mark.parametrize("schedule", ["linear", "sine", "quadratic", "log", "square", "root"])
def test_as_many_are_revealed_as_scheduled(schedule):
    """Where no scores tie: n - trunc(n (1 - kappa))."""
    kappa = {
        "linear": lambda t: t,
        "sine": lambda t: math.sin(math.pi * t / 2),
        "quadratic": lambda t: 1 - (1 - t) ** 2,
        "log": lambda t: math.log2(1 + t),
        "square": lambda t: t * t,
        "root": math.sqrt,
    }[schedule]

    def answer(tokens, slot, call):
        return peaked(0.2 + 0.1 * ((slot * 5 + call) % 7) + slot / 1000)

    traj = run(ScriptedDenoiser(answer, VOCAB), P2(1.3, schedule), 8)
    for number, step in enumerate(traj.steps[1:], 1):
        assert int(step.state.masked_BL.sum()) == int(8 * (1 - kappa(number / 8)) + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [P2(), P2(2.0), P2(0.0, "sine"), P2(1.3, form="probability", exact=True), P2(noisy=True)]
)
def test_contract(policy):
    check_policy(policy)


def test_without_a_planner_the_run_says_so():
    problem = Problem.default()
    with pytest.raises(ConfigError, match="pass planner="):
        decode(problem.denoiser, P2(planner=True), problem.state, noise=problem.noise)
