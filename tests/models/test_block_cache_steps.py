"""Recorded steps under a block cache: the tokens, counts and records of the plain loop."""

from dataclasses import replace

import pytest
import torch

from tests.helpers import fake_cuda
from tests.helpers.gpu import gpu
from tests.helpers.tape import TapeRecorder
from unmask.core import Noise, State, row_key
from unmask.engine import decode
from unmask.methods import LLaDA, make_policy
from unmask.models import BlockCache
from unmask.models.execution import PassGraphs, choose_execution, use_engine

both = pytest.mark.parametrize("cache", ["prefix", "dual"])
POLICIES = {
    "together": LLaDA(4),
    "apart": make_policy("fixed", region="block:4", kappa="above:0.12", commit="all"),
    "sure": make_policy("fast-dllm", block_length=4, threshold=0.2),
}
policies = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@pytest.fixture
def graphs(network, monkeypatch):
    """A network whose passes are recorded, too: its buffers serve the next decode."""
    fake_cuda.install(monkeypatch)

    def build(kind):
        net = network(kind)
        return replace(net, forward=PassGraphs(net.model))

    return build


def rows(net, lengths, new, seed=0, device="cpu"):
    draw = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, 200, (n,), generator=draw).tolist() for n in lengths]
    state = State.from_prompts(prompts, new_tokens=new, steps=new, mask_id=net.vocabulary.mask_id, device=device)
    return state, Noise.of([row_key(0, b) for b in range(len(prompts))], device)


def twice(net, recorder, cache, policy, state, noise, refresh=0, **options):
    """What the plain loop gives, and what recorded steps give."""
    plain = BlockCache(net, cache, 4, refresh)
    fast = BlockCache(replace(net, step_graphs=recorder), cache, 4, refresh)
    return [decode(denoiser, policy, state, noise=noise, **options) for denoiser in (plain, fast)]


@both
@policies
@pytest.mark.parametrize("kind", ["llada", "dream"])
def test_graphed_steps_are_those_of_the_plain_loop(kind, policy, cache, graphs):
    """Rows of several lengths, in different blocks, which end at different times: to the byte of the record."""
    net, recorder = graphs(kind), TapeRecorder()
    for seed in range(3):
        state, noise = rows(net, [5, 14, 2, 9], [12, 8, 4, 12], seed)
        plain, fast = twice(net, recorder, cache, policy, state, noise, refresh=3)
        assert torch.equal(plain.state.tokens_BL, fast.state.tokens_BL)
        assert torch.equal(plain.processed_B, fast.processed_B)
        assert torch.equal(plain.forwards_B, fast.forwards_B)
    assert not recorder.refused
    assert recorder.count["replayed"]


@both
def test_failed_recording_goes_on_with_the_same_cache(cache, network):
    net, recorder = network("llada"), TapeRecorder(fails="no graphs here")
    state, noise = rows(net, [5, 9], 12)
    plain, fast = twice(net, recorder, cache, LLaDA(4), state, noise)
    assert torch.equal(plain.state.tokens_BL, fast.state.tokens_BL)
    assert torch.equal(plain.processed_B, fast.processed_B)
    assert list(recorder.refused.values())


@both
def test_next_decode_finds_the_memory_free(cache, graphs):
    """Also where rows end at different times and steps of several batches are kept: none of them holds the cache."""
    net, recorder = graphs("llada"), TapeRecorder()
    for seed in range(3):
        state, noise = rows(net, [5, 14, 2, 9], [12, 8, 4, 12], seed)
        decode(BlockCache(replace(net, step_graphs=recorder), cache, 4), POLICIES["apart"], state, noise=noise)
        (memory,) = net.forward.seat_memories
        assert memory.user() is None
    assert len(recorder.kept) > 1


def test_large_caches_are_not_kept_with_graphs(network, monkeypatch):
    net, recorder = network("llada"), TapeRecorder()
    monkeypatch.setattr("unmask.models.block_cache.GRAPHED_BYTES", 1000)
    state, noise = rows(net, [5, 9], 12)
    plain, fast = twice(net, recorder, "dual", LLaDA(4), state, noise)
    assert torch.equal(plain.state.tokens_BL, fast.state.tokens_BL)
    assert not any(recorder.count.values())


@gpu
@both
@policies
@pytest.mark.parametrize("kind", ["llada", "dream"])
def test_graphed_steps_on_a_gpu_are_those_of_the_plain_loop(kind, policy, cache, network, transformer):
    """In float32 on small weights, with the default engine; and the tokens of the CPU."""
    slow = network(kind)
    net = replace(slow, model=transformer(kind).to("cuda:0"))
    net = use_engine(net, choose_execution("auto", net.device).engine)
    for seed in range(3):
        state, noise = rows(net, [5, 14, 2, 9], [12, 8, 4, 12], seed, net.device)
        plain, fast = twice(replace(net, step_graphs=None), net.step_graphs, cache, policy, state, noise, refresh=3)
        assert torch.equal(plain.state.tokens_BL, fast.state.tokens_BL)
        assert torch.equal(plain.processed_B, fast.processed_B)
        state, noise = rows(slow, [5, 14, 2, 9], [12, 8, 4, 12], seed)
        end = decode(BlockCache(slow, cache, 4, 3), policy, state, noise=noise)
        assert torch.equal(end.state.tokens_BL, fast.state.tokens_BL.cpu())
    assert not any(net.step_graphs._seen.values())
    assert net.step_graphs.kept
