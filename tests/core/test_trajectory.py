"""Trajectories: recording, one row's own history, resuming, and files that are whole or refused."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.helpers.cases import each_case
from unmask.axes import Commitment, cardinality, score
from unmask.base.errors import ConfigError, SchemaError, StorageError
from unmask.core import Action, LookAhead, Needs, Noise, Policy, SamplingParams, State, Trajectory
from unmask.core.trajectory_file import pack_archive, unpack_archive
from unmask.engine import decode
from unmask.models import ExactDenoiser, JointDistribution

MASK = 3
DENOISER = ExactDenoiser(JointDistribution.random(7, 3, dependence=1.5, seed=0))


@dataclass(frozen=True)
class Busy(Policy):
    """Fills every optional field: notes, re-masks, overriding tokens, divergence and attention."""

    name: ClassVar[str] = "busy"
    past_steps = 1

    @property
    def needs(self) -> Needs:
        return score.needs("uniform")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        count_B = traj.notes.get("count", torch.zeros_like(state.step_B)) + 1
        remask_BL = state.revisable_BL & ((state.step_B == 1) & (state.horizon_B > 2))[:, None]
        override_BL = torch.where(state.masked_BL & (state.rank_BL == 3), 1, -1)
        kappa_B = cardinality.reveal_fraction(cardinality.k_min(state), state.masked_BL.sum(-1))
        commit_BL = Commitment.parse("confidence:0.8")(state, traj.current_prediction)
        return Action(
            score.alpha_rows("uniform", state),
            state.masked_BL,
            kappa_B,
            commit_BL,
            remask_BL,
            override_BL,
            {"count": count_B},
        )


@pytest.fixture(scope="module")
def run() -> Trajectory:
    """Rows of different prompt length and horizon, so that they finish at different steps."""
    state = State.from_prompts([[0, 1], [2], [1]], new_tokens=[4, 6, 5], steps=[2, 6, 3], mask_id=MASK)
    return decode(DENOISER, Busy(), state, noise=Noise.of([1, 2, 3]), sampling=SamplingParams(temperature=0.7))


def assert_same(a, b, path="trajectory"):
    """Field by field, bit by bit; NaN equals NaN."""
    assert type(a) is type(b), path
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype, path
        assert a.shape == b.shape, path
        assert torch.equal(a.isnan(), b.isnan()), path
        assert torch.equal(a.nan_to_num(), b.nan_to_num()), path
    elif isinstance(a, Mapping):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, tuple):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}[{i}]")
    elif is_dataclass(a):
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}")
    else:
        assert a == b, path


def test_round_trip(run, tmp_path):
    run.save(tmp_path / "run.npz")
    back = Trajectory.load(tmp_path / "run.npz")
    assert_same(back, run)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_failing_write_leaves_the_old_file_and_no_litter(run, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    run.save(path)
    before = path.read_bytes()

    def fail(target, content):
        with target.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(StorageError, match="cannot be written to"):
        run.row(0).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(SchemaError, match=rf"no trajectory at '{path}'; allowed: .*; check it"):
            Trajectory.load(path)


def rewritten(path, change=lambda meta: meta, arrays=lambda arrays: arrays):
    """The file with its JSON part or its arrays changed, and a hash that is right: as an attacker would."""
    meta, stored = unpack_archive(path.read_bytes())
    path.write_bytes(pack_archive(change(meta), arrays(stored)))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m | {"tree": m["tree"]["fields"]["state"]},
        lambda m: m | {"tree": {"type": "Exploit", "fields": {}}},
        lambda m: m | {"tree": {"type": "Trajectory", "fields": {}}},
        lambda m: m | {"tree": {"array": "missing"}},
        lambda m: m | {"tree": {"value": 3}},
        lambda m: {"tree": m["tree"]},
        lambda m: ["not", "a", "dict"],
    ],
)
def test_another_tree_is_refused(change, run, tmp_path):
    run.save(tmp_path / "run.npz")
    with pytest.raises(SchemaError, match="write it with"):
        Trajectory.load(rewritten(tmp_path / "run.npz", change))


def put(name, array):
    """The arrays with another one in a place."""
    return lambda arrays: {**arrays, name: array}


def less(name):
    return lambda arrays: {key: value for key, value in arrays.items() if key != name}


HOSTILE = {
    "missing array": less(".state.tokens_BL"),
    "floats for tokens": put(".state.tokens_BL", np.zeros((3, 7))),
    "whole numbers for flags": put(".state.fixed_BL", np.zeros((3, 7), int)),
    "a token below zero": put(".state.tokens_BL", np.full((3, 7), -5)),
    "another canvas": put(".state.tokens_BL", np.zeros((3, 8), int)),
    "other rows": put(".state.tokens_BL", np.zeros((2, 7), int)),
    "no rows": put(".rows_B", np.zeros(0, int)),
    "three axes": put(".state.tokens_BL", np.zeros((3, 7, 1), int)),
    "longer than the canvas": put(".state.length_B", np.full(3, 99)),
    "no length": put(".state.length_B", np.zeros(3, int)),
    "steps below zero": put(".state.step_B", np.full(3, -1)),
    "no horizon": put(".state.horizon_B", np.zeros(3, int)),
    "forwards below zero": put(".forwards_B", np.full(3, -1)),
    "keys of other rows": put(".noise.key_B", np.zeros(5, int)),
    "a step of other rows": put(".steps.0.revealed_BL", np.zeros((1, 7), bool)),
    "too few rules": put(".steps.0.action.alpha_BJ", np.zeros((3, 2))),
    "notes of other rows": put(".steps.0.action.notes.count", np.zeros(9, int)),
    "a note without rows": put(".steps.0.action.notes.count", np.array(1)),
}


@each_case("name", HOSTILE)
def test_arrays_that_make_no_trajectory_are_refused(name, run, tmp_path):
    run.save(tmp_path / "run.npz")
    with pytest.raises(SchemaError, match="is not a trajectory") as refused:
        Trajectory.load(rewritten(tmp_path / "run.npz", arrays=HOSTILE[name]))
    assert "unsafe" not in str(refused.value)


def test_fields_of_another_type_are_refused(run, tmp_path):
    def edited(field, value):
        def change(meta):
            meta["tree"]["fields"]["state"]["fields"][field] = value
            return meta

        return change

    for field, value in (("mask_id", {"value": "x"}), ("mask_id", {"value": -1}), ("tokens_BL", {"value": 3})):
        run.save(tmp_path / "run.npz")
        with pytest.raises(SchemaError, match="is not a trajectory"):
            Trajectory.load(rewritten(tmp_path / "run.npz", edited(field, value)))


def test_a_hundred_mutated_files(run, tmp_path):
    """Whatever is done to the bytes: refused, and nothing but refused."""
    run.row(0).save(tmp_path / "run.npz")
    whole = (tmp_path / "run.npz").read_bytes()
    random = np.random.default_rng(15)
    for number in range(100):
        broken = bytearray(whole)
        at, kind = int(random.integers(len(whole))), number % 4
        if kind == 0:
            broken[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del broken[at : at + int(random.integers(1, 200))]
        elif kind == 2:
            broken[at:at] = random.bytes(int(random.integers(1, 200)))
        else:
            broken[at : at + 50] = random.bytes(len(broken[at : at + 50]))
        (tmp_path / "broken.npz").write_bytes(broken)
        with pytest.raises(SchemaError, match="is not a trajectory"):
            Trajectory.load(tmp_path / "broken.npz")


def test_resuming_a_run_that_was_not_recorded():
    state = State.from_prompts([[0]], new_tokens=2, steps=1, mask_id=MASK)
    done = decode(DENOISER, Busy(), state, noise=Noise.of([1]), record=False)
    with pytest.raises(ConfigError, match="row 0 has no steps; allowed: a recorded run; decode it again"):
        done.resume(0, 0)


def test_a_resumed_run_goes_on_with_its_proposal(run, tmp_path):
    """Also from a file; another may be given."""
    assert run.sampling == SamplingParams(temperature=0.7)
    run.save(tmp_path / "run.npz")
    for source in (run, Trajectory.load(tmp_path / "run.npz")):
        assert_same(decode(DENOISER, Busy(), source.resume(1, 1)), run.row(1))
    other = SamplingParams(temperature=5.0)
    ends = [decode(DENOISER, Busy(), run.resume(row, 0), sampling=other) for row in range(3)]
    assert all(end.sampling == other for end in ends)
    assert any(not torch.equal(end.state.tokens_BL[0], run.state.tokens_BL[row]) for row, end in enumerate(ends))


def test_resume_from_every_step_replays_the_run(run):
    for row in range(3):
        own = run.row(row)
        for step in range(len(own.steps)):
            start = run.resume(row, step)
            assert_same(start.state, own.steps[step].state)
            assert len(start.steps) == step
            assert int(start.forwards_B) == step
            again = decode(DENOISER, Busy(), start, noise=start.noise, sampling=SamplingParams(temperature=0.7))
            assert_same(again, own)


def test_names_in_files_do_not_follow_names_in_code(tmp_path):
    """Hashes of stored runs, and studies that adopt them, hold on to the names that a file had from the start."""
    start = State.from_canvases([[0, MASK, MASK]], steps=2, mask_id=MASK)
    traj = replace(Trajectory.start(start, Noise.of([1])), sampling=SamplingParams(), prepaid_B=torch.tensor([True]))
    meta, arrays = unpack_archive(traj.to_bytes())
    fields_of_run = meta["tree"]["fields"]
    assert fields_of_run["proposal"]["type"] == "Proposal"
    assert not {"sampling", "prepaid_B"} & set(fields_of_run)
    assert any(path.endswith("foreseen_B") for path in arrays)
    again = Trajectory.from_bytes(traj.to_bytes())
    assert again.sampling == SamplingParams()
    assert again.prepaid_B.tolist() == [True]
