"""Forward passes of shapes seen before, without a GPU: recorded the second time, replayed from then on."""

import warnings

import pytest
import torch

from tests.helpers import fake_cuda
from unmask.core.remarks import say_once
from unmask.denoisers import graphs as module
from unmask.denoisers.graphs import Graphs
from unmask.denoisers.readout import run


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
    graphs = Graphs(model)
    for seed in range(4):
        values = batch(2, 8, seed)
        output, plain = graphs(*values, watch=watch), run(model, *values, watch=watch)
        assert len(events) == (seed > 0)
        assert torch.equal(output.x_BNH, plain.x_BNH)
        assert (output.attention_BNN is None) == (not watch)
        if watch:
            assert torch.equal(output.attention_BNN, plain.attention_BNN)
    (recording,) = graphs.replays.recorded.values()
    assert recording.graph.replays == 3
    assert events == [("capture", ((0, 1), None))]


@torch.inference_mode()
def test_the_least_recently_used_shape_goes_and_is_recorded_again_at_once(transformer, events):
    graphs = Graphs(transformer("llada"), limit=2)
    for rows in (1, 2, 1, 2, 3, 1, 3):
        graphs(*batch(rows, 4))
    assert [key[0][0] for key in graphs.replays.recorded] == [1, 3]
    assert len(events) == 3
    graphs(*batch(2, 4))
    assert [key[0][0] for key in graphs.replays.recorded] == [3, 2]
    assert len(events) == 4


@torch.inference_mode()
def test_a_shape_that_cannot_be_recorded_runs_plainly_and_says_so_once(transformer, events, monkeypatch):
    """A driver without graphs, or too little memory: other shapes are tried all the same."""
    model = transformer("llada")
    graphs, refused = Graphs(model), batch(2, 4)
    expected = run(model, *refused)

    def refuse(*args, **kwargs):
        raise RuntimeError("CUDA error: operation not supported\nwith more lines")

    say_once.cache_clear()
    monkeypatch.setattr(module, "record", refuse)
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
    assert [key[0][0] for key in graphs.replays.recorded] == [3]
