"""What recorded graphs promise: nobody reads a result that another replay has overwritten, flags are waited for, forks
are joined, and nothing inside a recording asks the host or records again.

On a GPU, and on a CPU with stand-ins for graphs wherever the promise is not about the device's own time.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from tests.gpu import shared_pool
from tests.gpu.kernel_bits import GIVEN_UP, default_diagnostics, watched_policy
from tests.gpu.names import get
from tests.gpu.networks import ManyRows, inputs, noise, random_network, start
from tests.helpers.gpu import gpu
from tests.helpers.recordable import four
from tests.helpers.tape import HostFree, Tape, TapeRecorder
from unmask.core import Action, LookAhead, Trajectory
from unmask.engine import decode
from unmask.methods import Composed, make_policy

CYCLES = 50_000_000
"""Of the device's clock: about 30 ms."""
caches = pytest.mark.parametrize("cache", ["prefix", "dual"])


@pytest.fixture
def cpu(monkeypatch):
    """A small network on the CPU whose passes and steps are recorded by stand-ins."""
    events = shared_pool.install(monkeypatch)
    network = random_network("tiny", torch.float32, "cpu")
    return replace(network, forward=get("PassGraphs")(network.model)), events


def on_gpu(shape="mini-dream", dtype=torch.bfloat16):
    """A network with the engine that a GPU has by default."""
    return random_network(shape, dtype, "cuda", "fused")


def plain(network):
    """The same passes, one operation at a time and never recorded."""
    run = get("run_layers")
    return replace(network, forward=lambda *values, **options: run(network.model, *values, **options), step_graphs=None)


@pytest.fixture
def replays(monkeypatch) -> Iterator[list[int]]:
    """How often graphs were replayed on the GPU."""
    count = [0]
    replay = torch.cuda.CUDAGraph.replay

    def counted(self):
        count[0] += 1
        return replay(self)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    return count


@pytest.fixture
def nothing_given_up():
    """A graph that cannot be recorded is a warning, and here an error."""
    get("say_once").cache_clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*({'|'.join(GIVEN_UP)})")
        yield


# Flags.


@gpu
def test_flags_are_read_after_the_step_that_set_them():
    """The host waits for the copy of each step's flags, however far the device is behind."""
    flags = torch.zeros(2, dtype=torch.long, device="cuda")
    pending = get("PendingFlags")(flags)
    pending.drop_unread()
    torch.cuda.synchronize()
    for number in range(1, 6):
        torch.cuda._sleep(CYCLES)
        flags.fill_(number)
        pending.start_flag_copy()
        going, wrong = pending.read()
        assert (int(going), bool(wrong)) == (number, True)


@gpu
def test_flags_of_two_steps_on_their_way_are_read_in_order():
    flags = torch.zeros(2, dtype=torch.long, device="cuda")
    pending = get("PendingFlags")(flags)
    pending.drop_unread()
    torch.cuda.synchronize()
    for number in (1, 2):
        torch.cuda._sleep(CYCLES)
        flags.fill_(number)
        pending.start_flag_copy()
    assert [int(pending.read()[0]) for _ in range(2)] == [1, 2]


# The past of a recorded step.


@dataclass(frozen=True)
class HandsOn(Composed):
    """Hands notes of earlier steps on as they are: a step keeps tensors that lie where its past does."""

    name: ClassVar[str] = "hands-on"
    # How many past steps it reads and that it may be recorded, under the old names and under the new ones.
    past_steps = past_steps = 3
    cuda_graph = cuda_graph = True

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        now_B = traj.state.step_B + 0
        none_B = torch.full_like(now_B, -1)
        notes = [step.action.notes for step in traj.steps]
        handed_on = {
            "now_B": now_B,
            "before_B": notes[-1]["now_B"] if notes else none_B,
            "earlier_B": notes[-1]["before_B"] if notes else none_B,
            "oldest_B": notes[0]["now_B"] if len(notes) == 3 else none_B,
        }
        return replace(super().act(traj, look_ahead), notes=handed_on)


def notes_of(traj):
    return [{name: note.tolist() for name, note in step.action.notes.items()} for step in traj.steps]


def check_the_past(network, recorder):
    for seed in range(4):
        state = start(network, (5, 9), 10, seed=seed)
        expected = decode(replace(network, step_graphs=None), HandsOn(), state, noise=noise(network, 2, seed))
        got = decode(replace(network, step_graphs=recorder), HandsOn(), state, noise=noise(network, 2, seed))
        assert torch.equal(got.state.tokens_BL, expected.state.tokens_BL)
        assert notes_of(got) == notes_of(expected)
        assert [step["oldest_B"] for step in notes_of(got)][:5] == [[-1, -1]] * 3 + [[0, 0], [1, 1]]


def test_a_step_does_not_read_the_past_where_it_writes_it():
    recorder = TapeRecorder()
    check_the_past(random_network("tiny", torch.float32, "cpu"), recorder)
    assert recorder.count["replayed"]
    assert not recorder.refused


