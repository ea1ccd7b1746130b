"""CUDA graphs, their cache, and the passes of a network in it. Without a GPU, and on one."""

import gc
import warnings
from dataclasses import replace

import pytest
import torch

from tests.helpers import fake_cuda
from tests.helpers.gpu import gpu
from unmask.base.errors import warn_once
from unmask.core import copy_in
from unmask.models import CudaGraph, GraphCache, NotGraphable, build_graph, cuda_graphs
from unmask.models.cuda_graphs import REMEMBERED_KEYS, GraphPool
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


def test_a_replay_reads_what_was_copied_in(events):
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


def test_the_next_replay_overwrites_the_result(events):
    buffer = torch.zeros(2)
    recording = build_graph(lambda: buffer * 2, CPU, buffers=[buffer])
    first = recording(torch.ones(2))
    assert first.tolist() == [2, 2]
    assert recording(torch.full((2,), 5.0)) is first
    assert first.tolist() == [10, 10]


def test_work_that_has_run_before_is_captured_at_once(events):
    runs = []
    recording = build_graph(lambda: runs.append(len(events)), CPU)
    assert events == [("capture", (None, None))]
    assert runs == [1]
    recording()
    assert runs == [1]


def test_memory_is_shared_while_a_graph_lives_and_no_longer(events, monkeypatch):
    """Torch forgets a handle with the last graph that was recorded with it."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", iter("abc").__next__)
    memory = GraphPool()
    first = build_graph(lambda: None, CPU, pool=memory)
    second = build_graph(lambda: None, CPU, pool=memory)
    del first
    third = build_graph(lambda: None, CPU, pool=memory)
    del second, third
    fourth = build_graph(lambda: None, CPU, pool=memory)
    memory.abandon()
    build_graph(lambda: None, CPU, pool=memory)
    assert [pool for _, (pool, _) in events] == ["a", "a", "a", "b", "c"]
    assert fourth.result is None


@gpu
def test_memory_can_be_shared_again_when_all_graphs_have_gone():
    memory, x = GraphPool(), torch.ones(1 << 20, device="cuda")
    for factor in (2.0, 3.0):
        recording = build_graph(lambda factor=factor: x * factor, torch.device("cuda:0"), pool=memory)
        assert torch.equal(recording(), x * factor)
        del recording


def test_nothing_is_collected_while_recording(events):
    """An old graph that goes in the middle of a recording breaks it; garbage waits until the end, also of a failure."""
    seen = []
    build_graph(lambda: seen.append(gc.isenabled()), CPU)

    def fail():
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        build_graph(fail, CPU)
    assert seen == [False]
    assert gc.isenabled()


@gpu
def test_random_numbers_go_on_after_a_recording_that_failed():
    """Torch's own generator is told of a recording and not of its failure."""
    x = torch.ones(2, device="cuda")
    torch.cuda.manual_seed(5)
    expected = torch.randn(3, device="cuda")
    torch.cuda.manual_seed(5)
    with pytest.raises(RuntimeError):
        build_graph(lambda: x.sum().item(), torch.device("cuda:0"))
    assert torch.equal(torch.randn(3, device="cuda"), expected)
    assert torch.equal(build_graph(lambda: x * 2, torch.device("cuda:0"))(), x * 2)


def test_rehearsals_run_first_on_the_stream_of_the_recording(events):
    runs = []
    build_graph(lambda: runs.append(len(events)), CPU, rehearsals=3)
    (entered, stream), (captured, (pool, on)) = events
    assert (entered, captured, pool) == ("stream", "capture", None)
    assert stream is on
    # Three before the capture began, one in it.
    assert runs == [1, 1, 1, 2]


def test_values_are_copied_whatever_their_layout(monkeypatch):
    sizes, plain = [], torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, of: (sizes.append(len(to)), plain(to, of))[1])
    values = [torch.arange(6).reshape(2, 3), torch.arange(6.0), torch.ones(6), torch.arange(6).reshape(3, 2).T]
    buffers = [torch.zeros(value.shape, dtype=value.dtype) for value in values]
    copy_in(buffers, values)
    assert all(torch.equal(buffer, value) for buffer, value in zip(buffers, values, strict=True))
    assert sorted(sizes) == [1, 1, 2]
    with pytest.raises(ValueError, match="zip"):
        copy_in(buffers, values[:3])


@gpu
@pytest.mark.parametrize("rehearsals", [0, 3])
def test_a_replay_on_a_gpu_is_the_plain_work(rehearsals):
    device = torch.device("cuda")
    buffers = (torch.zeros(3, device=device), torch.zeros(3, device=device))
    work_on(*buffers)()
    recording = build_graph(work_on(*buffers), device, buffers=buffers, rehearsals=rehearsals)
    for seed in range(3):
        values = [torch.randn(3, generator=torch.Generator(device).manual_seed(seed), device=device) for _ in range(2)]
        result, plain = recording(*values), work_on(*values)()
        assert torch.equal(result["sum"], plain["sum"])


# A cache of graphs.


def found(cache, key, make):
    """As the second run of a key finds it."""
    cache.find(key, make)
    return cache.find(key, make)


