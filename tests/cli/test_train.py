"""`unmask train`: what it prints, what it refuses, and what it says when it is stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from unmask.cli.app import main
from unmask.train.trainer import Trainer


def toml(tables: Mapping[str, Any]) -> str:
    """Nested tables as TOML; JSON's numbers, strings, lists and truth values are TOML's too."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in tables.items() if not isinstance(value, Mapping)]
    parts = ["\n".join(plain)]
    for key, value in tables.items():
        if isinstance(value, Mapping):
            nested = {f"{key}.{name}": inner for name, inner in value.items() if isinstance(inner, Mapping)}
            flat = {name: inner for name, inner in value.items() if not isinstance(inner, Mapping)}
            parts += [f"[{key}]\n{toml(flat)}"] if flat else []
            parts += [f"[{name}]\n{toml(inner)}" for name, inner in nested.items()]
    return "\n\n".join(parts)


@pytest.fixture
def file(tables, tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(toml(tables()), encoding="utf-8")
    return path


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = main(["train", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_a_run_in_plain_lines(call, file, cache, tmp_path):
    code, output = call("--config", file, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache)
    assert code == 0, output
    assert "step 2/6  loss " in output
    assert "tokens/s" in output
    assert output.count("validation") == 3
    assert f"model in {tmp_path / 'out' / 'model'}: validation loss" in output
    _, again = call("--config", file, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache)
    assert "is finished" in again


def test_scores_of_the_suite_during_a_run(call, tables, cache, tmp_path):
    """The snapshot is loaded and decoded like any model; a fresh one can nothing, and says so in numbers."""
    path = tmp_path / "scored.toml"
    path.write_text(toml(tables(**{"run.score_every": 3, "run.score_prompts": 2})), encoding="utf-8")
    code, output = call("--config", path, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache, "--steps", 3)
    assert code == 0, output
    assert "step 3  scores  carry-rtl 0.000" in output
    assert (tmp_path / "out" / "scores.csv").read_text() == "step,task,score\n3,carry-rtl,0.0\n"


@pytest.mark.parametrize(("step", "said"), [(1, "no checkpoint yet"), (5, "goes on from")])
def test_ctrl_c_says_how_to_go_on(call, file, cache, tmp_path, monkeypatch, step, said):
    class Impatient(Trainer):
        def step(self, number: int):
            if number == step:
                raise KeyboardInterrupt
            return super().step(number)

    monkeypatch.setattr("unmask.train.trainer.Trainer", Impatient)
    code, output = call("--config", file, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache)
    assert code == 130
    assert said in output
