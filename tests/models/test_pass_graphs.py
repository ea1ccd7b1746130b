"""Forward passes of shapes seen before, without a GPU: recorded the second time, replayed from then on."""

import warnings
from dataclasses import replace

import pytest
import torch

from tests.helpers import fake_cuda
from unmask.base.errors import warn_once
from unmask.models import cuda_graphs as module
from unmask.models.execution import PassGraphs
from unmask.models.network import run_layers
from unmask.models.transformer import PLAIN, PlainOps


@pytest.fixture
def events(monkeypatch):
    return fake_cuda.install(monkeypatch)


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
    monkeypatch.setattr(module, "build_graph", refuse)
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
def test_a_driver_without_graphs(transformer, events, monkeypatch):
    def unsupported():
        raise RuntimeError("CUDA error: operation not supported")

    warn_once.cache_clear()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", unsupported)
    said, same = twice(PassGraphs(transformer("llada")), batch(2, 4))
    assert same
    assert said == [
        "passes over (2, 4) slots run one by one, not as a recorded graph: CUDA error: operation not supported"
    ]


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


@torch.inference_mode()
def test_a_shape_never_seen_runs_at_once_and_nothing_is_said(transformer, events):
    graphs = PassGraphs(transformer("llada"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in range(1, 5):
            assert torch.equal(graphs(*batch(rows, 4)).x_BNH, run_layers(graphs.model, *batch(rows, 4)).x_BNH)
    assert events == []
