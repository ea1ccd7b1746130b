"""Runs in parts, as one: byte for byte the run of all rows where canvases are equal, row by row where they are not."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.api.load import load
from unmask.base.errors import ConfigError
from unmask.core import Trajectory, join_runs, tensors

PROMPTS = ["ab", "cd", "ba", "dc", "aa"]
GROUPS = [[4, 0], [2], [3, 1]]


@pytest.fixture(scope="module")
def model():
    return load("exact", n=8, vocab=4)


def in_parts(model, prompts, groups, **options):
    return join_runs([model.generate([prompts[at] for at in g], **options).trajectory for g in groups], groups)


@each_case("policy", ["llada", "wino", "klass", "remdm", "fast-dllm", "dsb"])
@each_case("groups", [[[0, 1], [2, 3, 4]], GROUPS])
def test_equal_canvases_give_the_bytes_of_one_run(model, policy, groups):
    options = {"policy": policy, "temperature": 0.7, "steps": 4}
    whole = model.generate(PROMPTS, **options).trajectory
    merged = in_parts(model, PROMPTS, groups, **options)
    assert replace(merged, config=whole.config).to_bytes() == whole.to_bytes()


def test_a_search_keeps_every_rows_own_history(model):
    whole = model.generate(PROMPTS, policy="lookum", steps=4).trajectory
    merged = replace(in_parts(model, PROMPTS, GROUPS, policy="lookum", steps=4), config=whole.config)
    for row in range(len(PROMPTS)):
        assert merged.row(row).to_bytes() == whole.row(row).to_bytes()


@pytest.mark.parametrize("policy", ["llada", "remdm", "wino", "klass"])
def test_longer_canvases_beside_shorter_ones(model, policy):
    """Every row has what it has by itself, as far as its own canvas goes; shadow slots stay behind the canvas."""
    prompts = ["a", "abcd", "ab", "abc", "b"]
    options = {"policy": policy, "max_new_tokens": 4, "steps": 4}
    merged = in_parts(model, prompts, GROUPS, **options)
    assert merged.state.tokens_BL.shape == (5, 8)
    assert Trajectory.from_bytes(merged.to_bytes()).to_bytes() == merged.to_bytes()
    for row, prompt in enumerate(prompts):
        alone = model.generate(prompt, **options).trajectory
        own, whole = alone.state.tokens_BL.shape[1], merged.row(row)
        assert len(whole.steps) == len(alone.steps)
        wide = tensors(whole.steps)
        for path, tensor in tensors(alone.steps).items():
            assert torch.equal(cut_to(wide[path], path[-1], tensor, own), tensor.nan_to_num(-1)), path


def cut_to(wide, name, alone, own):
    """The positions of the row's own canvas, and the slots behind the canvas of 8."""
    for axis, letter in enumerate(name.rpartition("_")[2]):
        if letter in "LN":
            places = [*range(own), *range(8, 8 + alone.shape[axis] - own)]
            wide = wide.index_select(axis, torch.tensor(places))
    return wide.nan_to_num(-1)


@pytest.mark.parametrize("rows", [[[0], [1]], [[0, 1], [1]], [[0, 1]], [[1, 2], [3]], []])
def test_rows_that_fit_no_runs(model, rows):
    parts = [model.generate(PROMPTS[:2]).trajectory, model.generate(PROMPTS[2]).trajectory]
    assert join_runs(parts, [[0, 2], [1]]).state.batch == 3
    with pytest.raises(ConfigError, match="the place of every row"):
        join_runs(parts, rows)
