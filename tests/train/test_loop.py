"""Whole runs: the loss falls, a killed run ends where an unbroken one does, and folders keep their runs."""

import csv
import json
import shutil
import signal
from pathlib import Path

import pytest
import torch

from tests.helpers.fresh_python import fresh_python
from tests.helpers.paths import CONFIGS
from unmask.base.errors import ConfigError, SchemaError
from unmask.train import Config, journal, train
from unmask.train.loop import TrainingFailed, TrainingProgress

KILLED = """
import json, os, signal, sys
import torch
from unmask.train import Config, train

torch.set_num_threads(1)

def on_step(progress):
    if progress.step == int(sys.argv[4]) and progress.scores is None:
        os.kill(os.getpid(), signal.SIGKILL)

train(Config.of(json.loads(sys.argv[1])), sys.argv[2], device="cpu", cache=sys.argv[3], workers=1, on_step=on_step)
"""


def manifest(out: Path) -> bytes:
    return (out / "model" / "manifest.json").read_bytes()


def run(config: Config, out: Path, cache: Path, **options):
    return train(config, out, device="cpu", cache=cache, workers=1, **options)


@pytest.fixture(scope="module")
def unbroken(config, cache, pool, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    run(config, out, cache)
    return out


@pytest.mark.parametrize("step", [5])
def test_a_killed_run_ends_in_the_same_bits(config, cache, tables, unbroken, tmp_path, step):
    arguments = [json.dumps(tables()), str(tmp_path), str(cache), str(step)]
    killed = fresh_python(KILLED, *arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "model").exists()
    assert [p.name for p in journal.checkpoints(tmp_path)] == ["step-00000002.pt", "step-00000004.pt"]
    # As if the kill had come while a checkpoint and the export were being written.
    (tmp_path / "checkpoints" / ".step-00000006.pt.1.partial").write_bytes(b"half")
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "config.json").write_text("{")
    lines: list[str] = []
    run(config, tmp_path, cache, say=lines.append)
    assert "going on from step 4" in lines
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == (
        unbroken / "model" / "model.safetensors"
    ).read_bytes()
    assert manifest(tmp_path) == manifest(unbroken)
    assert not list(tmp_path.rglob("*.partial"))
    # The curve has no gap and no line twice, and but for the time it is the same.
    assert curve(tmp_path) == curve(unbroken)


def curve(out: Path) -> list[dict[str, str]]:
    with (out / "curve.csv").open(encoding="utf-8") as file:
        return [{k: v for k, v in line.items() if k != "seconds"} for line in csv.DictReader(file)]


def test_what_a_run_leaves_behind(config, unbroken):
    assert [line["step"] for line in curve(unbroken)] == ["2", "3", "4", "6"]
    assert [line["step"] for line in curve(unbroken) if line["validation"]] == ["3", "6"]
    assert [p.name for p in journal.checkpoints(unbroken)] == ["step-00000002.pt", "step-00000004.pt"]
    told = json.loads(manifest(unbroken))
    assert told["seed"] == config.seed
    assert told["steps"] == 6
    assert told["config_sha256"] == config.digest
    assert told["loss"] == pytest.approx(float(curve(unbroken)[-1]["loss"]))
    assert list(told["validation_by_source"]) == list(config.sources)


def test_a_finished_run_is_left_alone(config, cache, unbroken):
    before = manifest(unbroken)
    steps: list[TrainingProgress] = []
    result = run(config, unbroken, cache, on_step=steps.append)
    assert not steps
    assert manifest(unbroken) == before
    assert result.folder == unbroken / "model"
    assert result.manifest == json.loads(before)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_a_finished_run_with_other_files_is_refused(config, cache, unbroken, tmp_path, damage):
    out = tmp_path / "out"
    shutil.copytree(unbroken, out)
    damage(out / "model" / "model.safetensors")
    with pytest.raises(SchemaError, match=r"model is not as its run left it: model\.safetensors missing or changed"):
        run(config, out, cache)
    # As the message says.
    shutil.rmtree(out / "model")
    run(config, out, cache)
    assert manifest(out) == manifest(unbroken)


