"""`unmask show`: the page of a saved run."""

import json
import re
from dataclasses import replace

import pytest

from unmask.api.load import load
from unmask.core import Trajectory
from unmask.core.trajectory_file import pack
from unmask.report.run_data import run_data


@pytest.fixture(scope="module")
def model():
    return load("exact", n=8)


@pytest.fixture
def saved(model, tmp_path):
    out = model.generate(["ab", "cd"], policy="remdm")
    out.trajectory.save(tmp_path / "run.npz")
    return out


def test_a_page_beside_the_run(command, saved, tmp_path):
    done = command("show", "run.npz")
    assert done.code == 0
    assert done.out == f"{len(saved.trajectory.row(0).steps)} steps are in run.html\n"
    assert done.err == "row 0 of 2; --row shows another\n"
    assert "exact decoded by remdm" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_any_row_as_values(command, saved, model):
    told = command("show", "run.npz", "--row", "1", "--json").json
    assert told == run_data(saved.trajectory, 1, model.codec, top=3)
    assert told["prompt"] == "cd"


def test_a_place_of_ones_own(command, saved, tmp_path):
    assert command("show", "run.npz", "--out", "pages/one.html").code == 0
    assert (tmp_path / "pages" / "one.html").is_file()
    for place in (".", "run.npz"):
        refused = command("show", "run.npz", "--out", place)
        assert refused.code == 2
        assert "is a folder, or the run; allowed: a file" in refused.err
    assert Trajectory.load(tmp_path / "run.npz").state.batch == 2


def test_without_a_tokenizer_tokens_are_numbers(command, saved, tmp_path):
    replace(saved.trajectory, config=None).save(tmp_path / "bare.npz")
    bare = command("show", "bare.npz", "--json")
    assert "the run does not name its model: tokens are shown as numbers; name a tokenizer with --model" in bare.err
    assert json.loads(bare.out)["tokens"][:2] == ["<0>", "<1>"]
    away = {**saved.config, "model": {"name": "some/where", "path": 3}}
    replace(saved.trajectory, config=away).save(tmp_path / "away.npz")
    assert "the tokenizer of some/where is not on this machine" in command("show", "away.npz", "--json").err
    assert command("show", "bare.npz", "--json", "--model", "exact").json["tokens"][:2] == ["a", "b"]
    refused = command("show", "bare.npz", "--model", "exactt")
    assert refused.code == 2
    assert "unknown model with a tokenizer on this machine 'exactt'; did you mean exact?" in refused.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pack({"format": "unmask-trajectory-1", "tree": {}}, {}), "format is 'unmask-trajectory-1'; allowed: "),
        (pack({"format": "unmask-trajectory-9", "tree": {}}, {}), "format is 'unmask-trajectory-9'; allowed: "),
        (b"no run", "is not a trajectory .* write it with Trajectory.save"),
    ],
)
def test_another_version_is_refused_with_what_to_do(command, tmp_path, content, words):
    (tmp_path / "old.npz").write_bytes(content)
    refused = command("show", "old.npz")
    assert refused.code == 2
    assert re.search(words, refused.err)
    assert not (tmp_path / "old.html").exists()


def test_what_is_not_there(command):
    assert "no trajectory at 'run.npz'" in command("show", "run.npz").err
    assert "--top is -1; allowed: 0 or more" in command("show", "run.npz", "--top", "-1").err
