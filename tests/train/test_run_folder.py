"""The folder of a run: it keeps its run, has one run at a time, and no changed byte of a checkpoint is gone on from."""

import csv
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.fresh_python import environment
from unmask.base.errors import CheckpointError, ConfigError, SchemaError
from unmask.models.checkpoints import load_checkpoint as load_model
from unmask.train import TrainConfig, TrainingProgress, train
from unmask.train.run_folder import list_checkpoints, load_checkpoint
from unmask.train.sources import Folders

CPU = torch.device("cpu")
FLIPS = 162


def run(config: TrainConfig, out: Path, cache: Path, **options) -> Path:
    return train(config, out, device="cpu", cache=cache, workers=1, **options)


@pytest.fixture(scope="module")
def stopped(config, cache, data, tmp_path_factory) -> Path:
    """A run after five of its six steps, with checkpoints of steps 2 and 4."""

    def on_step(progress: TrainingProgress) -> None:
        if progress.step == 5:
            raise KeyboardInterrupt

    out = tmp_path_factory.mktemp("stopped") / "out"
    with pytest.raises(KeyboardInterrupt):
        run(config, out, cache, on_step=on_step)
    return out


@pytest.fixture
def out(stopped, tmp_path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "out"))


# Checkpoints


def test_no_flipped_bit_of_a_checkpoint_is_gone_on_from(out):
    path = list_checkpoints(out)[-1]
    whole, draw = path.read_bytes(), random.Random(5)
    # Both ends are among the places: where the archive and its hash begin and end.
    places = [0, 1, len(whole) - 1, len(whole) - 64, len(whole) - 65]
    places += [draw.randrange(len(whole)) for _ in range(FLIPS - len(places))]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(SchemaError, match=r"step-00000004\.pt cannot be read \(.*hash.*goes on from step-00000002"):
            load_checkpoint(out, CPU)
    path.write_bytes(whole)
    assert load_checkpoint(out, CPU)[1]["step"] == 4
    # And it is still a checkpoint that torch reads.
    assert torch.load(path, weights_only=True)["step"] == 4


@pytest.mark.parametrize("length", [0, 1, 63, 64, 5000, -1, -65])
def test_a_checkpoint_that_was_cut_off_is_refused(length, out):
    path = list_checkpoints(out)[-1]
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(SchemaError, match=r"cut off, or of another version.*; delete it, and the same command goes on"):
        load_checkpoint(out, CPU)


def test_following_the_message_of_a_damaged_checkpoint_helps(config, cache, out):
    first, last = list_checkpoints(out)
    last.write_bytes(b"x" * 1000)
    with pytest.raises(SchemaError, match=r"delete it, and the same command goes on from step-00000002\.pt"):
        run(config, out, cache)
    last.unlink()
    first.write_bytes(b"x" * 1000)
    with pytest.raises(SchemaError, match=r"delete it, and the same command begins again"):
        run(config, out, cache)
    first.unlink()
    lines: list[str] = []
    run(config, out, cache, log=lines.append)
    assert not any("going on" in line for line in lines)


# One run at a time

HOLDER = """
import json, sys
from unmask.train import TrainConfig, train

def on_step(progress):
    print("training", flush=True)
    sys.stdin.read()

config = TrainConfig(**json.loads(sys.argv[1]))
train(config, sys.argv[2], device="cpu", cache=sys.argv[3], workers=1, on_step=on_step)
"""


