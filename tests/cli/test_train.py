"""`unmask train`: what it prints, what it refuses, and what it says when it is stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from unmask.base.errors import ConfigError
from unmask.cli.train import train
from unmask.train.trainer import Trainer

app = typer.Typer()
app.command()(train)


@app.command()
def other() -> None:
    """A second command, so that the first has a name."""


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


def call(*arguments: object):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_a_run_in_plain_lines(file, cache, tmp_path):
    result = call("--config", file, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache)
    assert result.exit_code == 0, result.output
    assert "step 2/6  loss " in result.output
    assert "tokens/s" in result.output
    assert result.output.count("validation") == 3
    assert f"model in {tmp_path / 'out' / 'model'}: validation loss" in result.output
    again = call("--config", file, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache)
    assert "is finished" in again.output


def test_scores_of_the_suite_during_a_run(tables, cache, tmp_path):
    """The snapshot is loaded and decoded like any model; a fresh one can nothing, and says so in numbers."""
    path = tmp_path / "scored.toml"
    path.write_text(toml(tables(**{"run.score_every": 3, "run.score_prompts": 2})), encoding="utf-8")
    result = call("--config", path, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache, "--steps", 3)
    assert result.exit_code == 0, result.output
    assert "step 3  scores  carry-rtl 0.000" in result.output
    assert (tmp_path / "out" / "scores.csv").read_text() == "step,task,score\n3,carry-rtl,0.0\n"


def test_another_number_of_steps(file, cache, tmp_path):
    result = call("--config", file, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache, "--steps", 3)
    assert "step 3/3" in result.output


def test_refusals_are_ours(file, cache, tmp_path):
    result = call("--config", tmp_path / "none.toml", "--out", tmp_path / "out")
    assert isinstance(result.exception, ConfigError)
    result = call("--config", file, "--out", tmp_path / "out", "--device", "quantum")
    assert isinstance(result.exception, ConfigError)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("step", "said"), [(1, "no checkpoint yet"), (5, "goes on from")])
def test_ctrl_c_says_how_to_go_on(file, cache, tmp_path, monkeypatch, step, said):
    class Impatient(Trainer):
        def step(self, number: int):
            if number == step:
                raise KeyboardInterrupt
            return super().step(number)

    monkeypatch.setattr("unmask.train.trainer.Trainer", Impatient)
    result = call("--config", file, "--out", tmp_path / "out", "--device", "cpu", "--cache", cache)
    assert result.exit_code != 0
    assert said in result.output
