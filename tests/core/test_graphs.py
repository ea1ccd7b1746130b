"""The recorder: buffers in, the recording's result out, rehearsals first. Without a GPU, and on one."""

import gc

import pytest
import torch

from tests.helpers import fake_cuda
from tests.helpers.gpu import gpu
from unmask.core import GraphMemory, Recording, copy_in, record

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
    recording = record(work_on(*buffers), CPU, buffers=buffers)
    assert isinstance(recording, Recording)
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        values = [torch.randn(3, generator=draw), torch.randn(3, generator=draw)]
        result, plain = recording(*values), work_on(*values)()
        assert torch.equal(result["sum"], plain["sum"])
        assert torch.equal(result["first"], plain["first"])
    assert recording.graph.replays == 3


def test_the_next_replay_overwrites_the_result(events):
    buffer = torch.zeros(2)
    recording = record(lambda: buffer * 2, CPU, buffers=[buffer])
    first = recording(torch.ones(2))
    assert first.tolist() == [2, 2]
    assert recording(torch.full((2,), 5.0)) is first
    assert first.tolist() == [10, 10]


def test_work_that_has_run_before_is_captured_at_once(events):
    runs = []
    recording = record(lambda: runs.append(len(events)), CPU)
    assert events == [("capture", (None, None))]
    assert runs == [1]
    recording()
    assert runs == [1]


def test_memory_is_shared_while_a_graph_lives_and_no_longer(events, monkeypatch):
    """Torch forgets a handle with the last graph that was recorded with it."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", iter("abc").__next__)
    memory = GraphMemory()
    first = record(lambda: None, CPU, memory=memory)
    second = record(lambda: None, CPU, memory=memory)
    del first
    third = record(lambda: None, CPU, memory=memory)
    del second, third
    fourth = record(lambda: None, CPU, memory=memory)
    memory.leave()
    record(lambda: None, CPU, memory=memory)
    assert [pool for _, (pool, _) in events] == ["a", "a", "a", "b", "c"]
    assert fourth.result is None


@gpu
def test_memory_can_be_shared_again_when_all_graphs_have_gone():
    memory, x = GraphMemory(), torch.ones(1 << 20, device="cuda")
    for factor in (2.0, 3.0):
        recording = record(lambda factor=factor: x * factor, torch.device("cuda:0"), memory=memory)
        assert torch.equal(recording(), x * factor)
        del recording


def test_nothing_is_collected_while_recording(events):
    """An old graph that goes in the middle of a recording breaks it; garbage waits until the end, also of a failure."""
    seen = []
    record(lambda: seen.append(gc.isenabled()), CPU)

    def fail():
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        record(fail, CPU)
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
        record(lambda: x.sum().item(), torch.device("cuda:0"))
    assert torch.equal(torch.randn(3, device="cuda"), expected)
    assert torch.equal(record(lambda: x * 2, torch.device("cuda:0"))(), x * 2)


def test_rehearsals_run_first_on_the_stream_of_the_recording(events):
    runs = []
    record(lambda: runs.append(len(events)), CPU, rehearsals=3)
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
    recording = record(work_on(*buffers), device, buffers=buffers, rehearsals=rehearsals)
    for seed in range(3):
        values = [torch.randn(3, generator=torch.Generator(device).manual_seed(seed), device=device) for _ in range(2)]
        result, plain = recording(*values), work_on(*values)()
        assert torch.equal(result["sum"], plain["sum"])
