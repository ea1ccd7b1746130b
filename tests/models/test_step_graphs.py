"""Whole steps as graphs on a GPU: the tokens, counts and records of the plain loop."""

import warnings
from dataclasses import replace

import pytest
import torch

from tests.helpers.gpu import gpu
from tests.helpers.recordable import POLICIES, four
from unmask.api.load import load
from unmask.base.errors import InvalidAction, warn_once
from unmask.core import Noise, SamplingParams, State, Vocabulary, row_key
from unmask.engine import decode
from unmask.methods import LLaDA, fixed_action, make_policy
from unmask.models import Network, Transformer, TransformerSpec
from unmask.models.execution import use_engine

CUDA = torch.device("cuda:0")


@pytest.fixture(autouse=True)
def _remarks_anew():
    warn_once.cache_clear()


def a_run(network, new_tokens=(16, 16, 16, 16), steps=(8, 16, 4, 8), seed=0):
    draw = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, 200, (20 - b % 3,), generator=draw).tolist() for b in range(len(steps))]
    state = State.from_prompts(
        prompts, new_tokens=list(new_tokens), steps=list(steps), mask_id=network.vocabulary.mask_id, device=CUDA
    )
    return {"start": state, "noise": Noise.of([row_key(seed, bytes(8), b) for b in range(len(steps))], CUDA)}


def twice(network, policy, seeds=(0, 1, 2, 3), **options):
    """The plain loop and recorded steps, several times: plain, at once, recorded, replayed."""
    plain = replace(network, step_graphs=None)
    for seed in seeds:
        run = a_run(network, seed=seed)
        yield decode(plain, policy, **run, **options), decode(network, policy, **run, **options)


def a_network(shift=0, dtype=torch.float32):
    """Random weights of a shape that all kernels take."""
    spec = TransformerSpec(256, 128, 2, 2, 1, 256, 1e4, 1e-5, bool(shift), not shift)
    model = Transformer.empty(spec, CUDA, dtype)
    torch.manual_seed(shift)
    for name, values in model.named_parameters():
        torch.nn.init.ones_(values) if "norm" in name else torch.nn.init.normal_(values, std=0.15)
    network = Network(model.requires_grad_(False), Vocabulary(256, 255, (5, 7)), shift, readout=(0, 1))
    return use_engine(network, "fused")


ON_GPU = [name for at, name in enumerate(POLICIES) if at % 3 == 0 or "selective" in name or "four" in name]
"""A third of them, and all that read diagnostics: a CPU has proved that the others can be recorded."""


@gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_graphed_steps_are_those_of_the_plain_loop(name):
    network = a_network()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for plain, recorded in twice(network, POLICIES[name], sampling=SamplingParams(temperature=0.7), record=False):
            assert torch.equal(plain.state.tokens_BL, recorded.state.tokens_BL)
            assert torch.equal(plain.forwards_B, recorded.forwards_B)
            assert torch.equal(plain.state.step_B, recorded.state.step_B)


@gpu
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(
    "proposal", [SamplingParams(), SamplingParams(temperature=0.8, sampler="gumbel"), SamplingParams(0.7, 0.9, 20)]
)
def test_graphed_run_records_the_plain_steps(shift, proposal):
    network = a_network(shift)
    policy = make_policy("dream") if shift else LLaDA()
    for plain, recorded in twice(network, policy, sampling=proposal, eos_fill=True):
        assert len(plain.steps) == len(recorded.steps)
        for one, other in zip(plain.steps, recorded.steps, strict=True):
            assert torch.equal(one.rows_B, other.rows_B)
            assert torch.equal(one.state.tokens_BL, other.state.tokens_BL)
            assert torch.equal(one.revealed_BL, other.revealed_BL)
            torch.testing.assert_close(one.confidence_BL, other.confidence_BL, equal_nan=True)


@gpu
def test_policy_that_reads_the_device_falls_back_to_the_plain_loop():
    class Asks(LLaDA):
        def act(self, traj, look_ahead):
            assert int(traj.state.step_B.max()) >= 0
            return super().act(traj, look_ahead)

    network = a_network()
    with pytest.warns(UserWarning, match="not as a recorded graph: steps of llada over"):
        runs = list(twice(network, Asks()))
    # The device is as good as before.
    for plain, recorded in (*runs, *twice(network, LLaDA())):
        assert torch.equal(plain.state.tokens_BL, recorded.state.tokens_BL)


@gpu
def test_fault_names_row_and_step():
    class Late(fixed_action):
        def act(self, traj, look_ahead):
            action = super().act(traj, look_ahead)
            wrong_B = (traj.rows_B == 1) & (traj.state.step_B == 5)
            return replace(action, kappa_B=torch.where(wrong_B, 2.0, action.kappa_B))

    network = a_network()
    for _ in range(4):
        with pytest.raises(InvalidAction, match="row 1, step 5: kappa is outside"):
            decode(network, Late(), **a_run(network), record=False)


@gpu
def test_graphed_steps_have_the_bits_of_plain_ones_in_bfloat16():
    """All rows end together, so that the network runs the same shapes either way."""
    network = a_network(dtype=torch.bfloat16)
    for policy in (make_policy("llada", block_length=8), four()):
        for seed in range(4):
            run = a_run(network, steps=(8, 8, 8, 8), seed=seed)
            recorded = decode(network, policy, **run)
            plain = decode(replace(network, step_graphs=None), policy, **run)
            assert len(recorded.steps) == 8
            for one, other in zip(plain.steps, recorded.steps, strict=True):
                assert torch.equal(one.state.tokens_BL, other.state.tokens_BL)
                assert torch.equal(one.prediction.confidence_BN, other.prediction.confidence_BN)


@gpu
def test_loaded_model_decodes_with_graphed_steps():
    pytest.importorskip("tokenizers")
    model = load("mini", device="cuda")
    prompts = ["Hello", "One two three"]
    for _ in range(4):
        recorded = model.generate(prompts, max_new_tokens=16, steps=8)
        plain = model.generate(prompts, max_new_tokens=16, steps=8, on_step=lambda traj: None)
        assert recorded.texts == plain.texts
    assert len(model.denoiser.step_graphs.kept) == 1
    assert len(recorded.trajectory.steps) == 8
