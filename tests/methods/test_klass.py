"""KLASS: divergences of its worked example, warm-up, fallback, and what an impossible gate equals."""

import pytest
import torch

from tests.helpers.cases import each_case
from tests.methods.worked import distributions, revealed, run, table
from unmask.engine import decode
from unmask.methods import KLASS, METHODS, LLaDA
from unmask.methods.check import Problem, check_policy

T2, T1, T0 = table("klass")


def test_divergences_of_the_sheet():
    traj = run(distributions([T2, T1, T0]), KLASS(0.6, 0.015), 6)
    before, now = traj.steps[2].action.notes["kl_BLW"][0, :4].T.tolist()
    assert before == pytest.approx([0.001055, 0.027300, 0.000354, 0.000698], abs=1e-6)
    assert now == pytest.approx([0.000337, 0.000455, 0.000066, 0.000196], abs=1e-6)
    assert torch.isinf(traj.steps[0].action.notes["kl_BLW"]).all()


@pytest.mark.parametrize(("strategy", "expected"), [("max_conf", [3]), ("min_kl", [3])])
def test_one_of_the_ready(strategy, expected):
    traj = run(distributions([T2, T1, T0]), KLASS(0.6, 0.015, strategy=strategy), 6)
    assert revealed(traj)[2] == expected


def test_a_later_block_needs_one_step_to_warm_up():
    """Its history survives the border: the first block has two fallback steps, the second one."""
    sure = [[0.95, 0.05]] * 8
    assert revealed(run(distributions([sure]), KLASS(0.9, 0.01, block_length=4), 8)) == [
        [0],
        [1],
        [2, 3],
        [4],
        [5, 6, 7],
    ]


def test_dream_reveals_at_the_threshold_and_one_otherwise():
    even = [[0.5, 0.5]] * 4
    # Exactly the threshold: LLaDA's rule is strict, Dream's is not.
    assert revealed(run(distributions([even]), KLASS(0.5, 0.01, variant="dream"), 4)) == [[0], [1], [2, 3]]
    assert revealed(run(distributions([even]), KLASS(0.5, 0.01), 4)) == [[0], [1], [2], [3]]


def test_fallback_takes_the_quota_and_never_more_than_there_is():
    unsure = [[0.6, 0.4]] * 5
    assert revealed(run(distributions([unsure]), KLASS(0.9), 5, steps=2)) == [[0, 1, 2], [3, 4]]
    assert revealed(run(distributions([unsure]), KLASS(0.9, block_length=3), 5, steps=2)) == [[0, 1, 2], [3, 4]]


def test_an_impossible_gate_is_llada():
    """A threshold that nothing exceeds leaves the schedule."""
    problem = Problem.default()
    ours = decode(problem.denoiser, KLASS(1.0), problem.state, noise=problem.noise)
    theirs = decode(problem.denoiser, LLaDA(), problem.state, noise=problem.noise)
    assert torch.equal(ours.state.tokens_BL, theirs.state.tokens_BL)
    for row in range(problem.state.batch):
        assert revealed(ours.row(row)) == revealed(theirs.row(row))


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        KLASS(),
        KLASS(0.4, 1.0, block_length=3),
        KLASS(0.4, 0.5, variant="dream"),
        KLASS(0.1, 5.0, strategy="random"),
        KLASS(0.1, 5.0, window=3, strategy="min_kl"),
    ],
)
def test_contract(policy):
    check_policy(policy)


@each_case("preset", METHODS["klass"].presets)
def test_presets_are_settings(preset):
    assert KLASS(**METHODS["klass"].presets[preset]).window == 2