@gpu
def test_a_step_does_not_read_the_past_where_it_writes_it_on_a_gpu(nothing_given_up, replays):
    network = on_gpu()
    check_the_past(replace(network, forward=None), network.step_graphs)
    assert replays[0] > 10


# Block caches.


def rounds(network, cache, block, view):
    """The logits and wanted slots of a complete pass and two over spans."""
    cached = get("BlockCache")(network, cache, block)
    found = []
    for _ in range(3):
        output = cached(view, get("Needs")())
        found.append((output.logits_RV.clone(), output.wanted_BN.clone()))
    return found


def check_cache(fast, cache):
    """Spans of other blocks are recorded after the passes that run between finding and reading them."""
    slow = plain(fast)
    for turn, block in enumerate((4, 4, 8, 8, 4, 8, 6, 6, 6, 4)):
        view = inputs(fast, (9, 20, 14), 16, seed=turn)
        for (got_RV, got_BN), (expected_RV, expected_BN) in zip(
            rounds(fast, cache, block, view), rounds(slow, cache, block, view), strict=True
        ):
            assert torch.equal(got_BN, expected_BN)
            assert torch.equal(got_RV, expected_RV), (turn, block)


@caches
def test_spans_are_copied_out_of_a_recording(cache, cpu):
    network, events = cpu
    check_cache(network, cache)
    assert any(name == "capture" for name, _ in events)


@gpu
@caches
def test_spans_are_copied_out_of_a_recording_on_a_gpu(cache, replays, nothing_given_up):
    check_cache(on_gpu(), cache)
    assert replays[0] > 20


def check_pieces(fast, cache, sizes):
    """Pieces of a pass are replayed one after the other. In another order than they were recorded in, too: then a
    piece lies where the next one's replay writes.
    """
    bounds = ManyRows(1, None)
    fast = replace(fast, row_bounds=bounds)
    slow = replace(plain(fast), row_bounds=bounds)
    for turn, most in enumerate(sizes):
        bounds.most = most
        view = inputs(fast, (9, 20, 14, 3, 11, 6), 16, seed=turn)
        for got, expected in zip(rounds(fast, cache, 4, view), rounds(slow, cache, 4, view), strict=True):
            assert torch.equal(got[1], expected[1])
            assert torch.equal(got[0], expected[0]), (turn, most)


@caches
def test_pieces_of_a_cached_pass_outlive_the_next_replay(cache, cpu):
    check_pieces(cpu[0], cache, (4, 4, 2, 2, 2))


@gpu
@caches
def test_pieces_of_a_cached_pass_outlive_the_next_replay_on_a_gpu(cache, replays, nothing_given_up):
    check_pieces(on_gpu(), cache, (5, 5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2, 1, 1, 1, 4, 2, 1, 5))
    assert replays[0] > 40


# Passes that are filled up or cut.


def check_filled_up(fast):
    """Six rows go through the layers four at a time, the last two with copies of the first: one recording for both."""
    fast = replace(fast, row_bounds=ManyRows(4, 4))
    slow = replace(plain(fast), row_bounds=fast.row_bounds)
    needs = get("Needs")(attention=True, hidden=True)
    for seed in range(4):
        view = inputs(fast, (9, 20, 14, 3, 11, 6), 16, seed=seed)
        got, expected = fast(view, needs), slow(view, needs)
        assert torch.equal(got.attention_BNN, expected.attention_BNN)
        assert torch.equal(got.logits_RV, expected.logits_RV)
        assert torch.equal(got.hidden_RH, expected.hidden_RH)


def test_parts_of_a_filled_up_pass_are_copied(cpu):
    check_filled_up(cpu[0])


@gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_parts_of_a_filled_up_pass_are_copied_on_a_gpu(dtype, replays, nothing_given_up):
    check_filled_up(on_gpu(dtype=dtype))
    assert replays[0] > 3


def check_answers_last(fast):
    """What a pass said stays, though the next passes replay the same recording and others of its pool."""
    needs = get("Needs")(attention=True, hidden=True)
    views = [inputs(fast, prompts, 16, seed=seed) for seed in range(4) for prompts in ((9, 20), (40, 11))]
    kept = [fast(view, needs) for view in views]
    for view, got in zip(views, kept, strict=True):
        expected = plain(fast)(view, needs)
        assert torch.equal(got.logits_RV, expected.logits_RV)
        assert torch.equal(got.attention_BNN, expected.attention_BNN)
        assert torch.equal(got.hidden_RH, expected.hidden_RH)


def test_the_answer_of_a_pass_outlives_the_next_replays(cpu):
    check_answers_last(cpu[0])


@gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_the_answer_of_a_pass_outlives_the_next_replays_on_a_gpu(dtype, replays, nothing_given_up):
    check_answers_last(on_gpu(dtype=dtype))
    assert replays[0] > 3


# Whole steps.


POLICIES = {
    "llada": lambda: make_policy("llada", block_length=4),
    "klass": lambda: make_policy("klass", threshold=0.3),
    "fixed": lambda: make_policy("fixed", alpha="stability"),
    "four diagnostics": four,
}
policies = pytest.mark.parametrize("policy", POLICIES)


