"""Forward passes of shapes seen before, without a GPU: recorded the second time, replayed from then on."""

import pytest
import torch

from tests.helpers import fake_cuda
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
    (recording,) = graphs._recorded.values()
    assert recording.graph.replays == 3
    assert events == [("capture", ((0, 1), None))]


@torch.inference_mode()
def test_the_least_recently_used_shape_goes_and_is_recorded_again_at_once(transformer, events):
    graphs = Graphs(transformer("llada"), limit=2)
    for rows in (1, 2, 1, 2, 3, 1, 3):
        graphs(*batch(rows, 4))
    assert [key[0][0] for key in graphs._recorded] == [1, 3]
    assert len(events) == 3
    graphs(*batch(2, 4))
    assert [key[0][0] for key in graphs._recorded] == [3, 2]
    assert len(events) == 4