def test_a_second_run_is_refused_and_a_dead_one_is_not_in_the_way(config, cache, data, tables, tmp_path):
    command = [sys.executable, "-c", HOLDER, json.dumps(tables()), str(tmp_path / "out"), str(cache)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as holder:
        assert holder.stdout.readline() == "training\n"
        message = rf"out is in use by another run \(process {holder.pid} on .*\); allowed: one run at a time"
        with pytest.raises(ConfigError, match=message):
            run(config, tmp_path / "out", cache)
        holder.kill()
    assert run(config, tmp_path / "out", cache).is_dir()


def test_a_run_inside_a_run_is_refused(config, cache, data, tmp_path):
    def on_step(progress: TrainingProgress) -> None:
        with pytest.raises(ConfigError, match=r"in use by another run \(this process\)"):
            run(config, tmp_path, cache)

    run(config, tmp_path, cache, on_step=on_step)


def test_files_that_killed_runs_left_are_deleted(config, cache, out):
    for name in (".model.1-ab.partial", ".model.1-ab.old", ".snapshot.1-ab.partial"):
        (out / name).mkdir()
        (out / name / "config.json").write_text("{")
    for name in (".curve.csv.1-ab.partial", "checkpoints/.step-00000006.pt.1-ab.partial"):
        (out / name).write_text("half")
    run(config, out, cache)
    assert not [path for path in out.rglob(".*") if path.name != ".lock"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_modes_follow_the_umask(mask, config, cache, data, tmp_path):
    before = os.umask(mask)
    try:
        run(config, tmp_path / "out", tmp_path / "rows")
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        usual = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == usual & ~mask, path


# Which run it is


def test_a_run_with_another_configuration_is_refused_by_key(cache, tables, out):
    other = TrainConfig(**tables(**{"optimizer.rate": 1e-3, "sources.english.weight": 9.0}))
    with pytest.raises(ConfigError) as refusal:
        run(other, out, cache)
    assert "optimizer.rate is 0.001, was 0.005" in str(refusal.value)
    assert "sources.english.weight is 9.0, was 2.0" in str(refusal.value)


def test_a_run_on_other_data_is_refused(config, cache, out, monkeypatch):
    monkeypatch.setattr("unmask.train.data.LAYOUT", "next")
    with pytest.raises(ConfigError, match="the same data"):
        run(config, out, cache)


def test_checkpoints_without_a_run_file_are_refused(config, cache, out):
    (out / "run.json").unlink()
    with pytest.raises(SchemaError, match=r"has checkpoints \(step-00000004\.pt\) but no run\.json.*delete the folder"):
        run(config, out, cache)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"config": 3}', '{"config": {}}', "\0"])
def test_a_damaged_run_file_is_refused(text, config, cache, out):
    (out / "run.json").write_text(text)
    with pytest.raises((SchemaError, ConfigError), match=r"; allowed: .*another --out"):
        run(config, out, cache)


def test_a_curve_that_was_changed_is_written_anew(config, cache, out):
    (out / "curve.csv").write_text("")
    run(config, out, cache)
    with (out / "curve.csv").open(encoding="utf-8") as file:
        assert [line["step"] for line in csv.DictReader(file)] == ["2", "3", "4", "6"]


def test_a_refused_start_leaves_the_folder_free(config, tables, cache, tmp_path):
    (tmp_path / "data").mkdir()
    needs_data = TrainConfig(**tables(**{"sources.gsm8k": {"weight": 1.0, "examples": 5}}))
    with pytest.raises(ConfigError, match=r"train\.jsonl"):
        run(needs_data, tmp_path / "out", cache, folders=Folders(data=str(tmp_path / "data")))
    run(config, tmp_path / "out", cache)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b"])
def test_names_that_no_file_system_holds_are_refused(name, config, cache, tmp_path):
    with pytest.raises(ConfigError, match="cannot be a folder"):
        run(config, tmp_path / name, cache)


def test_folders_that_cannot_be_made_are_refused_before_the_rows_are(config, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.train.trainer.load_data", lambda *_: pytest.fail("rows were made"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is a file; allowed: a folder"):
        run(config, tmp_path / "file" / "out", tmp_path)
    with pytest.raises(ConfigError, match="file is a file; allowed: a folder"):
        run(config, tmp_path / "out", tmp_path / "file")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="not writable"):
        run(config, tmp_path / "out", tmp_path)


# The exported model


def test_a_flipped_bit_of_an_exported_model_is_noticed(config, cache, out):
    folder = run(config, out, cache)
    assert load_model(folder, device=CPU, dtype=torch.float32).length == 320
    draw = random.Random(7)
    for path in sorted(path for path in folder.iterdir() if path.name != "manifest.json"):
        whole = path.read_bytes()
        for _ in range(6):
            flipped = bytearray(whole)
            flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            path.write_bytes(flipped)
            with pytest.raises(CheckpointError):
                load_model(folder, device=CPU, dtype=torch.float32)
        path.write_bytes(whole)
    assert load_model(folder, device=CPU, dtype=torch.float32).length == 320


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", Path.unlink, r"model is not as its run left it: model\.safetensors missing or changed"),
        ("model.safetensors", lambda path: path.write_bytes(b"other"), r"model\.safetensors missing or changed"),
        (
            "manifest.json",
            lambda path: path.write_text("{"),
            r"manifest\.json cannot be read .* delete the folder model",
        ),
    ],
)
def test_a_finished_run_with_changed_files_is_refused(config, cache, out, name, damage, message):
    model = run(config, out, cache)
    before = (model / "manifest.json").read_bytes()
    damage(model / name)
    with pytest.raises(SchemaError, match=message):
        run(config, out, cache)
    # As the message says.
    shutil.rmtree(model)
    run(config, out, cache)
    assert (model / "manifest.json").read_bytes() == before