def check_steps(fast, policy, cache=None):
    """The plain loop first, which records its readings; then steps as graphs, with and without a record of them."""
    slow = replace(fast, step_graphs=None)
    if cache:
        fast, slow = get("BlockCache")(fast, cache, 4), get("BlockCache")(slow, cache, 4)
    for seed in range(5):
        state = start(slow, (9, 14), 8, steps=4, seed=seed)
        options = {"noise": noise(slow, 2, seed), "record": seed % 2 == 0}
        expected = decode(slow, POLICIES[policy](), state, **options)
        got = decode(fast, POLICIES[policy](), state, **options)
        assert torch.equal(got.state.tokens_BL, expected.state.tokens_BL)
        assert len(got.steps) == len(expected.steps)


@policies
def test_nothing_is_recorded_inside_a_recording(policy, cpu, nothing_given_up):
    """A step that is recorded runs a network without graphs of its own; the next step replays the same recording."""
    network, events = cpu
    check_steps(replace(network, step_graphs=get("StepGraphs")(torch.device("cpu"))), policy)
    assert sum(name == "capture" for name, _ in events) > 1


@caches
def test_nothing_is_recorded_inside_a_recording_of_a_cached_step(cache, cpu, nothing_given_up):
    network, _ = cpu
    check_steps(replace(network, step_graphs=get("StepGraphs")(torch.device("cpu"))), "llada", cache)


@gpu
@policies
def test_nothing_is_recorded_inside_a_recording_on_a_gpu(policy, replays, nothing_given_up):
    """Readings of diagnostics included: outside of steps they have recordings of their own."""
    get("READING_GRAPHS").clear()
    check_steps(on_gpu(dtype=torch.float32), policy)
    assert replays[0] > 8


@gpu
@caches
def test_nothing_is_recorded_inside_a_recording_of_a_cached_step_on_a_gpu(cache, replays, nothing_given_up):
    check_steps(on_gpu(dtype=torch.float32), "llada", cache)
    assert replays[0] > 8


def packed_view(network):
    """A view that names its packed slots, as a recorded step has it."""
    view = inputs(network, (9, 14), 8)
    packed = get("PackedSlots")(view.wanted_BN, 12)
    return replace(view, wanted_BN=packed.wanted_BN, packed=packed)


def test_slots_are_not_counted_on_the_host_inside_a_step():
    network = random_network("tiny", torch.float32, "cpu")
    view, needs = packed_view(network), get("Needs")(attention=True)
    network(view, needs)
    with torch.inference_mode(), HostFree(), Tape():
        network(view, needs)


@gpu
def test_slots_are_not_counted_on_the_host_inside_a_step_on_a_gpu():
    """Whatever asks the host while a stream is captured is an error."""
    network = replace(on_gpu(), forward=None)
    view, needs = packed_view(network), get("Needs")(attention=True)
    for _ in range(2):
        expected_RV = network(view, needs).logits_RV.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = network(view, needs)
    graph.replay()
    assert torch.equal(got.logits_RV, expected_RV)


# Readings.


def states(network, seed):
    """The trajectory and action of every step of a decode."""
    policy = watched_policy()
    state = start(network, (9, 14, 5), 8, steps=4, seed=seed)
    decode(network, policy, state, noise=noise(network, 3, seed))
    return policy.seen


def test_readings_run_on_streams_that_are_forked_and_joined(cpu, monkeypatch):
    """Each side stream waits for what came before, and what comes after waits for each."""
    diagnostics = list(default_diagnostics().values())
    traj, action = states(plain(cpu[0]), 0)[2]
    before = len(cpu[1])
    get("build_reading_graph")(diagnostics, traj, action)
    main, waits = shared_pool.NotedStream.main, shared_pool.NotedStream.waits
    sides = [stream for name, stream in cpu[1][before:] if name == "stream"]
    assert len(sides) == len(diagnostics)
    for side in sides:
        assert waits.index((side, main)) < waits.index((main, side))


@gpu
def test_readings_outlive_the_next_replays_and_read_what_they_are_given(replays, nothing_given_up):
    """While the device is behind: a side stream that does not wait would read the values of an earlier replay."""
    network = on_gpu(dtype=torch.float32)
    diagnostics = list(default_diagnostics().values())
    get("READING_GRAPHS").clear()
    seen = [step for seed in range(4) for step in states(replace(network, step_graphs=None), seed)]
    torch.cuda.synchronize()
    replays[0] = 0
    kept = []
    for traj, action in seen:
        torch.cuda._sleep(CYCLES // 10)
        kept.append(get("read_all")(diagnostics, traj, action))
    assert replays[0] > 3
    for (traj, action), readings in zip(seen, kept, strict=True):
        for diagnostic, got in zip(diagnostics, readings, strict=True):
            expected = diagnostic.read(traj, action)
            assert torch.equal(got.abstains_B, expected.abstains_B)
            assert torch.equal(got.signal_B.nan_to_num(-7.0), expected.signal_B.nan_to_num(-7.0)), diagnostic.name
            assert torch.equal(got.action.region_BL, expected.action.region_BL)
