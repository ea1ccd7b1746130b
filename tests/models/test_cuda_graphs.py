"""CUDA graphs, their cache, and the passes of a network in it. Without a GPU, and on one."""

import warnings
from dataclasses import replace

import pytest
import torch

from tests.helpers import fake_cuda
from tests.helpers.gpu import gpu
from unmask.base.errors import warn_once
from unmask.models import CudaGraph, GraphCache, NotGraphable, build_graph, cuda_graphs
from unmask.models.cuda_graphs import GraphPool
from unmask.models.execution import PassGraphs
from unmask.models.network import run_layers
from unmask.models.transformer import PLAIN, PlainOps

CPU = torch.device("cpu")


@pytest.fixture
def events(monkeypatch):
    return fake_cuda.install(monkeypatch)


def work_on(x_N, y_N):
    def work():
        total_N = x_N.exp() + y_N
        total_N += 1.0
        return {"sum": total_N.cumsum(0), "first": total_N[:2]}

    return work


def test_pool_is_shared_while_one_of_its_graphs_lives(events, monkeypatch):
    """Torch forgets a handle with the last graph that was recorded with it."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", iter("abc").__next__)
    memory = GraphPool()
    first = build_graph(lambda: None, CPU, pool=memory)
    second = build_graph(lambda: None, CPU, pool=memory)
    del first
    third = build_graph(lambda: None, CPU, pool=memory)
    del second, third
    fourth = build_graph(lambda: None, CPU, pool=memory)
    memory.abandon_memory()
    build_graph(lambda: None, CPU, pool=memory)
    assert [pool for _, (pool, _) in events] == ["a", "a", "a", "b", "c"]
    assert fourth.result is None


@gpu
def test_pool_can_be_used_after_all_its_graphs_are_gone():
    memory, x = GraphPool(), torch.ones(1 << 20, device="cuda")
    for factor in (2.0, 3.0):
        recording = build_graph(lambda factor=factor: x * factor, torch.device("cuda:0"), pool=memory)
        assert torch.equal(recording(), x * factor)
        del recording


@gpu
def test_failed_recording_leaves_the_random_numbers():
    """Torch's own generator is told of a recording and not of its failure."""
    x = torch.ones(2, device="cuda")
    torch.cuda.manual_seed(5)
    expected = torch.randn(3, device="cuda")
    torch.cuda.manual_seed(5)
    with pytest.raises(RuntimeError):
        build_graph(lambda: x.sum().item(), torch.device("cuda:0"))
    assert torch.equal(torch.randn(3, device="cuda"), expected)
    assert torch.equal(build_graph(lambda: x * 2, torch.device("cuda:0"))(), x * 2)


@gpu
@pytest.mark.parametrize("rehearsals", [0, 3])
def test_replay_on_a_gpu_equals_plain_work(rehearsals):
    device = torch.device("cuda")
    buffers = (torch.zeros(3, device=device), torch.zeros(3, device=device))
    work_on(*buffers)()
    recording = build_graph(work_on(*buffers), device, buffers=buffers, rehearsals=rehearsals)
    for seed in range(3):
        values = [torch.randn(3, generator=torch.Generator(device).manual_seed(seed), device=device) for _ in range(2)]
        result, plain = recording(*values), work_on(*values)()
        assert torch.equal(result["sum"], plain["sum"])


# A cache of graphs.


def test_work_runs_once_is_recorded_then_replayed(events):
    done, cache = [], GraphCache(CPU, limit=1)
    first, second = cache.make_nested_cache(), cache.make_nested_cache()
    for graphs in (first, second, first):
        for key in (0, 1, 0, 0):
            graphs.run(key, lambda key=key: done.append(key))
    # Twice each: at once, and while it is recorded.
    assert sorted(done) == [0, 0, 0, 0, 1, 1, 1]
    assert [pool for _, (pool, _) in events] == [(0, 1)] * 3, "all in the memory of the first cache"
    assert list(first.kept) == [1, 0]
    assert list(second.kept) == [0]


# Passes of a network.


def batch(rows, slots, seed=0):
    draw = torch.Generator().manual_seed(seed)
    tokens_BN = torch.randint(0, 200, (rows, slots), generator=draw)
    bias = torch.where(torch.rand(rows, 1, 1, slots, generator=draw) < 0.8, 0.0, float("-inf"))
    bias[..., 0] = 0.0
    # As a view that nobody padded has them: one row for all.
    return tokens_BN, torch.arange(slots).expand(rows, slots), bias