def test_a_manifest_that_cannot_be_read_is_refused(config, cache, unbroken, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(unbroken, out)
    (out / "model" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(SchemaError, match=r"manifest\.json cannot be read .* delete the folder model"):
        run(config, out, cache)


def test_folders_that_cannot_be_made_are_refused_before_the_rows_are(config, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.train.data.load", lambda *_: pytest.fail("rows were made"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is a file; allowed: a folder"):
        run(config, tmp_path / "file" / "out", tmp_path)
    with pytest.raises(ConfigError, match="file is a file; allowed: a folder"):
        run(config, tmp_path / "out", tmp_path / "file")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="not writable"):
        run(config, tmp_path / "out", tmp_path)


def test_another_configuration_in_the_same_folder_is_refused(cache, tables, unbroken):
    other = Config.of(tables(**{"optimizer.rate": 1e-3, "sources.english.weight": 9.0}))
    with pytest.raises(ConfigError) as refusal:
        run(other, unbroken, cache)
    assert "optimizer.rate is 0.001, was 0.005" in str(refusal.value)
    assert "sources.english.weight is 9.0, was 2.0" in str(refusal.value)


def test_other_data_in_the_same_folder_is_refused(config, cache, unbroken, monkeypatch):
    monkeypatch.setattr("unmask.train.data.LAYOUT", "next")
    with pytest.raises(ConfigError, match="the same data"):
        run(config, unbroken, cache)


def test_a_refused_start_leaves_the_folder_free(config, tables, cache, tmp_path):
    out, data = tmp_path / "out", tmp_path / "data"
    data.mkdir()
    asks = Config.of(tables(**{"sources.gsm8k": {"weight": 1.0, "examples": 5}}))
    from unmask.train.sources import Folders

    with pytest.raises(ConfigError, match=r"train\.jsonl"):
        run(asks, out, cache, folders=Folders(data=str(data)))
    run(config, out, cache)


def test_a_damaged_checkpoint_is_named(config, cache, tmp_path):
    stop_at(config, cache, tmp_path, 5)
    journal.checkpoints(tmp_path)[-1].write_bytes(b"nothing")
    with pytest.raises(SchemaError, match=r"step-00000004\.pt cannot be read"):
        run(config, tmp_path, cache)


def stop_at(config: Config, cache: Path, out: Path, step: int) -> None:
    def on_step(progress: TrainingProgress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, out, cache, on_step=on_step)


def test_dream_resumes_too(tables, cache, tmp_path):
    config = Config.of(tables(**{"model.family": "dream", "run.dtype": "bf16"}))
    run(config, tmp_path / "whole", cache)
    stop_at(config, cache, tmp_path / "broken", 3)
    run(config, tmp_path / "broken", cache)
    assert manifest(tmp_path / "whole") == manifest(tmp_path / "broken")


def test_every_step_is_told(config, cache, tmp_path):
    steps: list[TrainingProgress] = []
    run(config, tmp_path, cache, on_step=steps.append)
    assert [p.step for p in steps] == [1, 2, 3, 4, 5, 6]
    assert [p.step for p in steps if p.point] == [2, 3, 4, 6]
    assert steps[-1].remaining == 0.0
    assert steps[3].tokens_per_second > 0


def test_scores_are_asked_for_and_kept(tables, cache, tmp_path):
    config = Config.of(tables(**{"run.score_every": 4, "run.score_prompts": 7}))
    asked: list[tuple[str, int, int]] = []

    def score(folder: Path, prompts: int) -> dict[str, float]:
        told = json.loads((folder / "manifest.json").read_text())
        asked.append((folder.name, prompts, told["steps"]))
        return {"carry-rtl": told["steps"] / 10}

    steps: list[TrainingProgress] = []
    result = run(config, tmp_path, cache, score=score, on_step=steps.append)
    assert asked == [("snapshot", 7, 4), ("snapshot", 7, 6)]
    assert (tmp_path / "scores.csv").read_text() == "step,task,score\n4,carry-rtl,0.4\n6,carry-rtl,0.6\n"
    assert result.manifest["scores"] == {"carry-rtl": 0.6}
    assert [p.scores for p in steps if p.scores] == [{"carry-rtl": 0.4}, {"carry-rtl": 0.6}]


def test_scores_without_a_scorer_are_not_silently_missing(tables, cache, tmp_path):
    lines: list[str] = []
    run(Config.of(tables(**{"run.score_every": 4})), tmp_path, cache, say=lines.append)
    assert any("no suite scores" in line for line in lines)


def test_a_loss_that_is_no_number_stops_the_run(tables, cache, tmp_path):
    config = Config.of(tables(**{"optimizer.rate": 1e30, "optimizer.warmup": 0, "optimizer.clip": 1e30}))
    with pytest.raises(TrainingFailed, match=r"lower optimizer\.rate"):
        run(config, tmp_path, cache)


def test_the_smoke_configurations_loss_falls(tmp_path):
    """The committed toy, cut to a third of its steps."""
    from dataclasses import replace

    config = Config.read(CONFIGS / "smoke.toml")
    config = replace(config, optimizer=replace(config.optimizer, steps=40))
    result = train(config, tmp_path, device="cpu", workers=1)
    losses = [float(line["loss"]) for line in curve(tmp_path)]
    assert losses[-1] < 0.6 * losses[0]
    assert result.manifest["validation"] < 0.5 * torch.log(torch.tensor(config.tokenizer.size)).item()
