"""What a run wrote down: folders have one run at a time, and no changed byte of a checkpoint is gone on from."""

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
from unmask.errors import CheckpointError, ConfigError, SchemaError
from unmask.models.checkpoints import load_checkpoint
from unmask.train import Config, journal, train
from unmask.train.loop import TrainingProgress

CPU = torch.device("cpu")
FLIPS = 162


def run(config: Config, out: Path, cache: Path, **options):
    return train(config, out, device="cpu", cache=cache, workers=1, **options)


@pytest.fixture(scope="module")
def stopped(config, cache, pool, tmp_path_factory) -> Path:
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


# Bytes.


def test_no_flipped_bit_of_a_checkpoint_is_gone_on_from(out):
    path = journal.checkpoints(out)[-1]
    whole, draw = path.read_bytes(), random.Random(5)
    # Both ends are in it: where the archive and its hash begin and end.
    places = [0, 1, len(whole) - 1, len(whole) - 64, len(whole) - 65]
    places += [draw.randrange(len(whole)) for _ in range(FLIPS - len(places))]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(SchemaError, match=r"step-00000004\.pt cannot be read \(.*hash.*goes on from step-00000002"):
            journal.newest(out, CPU)
    path.write_bytes(whole)
    assert journal.newest(out, CPU)[1]["step"] == 4


@pytest.mark.parametrize("length", [0, 1, 63, 64, 5000, -1, -65])
def test_a_checkpoint_that_was_cut_off(length, out):
    path = journal.checkpoints(out)[-1]
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(SchemaError, match=r"cut off, or of another version.*; delete it, and the same command goes on"):
        journal.newest(out, CPU)


def test_what_to_do_is_what_helps(config, cache, out, tmp_path):
    first, last = journal.checkpoints(out)
    last.write_bytes(b"x" * 1000)
    with pytest.raises(SchemaError, match=r"delete it, and the same command goes on from step-00000002\.pt"):
        run(config, out, cache)
    last.unlink()
    first.write_bytes(b"x" * 1000)
    with pytest.raises(SchemaError, match=r"delete it, and the same command begins again"):
        run(config, out, cache)
    first.unlink()
    lines: list[str] = []
    run(config, out, cache, say=lines.append)
    assert not any("going on" in line for line in lines)


def test_a_checkpoint_is_still_one_of_torch(out):
    assert torch.load(journal.checkpoints(out)[-1], weights_only=True)["step"] == 4


def test_a_checkpoint_under_another_name(config, cache, out):
    path = journal.checkpoints(out)[-1]
    path.rename(path.with_name("step-00000005.pt"))
    with pytest.raises(SchemaError, match=r"step-00000005\.pt cannot be read \(its step is 4, its name says 5\)"):
        run(config, out, cache)


# Who may write.

HOLDER = """
import json, sys
from unmask.train import Config, train

def on_step(progress):
    print("training", flush=True)
    sys.stdin.read()

train(Config.of(json.loads(sys.argv[1])), sys.argv[2], device="cpu", cache=sys.argv[3], workers=1, on_step=on_step)
"""


def test_a_second_run_is_refused_and_a_dead_one_is_not_in_the_way(config, cache, pool, tables, tmp_path):
    command = [sys.executable, "-c", HOLDER, json.dumps(tables()), str(tmp_path / "out"), str(cache)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as holder:
        assert holder.stdout.readline() == "training\n"
        message = rf"out is in use by another run \(process {holder.pid} on .*\); allowed: one run at a time"
        with pytest.raises(ConfigError, match=message):
            run(config, tmp_path / "out", cache)
        holder.kill()
    assert run(config, tmp_path / "out", cache).manifest["steps"] == 6


def test_a_run_inside_a_run_is_refused(config, cache, pool, tmp_path):
    def on_step(progress: TrainingProgress) -> None:
        with pytest.raises(ConfigError, match=r"in use by another run \(this process\)"):
            run(config, tmp_path, cache)

    run(config, tmp_path, cache, on_step=on_step)


def test_what_kills_left_is_thrown_away(config, cache, out):
    for name in (".model.1-ab.partial", ".model.1-ab.old", ".snapshot.1-ab.partial"):
        (out / name).mkdir()
        (out / name / "config.json").write_text("{")
    for name in (".curve.csv.1-ab.partial", "checkpoints/.step-00000006.pt.1-ab.partial"):
        (out / name).write_text("half")
    run(config, out, cache)
    assert not [path for path in out.rglob(".*") if path.name != ".lock"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_modes_follow_the_mask(mask, config, cache, pool, tmp_path):
    before = os.umask(mask)
    try:
        run(config, tmp_path / "out", tmp_path / "rows")
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        usual = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == usual & ~mask, path


# Bookkeeping.


def test_checkpoints_without_their_identity_are_refused(config, cache, out):
    (out / "run.json").unlink()
    with pytest.raises(SchemaError, match=r"has checkpoints \(step-00000004\.pt\) but no run\.json.*delete the folder"):
        run(config, out, cache)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"config": 3}', '{"config": {}, "config": {}}', "\0"])
def test_a_damaged_identity_is_refused(text, config, cache, out):
    (out / "run.json").write_text(text)
    with pytest.raises((SchemaError, ConfigError), match=r"; allowed: .*another --out"):
        run(config, out, cache)


@pytest.mark.parametrize("damage", [lambda text: text[:-20], lambda text: text.replace("2", "7"), lambda text: ""])
def test_a_curve_that_was_changed_is_written_anew(damage, config, cache, out):
    """It is what people read; a run goes on from the lines in its checkpoint."""
    (out / "curve.csv").write_text(damage((out / "curve.csv").read_text()))
    run(config, out, cache)
    with (out / "curve.csv").open(encoding="utf-8") as file:
        assert [line["step"] for line in csv.DictReader(file)] == ["2", "3", "4", "6"]


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b"])
def test_folders_that_no_file_system_holds(name, config, cache, tmp_path):
    with pytest.raises(ConfigError, match="cannot be a folder"):
        run(config, tmp_path / name, cache)


# The exported model.


def test_an_exported_model_is_checked_when_it_is_loaded(config, cache, out):
    folder = run(config, out, cache).folder
    assert load_checkpoint(folder, device=CPU, dtype=torch.float32).length == 320
    draw = random.Random(7)
    for path in sorted(path for path in folder.iterdir() if path.name != "manifest.json"):
        whole = path.read_bytes()
        for _ in range(6):
            flipped = bytearray(whole)
            flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            path.write_bytes(flipped)
            with pytest.raises(CheckpointError):
                load_checkpoint(folder, device=CPU, dtype=torch.float32)
        path.write_bytes(whole)
    assert load_checkpoint(folder, device=CPU, dtype=torch.float32).length == 320
