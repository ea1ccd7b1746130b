"""The passes of a block cache in fixed memory: recorded and replayed, they are the same passes."""

from dataclasses import replace

import pytest
import torch

from tests.helpers import fake_cuda
from tests.helpers.gpu import gpu
from unmask.base.errors import warn_once
from unmask.core import ModelInput, Needs, Noise, State, row_key
from unmask.engine import decode
from unmask.methods import LLaDA, make_policy
from unmask.models import BlockCache
from unmask.models.block_cache import CachedPass
from unmask.models.execution import PassGraphs, choose_execution, use_engine
from unmask.models.network import run_layers

both = pytest.mark.parametrize("cache", ["prefix", "dual"])
kinds = pytest.mark.parametrize("kind", ["llada", "dream"])
SURE = make_policy("fixed", region="block:4", kappa="above:0.12", commit="all")
"""Blocks end when their tokens are sure enough: rows begin new ones at different times."""


@pytest.fixture
def events(monkeypatch):
    return fake_cuda.install(monkeypatch)


def forward(net):
    """Passes of the shapes that recordings have, without recording any."""
    return replace(net, forward=lambda *values, **options: run_layers(net.model, *values, **options))


def recorded(net):
    return replace(net, forward=PassGraphs(net.model))


def start(net, lengths, new, seed=0) -> State:
    """Rows of prompt and blanks, where the network is."""
    draw = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, 480, (n,), generator=draw).tolist() for n in lengths]
    return State.from_prompts(prompts, new_tokens=new, steps=new, mask_id=net.vocabulary.mask_id, device=net.device)


class Heard:
    """A denoiser whose answers are kept."""

    def __init__(self, denoiser):
        self.denoiser, self.answers = denoiser, []
        self.vocabulary, self.device = denoiser.vocabulary, denoiser.device

    def __call__(self, view, needs):
        self.answers.append(self.denoiser(view, needs))
        return self.answers[-1]


def passes(net, cache, policy, state, refresh=0):
    """The logits of every pass, and the last tokens."""
    heard = Heard(BlockCache(net, cache, 4, refresh))
    noise = Noise.of([row_key(0, b) for b in range(state.batch)], net.device)
    return heard.answers, decode(heard, policy, state, noise=noise).state.tokens_BL


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a.logits_RV, b.logits_RV) and torch.equal(a.wanted_BN, b.wanted_BN)
        for a, b in zip(one, other, strict=True)
    )


@both
@kinds
@pytest.mark.parametrize("policy", [LLaDA(4), SURE], ids=["together", "apart"])
def test_replayed_passes_are_the_plain_ones(kind, cache, policy, network, events):
    net = network(kind)
    fast, plain = recorded(net), forward(net)
    for seed in range(3):
        state = start(net, [5, 14, 2, 9], 12, seed)
        (got, tokens), (expected, others) = (passes(n, cache, policy, state, 3) for n in (fast, plain))
        assert same(got, expected)
        assert torch.equal(tokens, others)
    assert any(recording.graph.replays > 3 for recording in fast.forward.seat_memories[0].graphs.kept.values())


@both
def test_next_decode_replays_the_graphs_of_the_first(cache, network, events):
    fast = recorded(network("llada"))
    captures = []
    for seed in range(4):
        passes(fast, cache, LLaDA(4), start(fast, [5, 9], 12, seed))
        captures.append(len(events))
    assert captures[0] > 0
    assert captures[1] == captures[3]
    assert len(fast.forward.seat_memories) == 1


@both
def test_two_decodes_at_once_do_not_share_memory(cache, network, events):
    fast = recorded(network("llada"))
    states = [start(fast, [5, 9], 8, seed) for seed in range(2)]
    views = [replace(ModelInput.of(state, Needs()), row_B=torch.arange(2)) for state in states]
    alone = []
    for inputs in views:
        wrapper = BlockCache(fast, cache, 4)
        alone.append([wrapper(inputs, Needs()) for _ in range(3)])
    wrappers = [BlockCache(fast, cache, 4) for _ in views]
    together = [[wrapper(inputs, Needs()) for wrapper, inputs in zip(wrappers, views, strict=True)] for _ in range(3)]
    for at in range(2):
        assert same([answers[at] for answers in together], alone[at])


@both
def test_failed_pass_is_followed_by_a_complete_one(cache, network, monkeypatch):
    net = network("llada")
    inputs = replace(ModelInput.of(start(net, [5], 8), Needs()), row_B=torch.arange(1))
    wrapper = BlockCache(net, cache, 4)
    wrapper(inputs, Needs())

    def full(*args):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(CachedPass, "_compute_spans", full)
    with pytest.raises(torch.OutOfMemoryError):
        wrapper(inputs, Needs())
    monkeypatch.undo()
    assert wrapper(inputs, Needs()).processed_B.tolist() == [13], "a complete pass"


@both
def test_driver_without_graphs_runs_cached_passes_plainly(cache, network, events, monkeypatch):
    def unsupported():
        raise RuntimeError("CUDA error: operation not supported")

    net = network("llada")
    warn_once.cache_clear()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", unsupported)
    state = start(net, [5, 9], 8)
    with pytest.warns(UserWarning, match="operation not supported") as caught:
        got, _ = passes(recorded(net), cache, LLaDA(4), state)
    assert {str(w.message) for w in caught} == {
        "passes of a block cache over 2 rows of 32 slots run one by one, not as a recorded graph: CUDA error: "
        "operation not supported"
    }
    assert len(caught) == 1
    assert same(got, passes(forward(net), cache, LLaDA(4), state)[0])


# On a GPU.


@gpu
@both
@kinds
@pytest.mark.parametrize("policy", [LLaDA(4), SURE], ids=["together", "apart"])
def test_default_engine_decodes_the_tokens_of_the_cpu(kind, cache, policy, network, transformer):
    """In float32 on small weights; replayed passes are the plain ones to the bit."""
    slow = network(kind)
    net = replace(slow, model=transformer(kind).to("cuda:0"))
    fast = use_engine(net, choose_execution("auto", net.device).engine)
    plain = replace(forward(fast), row_bounds=None)
    for seed in range(3):
        _, expected = passes(slow, cache, policy, start(slow, [5, 14, 2, 9], 12, seed), 3)
        got, tokens = passes(fast, cache, policy, start(fast, [5, 14, 2, 9], 12, seed), 3)
        assert torch.equal(tokens.cpu(), expected)
        assert same(got, passes(plain, cache, policy, start(fast, [5, 14, 2, 9], 12, seed), 3)[0])
    (buffers,) = fast.forward.seat_memories
    assert any(key[0] == "reuse" for _, key in buffers.graphs.kept)


@gpu
@both
def test_later_decodes_record_nothing(cache, network, transformer):
    net = replace(network("llada"), model=transformer("llada", torch.bfloat16).to("cuda:0"))
    fast = use_engine(net, choose_execution("auto", net.device).engine)
    seen = []
    for seed in range(4):
        passes(fast, cache, LLaDA(4), start(fast, [20], 12, seed))
        seen.append(dict(fast.forward.seat_memories[0].graphs.kept))
    assert seen[1] == seen[2] == seen[3]
