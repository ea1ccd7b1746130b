"""What is counted, against the records of the same run."""

from dataclasses import replace

import pytest
import torch

from unmask.api.load import load
from unmask.core import AnswerCost, State, Trajectory, answer_tokens, cost_columns, total_cost

METHODS = {"wino": {"block_length": 4, "tau1": 0.3}, "info-gain": {}, "remdm": {}, "p2": {"eta": 4.0}, "llada": {}}


@pytest.fixture(scope="module")
def model():
    return load("exact")


def run(model, name, record=True):
    return model.generate(["ab", "cda", "b"], policy=name, steps=3, seed=4, record=record, **METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_counts_are_those_of_the_records(model, name):
    traj = run(model, name).trajectory
    for row in range(3):
        steps = traj.row(row).steps
        own = AnswerCost(*(int(column_B[row]) for column_B in cost_columns(traj)))
        assert own.forwards == sum(int(step.forwards_B) for step in steps)
        assert own.extra_forwards == own.forwards - len(steps)
        assert own.remasks == sum(int(step.remasked_BL.sum()) for step in steps)
        assert own.processed_tokens == sum(int(step.processed_B) for step in steps)
        assert own.tokens == int(traj.state.answer_BL[row].sum())
        assert own.planner_forwards == 0


def test_filler_is_not_counted():
    """End of text and what comes after it, in the answer; a given end of text ends nothing."""
    canvases = [[9, 1, 2, 9, 3, 9], [1, 9, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]
    given = [[True, False, False, False, False, False], [True, True, False, False, False, False], [False] * 6]
    state = State.from_canvases([[0] * 6] * 3, steps=1, mask_id=0, given=given)
    state = replace(state, tokens_BL=torch.tensor(canvases))
    assert answer_tokens(state, [9], cut=True).tolist() == [2, 4, 6]
    assert answer_tokens(state, [9], cut=False).tolist() == [3, 4, 6]
    assert answer_tokens(state, [], cut=True).tolist() == [5, 4, 6]


def test_a_file_has_the_same_counts(model, tmp_path):
    traj = run(model, "remdm").trajectory
    traj.save(tmp_path / "run.npz")
    read = Trajectory.load(tmp_path / "run.npz")
    assert total_cost(read) == total_cost(traj)
    assert torch.equal(read.resume(1, 2).remasks_B, sum(s.remasked_BL.sum(-1) for s in traj.row(1).steps[:2]))