@torch.inference_mode()
@pytest.mark.parametrize("watch", [(), (0, 1)])
def test_replayed_passes_equal_plain_passes(transformer, events, watch):
    model = transformer("llada")
    graphs = PassGraphs(model)
    for seed in range(4):
        values = batch(2, 8, seed)
        output, plain = graphs(*values, watch=watch), run_layers(model, *values, watch=watch)
        assert len(events) == (seed > 0)
        assert torch.equal(output.x_BNH, plain.x_BNH)
        assert (output.attention_BNN is None) == (not watch)
        if watch:
            assert torch.equal(output.attention_BNN, plain.attention_BNN)
    (recording,) = graphs.kept.values()
    assert recording.graph.replays == 3
    assert events == [("capture", ((0, 1), None))]


@torch.inference_mode()
def test_shape_that_cannot_be_recorded_runs_plainly_with_one_warning(transformer, events, monkeypatch):
    """A driver without graphs, or too little memory: other shapes are tried all the same."""
    model = transformer("llada")
    graphs, refused = PassGraphs(model), batch(2, 4)
    expected = run_layers(model, *refused)

    def refuse(*args, **kwargs):
        raise RuntimeError("CUDA error: operation not supported\nwith more lines")

    warn_once.cache_clear()
    monkeypatch.setattr(cuda_graphs, "build_graph", refuse)
    graphs(*refused)
    message = (
        r"^passes over \(2, 4\) slots run one by one, not as a recorded graph: CUDA error: operation not supported$"
    )
    with pytest.warns(UserWarning, match=message):
        assert torch.equal(graphs(*refused).x_BNH, expected.x_BNH)
    monkeypatch.undo()
    fake_cuda.install(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(graphs(*refused).x_BNH, expected.x_BNH)
        graphs(*batch(3, 4))
        graphs(*batch(3, 4))
    assert [key[1][0][0] for key in graphs.kept] == [3]


class Working(PlainOps):
    """Kernels that run."""


class Failing(PlainOps):
    """Kernels that cannot be compiled for some width."""

    def gate(self, gate, up):
        raise ValueError("out of resource: shared memory")


@torch.inference_mode()
def test_failing_kernels_are_replaced_by_plain_operations(transformer, events):
    warn_once.cache_clear()
    model, plain = transformer("llada"), transformer("llada")
    graphs, values = PassGraphs(model), batch(2, 4)
    model.use_ops(Failing())
    expected = run_layers(plain, *values).x_BNH
    message = r"^the engine is graph, not fused: the kernels do not run \(out of resource: shared memory\)$"
    with pytest.warns(UserWarning, match=message):
        assert torch.equal(graphs(*values).x_BNH, expected)
    assert model.ops is PLAIN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert torch.equal(graphs(*values).x_BNH, expected)


@torch.inference_mode()
def test_graphs_of_replaced_kernels_are_never_replayed(transformer, network, events):
    """Several caches share a model: steps, passes and block caches. One that fails turns it plain for all."""
    net = replace(network("llada"), model=transformer("llada"))
    others, values = PassGraphs(net.model), batch(2, 4)
    net.model.use_ops(Working())
    for _ in range(2):
        others(*values)
    (recorded,), before = others.kept.values(), net.variant
    net.model.use_ops(PLAIN)
    for _ in range(3):
        others(*values)
    assert recorded.graph.replays == 1
    assert net.variant != before, "or whole steps would replay them"


def test_replay_computes_from_new_inputs(events):
    buffers = (torch.zeros(3), torch.zeros(3))
    recording = build_graph(work_on(*buffers), CPU, buffers=buffers)
    assert isinstance(recording, CudaGraph)
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        values = [torch.randn(3, generator=draw), torch.randn(3, generator=draw)]
        result, plain = recording(*values), work_on(*values)()
        assert torch.equal(result["sum"], plain["sum"])
        assert torch.equal(result["first"], plain["first"])
    assert recording.graph.replays == 3


def test_refused_recording_raises_its_reason(monkeypatch):
    def fail(*args, **kwargs):
        raise torch.OutOfMemoryError("no room\nand much more")

    monkeypatch.setattr(cuda_graphs, "build_graph", fail)
    cache = GraphCache(CPU)
    cache.run(0, lambda: None)
    with pytest.raises(NotGraphable, match=r"^no room$"):
        cache.run(0, lambda: None)
    assert cache.run(0, lambda: "plain") == "plain"