def test_work_is_done_once_then_recorded_then_replayed(events):
    done, cache = [], GraphCache(CPU, limit=1)
    first, second = cache.nested_cache(), cache.nested_cache()
    for graphs in (first, second, first):
        for key in (0, 1, 0, 0):
            graphs.run(key, lambda key=key: done.append(key))
    # Twice each: at once, and while it is recorded.
    assert sorted(done) == [0, 0, 0, 0, 1, 1, 1]
    assert [pool for _, (pool, _) in events] == [(0, 1)] * 3, "all in the memory of the first cache"
    assert list(first.kept) == [1, 0]
    assert list(second.kept) == [0]


def test_the_values_used_last_are_kept():
    cache, made = GraphCache(CPU, limit=2), []
    for key in "abacab":
        found(cache, key, lambda key=key: made.append(key) or key)
    assert made == ["a", "b", "c", "b"]


def test_a_key_that_comes_once_costs_nothing_and_is_forgotten():
    cache = GraphCache(CPU)
    assert [cache.find(key, lambda: "value") for key in "abab"] == [None, None, "value", "value"]
    cache.find("once", lambda: "value")
    for number in range(REMEMBERED_KEYS):
        cache.find(number, lambda: "value")
    assert cache.find("once", lambda: "value") is None


def test_a_refused_key_is_said_once_and_not_tried_again():
    warn_once.cache_clear()
    cache = GraphCache(CPU)
    found(cache, "key", lambda: "steps")
    with pytest.warns(UserWarning, match="no room"):
        cache.refuse("key", "no room")
    assert cache.find("key", lambda: "steps") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.refuse("other", "no room")


def test_work_without_a_name_that_cannot_be_recorded_says_why(monkeypatch):
    def fail(*args, **kwargs):
        raise torch.OutOfMemoryError("no room\nand much more")

    monkeypatch.setattr(cuda_graphs, "build_graph", fail)
    cache = GraphCache(CPU)
    cache.run(0, lambda: None)
    with pytest.raises(NotGraphable, match=r"^no room$"):
        cache.run(0, lambda: None)
    assert cache.run(0, lambda: "plain") == "plain"


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
def test_replays_are_plain_passes(transformer, events, watch):
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
def test_the_least_recently_used_shape_goes_and_is_recorded_again_at_once(transformer, events):
    graphs = PassGraphs(transformer("llada"), limit=2)
    for rows in (1, 2, 1, 2, 3, 1, 3):
        graphs(*batch(rows, 4))
    assert [key[1][0][0] for key in graphs.kept] == [1, 3]
    assert len(events) == 3
    graphs(*batch(2, 4))
    assert [key[1][0][0] for key in graphs.kept] == [3, 2]
    assert len(events) == 4


@torch.inference_mode()
def test_a_shape_that_cannot_be_recorded_runs_plainly_and_says_so_once(transformer, events, monkeypatch):
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


def twice(graphs, values):
    """Two passes: the second would be recorded. What was said, and whether both gave the plain numbers."""
    expected = run_layers(graphs.model, *values).x_BNH
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        same = [torch.equal(graphs(*values).x_BNH, expected) for _ in range(3)]
    return [str(warning.message) for warning in caught], all(same)


@torch.inference_mode()
def test_too_little_memory_for_a_capture(transformer, events, monkeypatch):
    """The pass itself fits, its recording does not: that has memory of its own."""
    begin = torch.cuda.graph

    class Full:
        def __init__(self, *args, **kwargs):
            self.capture = begin(*args, **kwargs)

        def __enter__(self):
            return self.capture.__enter__()

        def __exit__(self, *problem):
            self.capture.__exit__(*problem)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.\nmore")

    warn_once.cache_clear()
    monkeypatch.setattr(torch.cuda, "graph", Full)
    said, same = twice(PassGraphs(transformer("llada")), batch(2, 4))
    assert same
    assert len(said) == 1
    assert said[0].endswith("not as a recorded graph: CUDA out of memory. Tried to allocate 1.00 GiB.")


class Working(PlainOps):
    """Kernels that run."""


class Failing(PlainOps):
    """Kernels that cannot be compiled for some width."""

    def gate(self, gate, up):
        raise ValueError("out of resource: shared memory")


@torch.inference_mode()
def test_kernels_that_fail_on_a_shape_are_given_up(transformer, events):
    warn_once.cache_clear()
    model, plain = transformer("llada"), transformer("llada")
    graphs, values = PassGraphs(model), batch(2, 4)
    model.use(Failing())
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
def test_graphs_of_kernels_that_were_given_up_are_never_replayed(transformer, network, events):
    """Several caches share a model: steps, passes and block caches. One that fails turns it plain for all."""
    net = replace(network("llada"), model=transformer("llada"))
    others, values = PassGraphs(net.model), batch(2, 4)
    net.model.use(Working())
    for _ in range(2):
        others(*values)
    (recorded,), before = others.kept.values(), net.variant
    net.model.use(PLAIN)
    for _ in range(3):
        others(*values)
    assert recorded.graph.replays == 1
    assert net.variant != before, "or whole steps would replay them"


@torch.inference_mode()
def test_what_fails_without_kernels_is_an_error(transformer, events):
    """A token that no embedding has: nothing to fall back to."""
    tokens_BN, position_BN, bias = batch(2, 4)
    with pytest.raises(IndexError):
        PassGraphs(transformer("llada"))(tokens_BN + 10**6, position_BN, bias)
