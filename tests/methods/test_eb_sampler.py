"""EB-Sampler: what a budget of 0 and of infinity equal."""

import pytest

from tests.methods.worked import distributions, first, revealed, run, table
from unmask.engine import decode
from unmask.methods.check import Problem, check_policy
from unmask.methods.eb_sampler import EBSampler

(FIVE,) = table("eb-sampler")


def test_budget_zero_is_one_a_step_and_infinity_all_at_once():
    problem = Problem.default()
    for gamma, steps in ((0.0, None), (float("inf"), 1)):
        end = decode(problem.denoiser, EBSampler(gamma), problem.state, noise=problem.noise)
        for row in range(problem.state.batch):
            assert len(end.row(row).steps) == (steps or int(problem.state.masked_BL[row].sum()))


def test_certain_companions_are_free():
    sure = [1.0, 0.0]
    assert first(distributions([[[0.6, 0.4], sure, sure]]), EBSampler(0.0), 3) == [0, 1, 2]


def test_blocks():
    assert revealed(run(distributions([FIVE]), EBSampler(1.0, block_length=2), 5)) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("policy", [EBSampler(), EBSampler(1.0, "margin", 3), EBSampler(2.0, spacing=2)])
def test_contract(policy):
    check_policy(policy)
