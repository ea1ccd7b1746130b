"""Recorded readings: told its sizes a diagnostic reads the same, and on a GPU a replay is the plain reading."""

import pytest
import torch

from tests.helpers import fake_cuda
from tests.helpers.cases import each_case
from tests.helpers.gpu import gpu
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.adapt.diagnostics.graphs import READING_GRAPHS, build_reading_graph, read_all
from unmask.core import Noise, State, tensors
from unmask.engine import decode
from unmask.models.checkpoints import load_checkpoint


def same(one, other):
    """Bit for bit, NaN included."""
    mine, theirs = tensors(one), tensors(other)
    assert list(mine) == list(theirs)
    for path, value in mine.items():
        assert torch.equal(value.nan_to_num(123.0), theirs[path].nan_to_num(123.0)), path


@each_case("axes", [*([axis] for axis in DIAGNOSTICS), list(DIAGNOSTICS)])
def test_a_recording_of_one_state_reads_others_of_its_shape(kit, monkeypatch, axes):
    """Without a GPU; the recording is replayed, and what it gave earlier stays as it was."""
    events = fake_cuda.install(monkeypatch)
    first, *others = (kit.states_of(*kit.exact_problem(seed=seed, n=9, steps=5))[3] for seed in range(3))
    diagnostics = [DIAGNOSTICS[axis] for axis in axes]
    recorded = build_reading_graph(diagnostics, *first)
    assert [name for name, _ in events] == ["capture", *["stream"] * len(axes)]
    kept = [recorded(*state) for state in others]
    assert recorded.graph.graph.replays == 2
    for state, readings in zip(others, kept, strict=True):
        same(tuple(readings), tuple(diagnostic.read(*state) for diagnostic in diagnostics))


@gpu
@pytest.mark.parametrize("axes", [*([axis] for axis in DIAGNOSTICS), list(DIAGNOSTICS)])
def test_a_replay_is_the_plain_reading(kit, scaled, tmp_path, axes):
    network = load_checkpoint(scaled.llada(tmp_path), device=torch.device("cuda"), dtype=torch.float32).network
    diagnostics, mask_id = [DIAGNOSTICS[axis] for axis in axes], network.vocabulary.mask_id
    READING_GRAPHS.clear()
    # Other prompts of the same shape: from the second on their readings are replayed.
    kept = []
    for seed in range(3):
        prompts = torch.randint(0, 200, (3, 5), generator=torch.Generator().manual_seed(seed)).tolist()
        start = State.from_prompts(prompts, new_tokens=12, steps=6, mask_id=mask_id, device="cuda")
        policy = kit.Watched()
        decode(network, policy, start, noise=Noise.of([0, 1, 2], "cuda"))
        for traj, action in policy.seen:
            kept.append((read_all(diagnostics, traj, action), [d.read(traj, action) for d in diagnostics]))
    assert READING_GRAPHS.kept
    # Compared at the end: a later replay must not have changed an earlier reading.
    for replayed, plain in kept:
        same(tuple(replayed), tuple(plain))
