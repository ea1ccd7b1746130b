"""Best of n: the base's own loop n times, counted, and the answer that the model finds most probable."""

import math

import pytest
import torch

from tests.methods.test_paths import Listening, exact, noise, rows
from unmask.base.errors import ConfigError
from unmask.core import Noise, SamplingParams
from unmask.engine import decode
from unmask.methods import KLASS, BestOf, EBSampler, FastDLLM, InfoGain, LLaDA, make_policy, with_remasking
from unmask.methods.best_of import log_probability
from unmask.methods.check import check_search


@pytest.mark.parametrize("base", [LLaDA(), EBSampler(), FastDLLM(block_length=2)], ids=lambda base: base.name)
def test_it_keeps_the_contract_of_searches(base):
    check_search(BestOf(base, n=3))


def test_one_decode_is_the_base_method():
    model = exact()
    for sampling in (SamplingParams(), SamplingParams(temperature=0.7)):
        one = decode(model, BestOf(n=1), rows(model, 3), noise=noise(3), sampling=sampling)
        base = decode(model, LLaDA(), rows(model, 3), noise=noise(3), sampling=sampling)
        assert torch.equal(one.state.tokens_BL, base.state.tokens_BL)
        assert one.forwards_B.tolist() == base.forwards_B.tolist()


def test_the_most_probable_of_independent_decodes_is_kept():
    """Each decode is the base's, with noise of its own; the model's word about each is that of the base's steps."""
    model, state = exact(seed=6), rows(exact(), 3)
    end = decode(model, BestOf(n=5, temperature=0.9), state, noise=noise(3))
    found = []
    for number in range(5):
        keys = noise(3) if number == 0 else noise(3).derive(f"decode/{number}")
        drawn = SamplingParams(temperature=0.9 if number else 0.0)
        found.append(decode(model, LLaDA(), state, noise=keys, sampling=drawn))
    worth = [[log_probability(run.row(row)) for run in found] for row in range(3)]
    best = [values.index(max(values)) for values in worth]
    assert len({tuple(run.state.tokens_BL[0].tolist()) for run in found}) > 1
    for row, number in enumerate(best):
        assert end.state.tokens_BL[row].tolist() == found[number].state.tokens_BL[row].tolist()
        notes = end.row(row).steps[-1].action.notes
        assert float(notes["value"]) == pytest.approx(max(worth[row]))
        assert (int(notes["tree"]), int(notes["dropped"])) == (5, 4)
    assert end.forwards_B.tolist() == [sum(int(run.forwards_B[row]) for run in found) for row in range(3)]


def test_value_is_the_sum_of_logs_of_what_was_revealed():
    model = exact()
    run = decode(model, LLaDA(), rows(model), noise=noise())
    p = [float(step.confidence_BL[step.revealed_BL].prod()) for step in run.steps]
    assert log_probability(run) == pytest.approx(math.log(math.prod(p)))


def test_rows_that_are_full_are_not_run_again():
    """Fast-dLLM ends rows at different times."""
    model = Listening(exact(seed=2))
    end = decode(model, BestOf(FastDLLM(threshold=0.5, block_length=None), n=3), rows(model, 4), noise=noise(4))
    assert sum(map(len, model.passes)) == int(end.forwards_B.sum())
    assert len(set(end.forwards_B.tolist())) > 1


@pytest.mark.parametrize(
    "base", [KLASS(), InfoGain(), with_remasking(), make_policy("p2", planner=True), make_policy("wino")]
)
def test_bases_that_need_more_than_one_prediction_are_refused(base):
    with pytest.raises(ConfigError, match=rf"base of best-of is {base.name}; allowed: methods that decide from one"):
        BestOf(base)


def test_other_noise_is_independent_and_the_same_every_time():
    one, two = (Noise.of([3, 4]).derive(name) for name in ("a", "b"))
    assert not bool((one.key_B == two.key_B).any())
    assert torch.equal(one.key_B, Noise.of([3, 4]).derive("a").key_B)
    assert torch.equal(one.select(torch.tensor([1])).key_B, Noise.of([4]).derive("a").key_B)
