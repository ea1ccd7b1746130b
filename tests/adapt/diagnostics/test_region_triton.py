"""The kernel of the best region finds the very sets of the plain program, under Triton's interpreter and on a GPU."""

import pytest
import torch

from tests.helpers.interpreted import kernels_of
from unmask.adapt.diagnostics import region

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(scope="module")
def kernel():
    return kernels_of("unmask.adapt.diagnostics.region_triton")


def plain(score_BL, open_BL, nu_B, budget_B):
    """On the CPU, where no kernel is asked."""
    return region.best_region(score_BL.cpu(), open_BL.cpu(), nu_B.cpu(), budget_B.cpu()).to(score_BL.device)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 14, 15])
def test_sets_are_those_of_the_plain_program(kernel, length):
    """Any budget, ties, no toll and a dear one, rows with nothing open."""
    draw = torch.Generator().manual_seed(length)
    for case in range(5):
        score_BL = torch.rand(3, length, generator=draw, dtype=torch.float64)
        score_BL = (3 * score_BL).round() / 3 if case % 2 else score_BL
        open_BL = torch.rand(3, length, generator=draw) < (0.7 if case < 4 else 0.1)
        nu_B = torch.rand(3, generator=draw, dtype=torch.float64) * (case % 3)
        n_B = open_BL.sum(-1)
        budget_B = torch.minimum((torch.rand(3, generator=draw) * (n_B + 1)).long(), n_B)
        values = [value.to(DEVICE) for value in (score_BL, open_BL, nu_B, budget_B)]
        got_BL = kernel.best_sets(*region._build_chain(*values[:3]), values[3])
        assert torch.equal(got_BL, plain(*values))
        assert torch.equal(got_BL.sum(-1).cpu(), budget_B)


def test_a_cpu_asks_for_no_kernel():
    assert region._load_kernel(torch.device("cpu")) is None
