"""Fast-dLLM: its loop for Dream, spacing, and what its neutral settings equal."""

import pytest
import torch

from tests.methods.worked import confidences, first, revealed, run
from unmask.base.errors import ConfigError
from unmask.core import Noise
from unmask.engine import decode
from unmask.methods import FastDLLM
from unmask.methods.check import Problem, check_policy
from unmask.methods.fast_dllm import FastDLLMDream


def test_what_equals_the_threshold_passes():
    assert first(confidences([[0.5, 0.5, 0.25]]), FastDLLM(threshold=0.5), 3) == [0, 1]


def test_dream_loop_defers_and_adds_steps():
    denoiser = confidences([[0.95, 0.2, 0.93, 0.4, 0.91, 0.3]])
    assert revealed(run(denoiser, FastDLLMDream(0.9), 6, steps=2)) == [[0, 2, 4], [3], [5], [1]]


def test_dream_loop_needs_steps_that_divide():
    with pytest.raises(ConfigError, match=r"steps is 4; allowed: a divisor of the 6 new tokens"):
        run(confidences([[0.9] * 6]), FastDLLMDream(), 6, steps=4)


def test_blocks_are_filled_from_left_to_right():
    traj = run(confidences([[0.6, 0.5, 0.99, 0.98]]), FastDLLM(block_length=2), 4)
    assert revealed(traj) == [[0], [1], [2, 3]]


def test_spacing_keeps_what_is_revealed_together_apart():
    """DUS's worked example: candidates 1, 0, 3, 2, 4 by confidence; a gap of 4 keeps 1, a gap of 2 keeps 1 and 3."""
    c = [0.91, 0.95, 0.60, 0.88, 0.52, 0.30]
    assert first(confidences([c]), FastDLLM(threshold=0.5, block_length=6, spacing=4), 6) == [1]
    assert first(confidences([c]), FastDLLM(threshold=0.5, block_length=6, spacing=2), 6) == [1, 3]
    assert first(confidences([c]), FastDLLM(threshold=0.5, block_length=6), 6) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("threshold", [1.0, 0.0])
def test_neutral_thresholds(threshold):
    """Above every confidence seen: one a step; 0: all at once."""
    problem = Problem.default()
    end = decode(problem.denoiser, FastDLLM(threshold=threshold, block_length=None), problem.state, noise=problem.noise)
    answer_B = problem.state.answer_BL.sum(-1)
    steps_B = torch.tensor([len(end.row(row).steps) for row in range(problem.state.batch)])
    masked_B = problem.state.masked_BL.sum(-1)
    assert torch.equal(steps_B, masked_B if threshold else torch.ones_like(answer_B))


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [FastDLLM(block_length=2), FastDLLM("factor", block_length=None), FastDLLM(threshold=0.3, spacing=2)]
)
def test_contract(policy):
    check_policy(policy)


def test_contract_of_the_dream_loop():
    problem = Problem.default()
    even = problem.state.select(torch.tensor([0, 1]))
    check_policy(FastDLLMDream(0.5), Problem(problem.denoiser, even, Noise(problem.noise.key_B[:2])))
