"""The training run: its start, its steps, and runs that end in the same bits however they are interrupted."""

import csv
import json
import math
import random
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.fresh_python import fresh_python
from unmask.base.errors import ConfigError, SchemaError
from unmask.models import CudaGraph
from unmask.train import TrainConfig, TrainingProgress, list_checkpoints, train
from unmask.train.batches import draw_batch
from unmask.train.loss import token_losses
from unmask.train.run_folder import load_checkpoint
from unmask.train.trainer import StepResult, Trainer, TrainingFailed, make_optimizers

CPU = torch.device("cpu")


def run(config: TrainConfig, out: Path, cache: Path, **options) -> Path:
    return train(config, out, device="cpu", cache=cache, workers=1, **options)


def stop_at(config: TrainConfig, cache: Path, out: Path, step: int) -> None:
    def on_step(progress: TrainingProgress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, out, cache, on_step=on_step)


def model_files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "model").iterdir()}


def curve(out: Path) -> list[dict[str, str]]:
    with (out / "curve.csv").open(encoding="utf-8") as file:
        return [{k: v for k, v in line.items() if k != "seconds"} for line in csv.DictReader(file)]


# Steps


def test_a_step_reports_the_weighted_sum_of_its_rows_and_moves_the_weights(config, data):
    trainer = Trainer(config, data, CPU)
    expected = 0.0
    for rows in trainer.rows:
        batch = draw_batch(rows.group, config.seed, 0, config.optimizer.least_ratio)
        for b, row in enumerate(batch.rows_B):
            inside = (batch.place_R // rows.group.length == b) & (batch.weight_R > 0)
            length = int(rows.length_E[row])
            tokens = rows.tokens_EN[row][None, :length].long()
            masked = torch.from_numpy(batch.place_R[inside] % rows.group.length)
            hidden = torch.from_numpy(batch.hidden_BN[b : b + 1, :length])
            losses = token_losses(trainer.model, tokens, tokens >= 0, hidden, masked, data.ids.mask, 0)
            expected += float((losses * torch.from_numpy(batch.weight_R[inside])).sum().detach())
    before = trainer.model.head.weight.clone()
    result = trainer.step(0)
    assert result.loss.item() == pytest.approx(expected, rel=1e-5)
    assert not torch.equal(before, trainer.model.head.weight)


def test_validation_is_the_mean_over_each_sources_rows_and_changes_nothing(config, data):
    trainer = Trainer(config, data, CPU)
    losses = trainer.validate()
    assert list(losses) == list(config.sources)
    # A fresh network gives every token the same probability.
    assert list(losses.values()) == pytest.approx([math.log(config.tokenizer.size)] * 3, rel=0.25)
    assert trainer.validate() == losses
    assert all(p.grad is None for p in trainer.model.parameters())


# Steps as CUDA graphs: inputs arrive as drawn, rehearsals leave no trace, and no step waits for the device


class PretendedRecording:
    """A recording without a GPU: rehearsals are real, and so is the recording, which on a GPU computes nothing."""

    def __init__(self, work: Callable[[], StepResult], device: torch.device, rehearsals: int):
        for _ in range(rehearsals + 1):
            work()
        self.work = work

    def __call__(self) -> StepResult:
        return self.work()


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_recorded_run_equals_a_plain_one_also_after_a_restart(tables, data, monkeypatch, kind):
    monkeypatch.setattr("unmask.train.trainer.build_graph", PretendedRecording)
    config = TrainConfig(**tables(**{"optimizer.kind": kind}))
    plain, recorded = Trainer(config, data, CPU), Trainer(config, data, CPU)
    recorded.records_step = True
    for step in range(5):
        if step == 3:
            state = recorded.state_dict()
            recorded = Trainer(config, data, CPU)
            recorded.load_state_dict(state)
            recorded.records_step = True
        first, second = plain.step(step), recorded.step(step)
        assert torch.equal(first.loss, second.loss)
    assert equal(plain.state_dict(), recorded.state_dict())
    # Gradients live inside the recording: outside nothing may hold on to them.
    assert all(p.grad is None for p in plain.model.parameters())


class RecordableOnly(TorchDispatchMode):
    """Refuses what cannot be recorded: numbers for the host, shapes that depend on numbers, random numbers."""

    REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "bernoulli", "rand", "normal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").partition(".")[0]
        assert not name.startswith(self.REFUSED), f"{name} cannot be recorded"
        indices = args[1] if name.startswith(("index", "_unsafe_index")) and isinstance(args[1], (list, tuple)) else ()
        assert not any(x is not None and x.dtype == torch.bool for x in indices), "a choice by truth values waits"
        return func(*args, **(kwargs or {}))


def trainer_as_on_a_gpu(config: TrainConfig, data: Any) -> Trainer:
    """A trainer with the optimizers of a GPU, which read the rate from a tensor."""
    trainer = Trainer(config, data, CPU)
    trainer.rate = torch.zeros(())
    trainer.optimizers = make_optimizers(trainer.model, config.optimizer, trainer.rate)
    return trainer


@pytest.mark.parametrize(("kind", "family"), [("adamw", "llada"), ("muon", "dream")])
def test_a_step_never_waits_for_the_device(tables, data, family, kind):
    config = TrainConfig(**tables(**{"optimizer.kind": kind, "model.family": family, "run.dtype": "bf16"}))
    trainer = trainer_as_on_a_gpu(config, data)
    # The first step creates the optimizer's state; it is never recorded.
    trainer.step(0)
    with RecordableOnly():
        trainer.update_weights()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), RecordableOnly():
        float(trainer.rate)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_rate_in_a_tensor_is_the_same_rate_also_after_a_restart(tables, data, kind):
    config = TrainConfig(**tables(**{"optimizer.kind": kind}))
    plain, other = Trainer(config, data, CPU), trainer_as_on_a_gpu(config, data)
    for step in range(4):
        plain.step(step)
        if step == 2:
            state = other.state_dict()
            other = trainer_as_on_a_gpu(config, data)
            other.load_state_dict(state)
        other.step(step)
        for a, b in zip(plain.model.parameters(), other.model.parameters(), strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    assert all(group["lr"] is other.rate for opt in other.optimizers for group in opt.param_groups)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("kind", "family"), [("adamw", "llada"), ("muon", "dream")])
def test_a_recorded_step_on_a_gpu_is_the_plain_one(tables, data, family, kind, compiled):
    """Up to noise; with validation in between, after a restart, and with the CPU's numbers."""
    keys = {"optimizer.kind": kind, "model.family": family, "run.compile": compiled}
    plain, recorded = (TrainConfig(**tables(**keys, **{"run.graph": graph})) for graph in (False, True))
    gpu = torch.device("cuda")
    trainers = {"cpu": Trainer(plain, data, CPU), "plain": Trainer(plain, data, gpu)}
    trainers["recorded"] = Trainer(recorded, data, gpu)
    for step in range(6):
        if step == 4:
            state = trainers["recorded"].state_dict()
            trainers["recorded"] = Trainer(recorded, data, gpu)
            trainers["recorded"].load_state_dict(state)
        losses = {name: trainer.step(step).loss.item() for name, trainer in trainers.items()}
        assert losses["recorded"] == pytest.approx(losses["plain"], rel=1e-3)
        assert losses["recorded"] == pytest.approx(losses["cpu"], rel=1e-2)
        assert trainers["plain"].validate() == pytest.approx(trainers["recorded"].validate(), rel=1e-3)
    assert isinstance(trainers["recorded"]._run_update, CudaGraph)
    for a, b in zip(trainers["plain"].model.parameters(), trainers["recorded"].model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=2e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_replays_in_a_row_read_their_own_inputs(tables, data):
    """Steps launched as fast as the host can have the losses of steps that are waited for."""
    config = TrainConfig(**tables(**{"run.graph": True, "optimizer.steps": 60, "optimizer.rate": 1e-4}))
    hasty, patient = Trainer(config, data, torch.device("cuda")), Trainer(config, data, torch.device("cuda"))
    expected = []
    for step in range(60):
        expected.append(patient.step(step).loss.item())
        torch.cuda.synchronize()
    losses = [hasty.step(step).loss.clone() for step in range(60)]
    assert torch.stack(losses).tolist() == pytest.approx(expected, rel=1e-3)


# Whole runs

KILLED = """
import json, os, signal, sys
import torch
from unmask.train import TrainConfig, train

torch.set_num_threads(1)

def on_step(progress):
    if progress.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)

train(TrainConfig(**json.loads(sys.argv[1])), sys.argv[2], device="cpu", cache=sys.argv[3], workers=1, on_step=on_step)
"""


@pytest.fixture(scope="module")
def unbroken(config, cache, data, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    run(config, out, cache)
    return out


@pytest.fixture(scope="module")
def stopped(config, cache, data, tmp_path_factory) -> Path:
    """A run after five of its six steps, with checkpoints of steps 2 and 4."""
    out = tmp_path_factory.mktemp("stopped") / "out"
    stop_at(config, cache, out, 5)
    return out


@pytest.fixture
def out(stopped, tmp_path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "out"))


def test_a_killed_run_ends_in_the_same_bits(config, cache, tables, unbroken, tmp_path):
    killed = fresh_python(KILLED, json.dumps(tables()), str(tmp_path), str(cache))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "model").exists()
    # As if the kill had come while a checkpoint, the curve and the export were being written.
    (tmp_path / "checkpoints" / ".step-00000006.pt.1.partial").write_bytes(b"half")
    (tmp_path / ".curve.csv.1-ab.partial").write_text("half")
    (tmp_path / ".model.1-ab.partial").mkdir()
    (tmp_path / ".model.1-ab.partial" / "config.json").write_text("{")
    (tmp_path / "curve.csv").write_text("")
    lines: list[str] = []
    run(config, tmp_path, cache, log=lines.append)
    assert "going on from step 4" in lines
    assert model_files(tmp_path) == model_files(unbroken)
    assert not [path for path in tmp_path.glob(".*") if path.name != ".lock"]
    # The curve has no gap and no line twice, and but for the time it is the same.
    assert curve(tmp_path) == curve(unbroken)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_an_interrupted_run_ends_in_the_same_bits(tables, cache, tmp_path, kind):
    config = TrainConfig(**tables(**{"model.family": "dream", "run.dtype": "bf16", "optimizer.kind": kind}))
    run(config, tmp_path / "whole", cache)
    stop_at(config, cache, tmp_path / "broken", 3)
    run(config, tmp_path / "broken", cache)
    assert model_files(tmp_path / "whole") == model_files(tmp_path / "broken")


def test_a_finished_run_leaves_curve_checkpoints_and_model(config, cache, unbroken):
    assert [line["step"] for line in curve(unbroken)] == ["2", "3", "4", "6"]
    assert [line["step"] for line in curve(unbroken) if line["validation"]] == ["3", "6"]
    assert [p.name for p in list_checkpoints(unbroken)] == ["step-00000002.pt", "step-00000004.pt"]
    before = model_files(unbroken)
    stored = json.loads(before["manifest.json"])
    assert (stored["seed"], stored["steps"], stored["config_sha256"]) == (config.seed, 6, config.digest)
    assert stored["loss"] == pytest.approx(float(curve(unbroken)[-1]["loss"]))
    # A finished run is left alone.
    steps: list[TrainingProgress] = []
    assert run(config, unbroken, cache, on_step=steps.append) == unbroken / "model"
    assert not steps
    assert model_files(unbroken) == before


def test_every_step_is_reported_and_scores_are_kept(tables, cache, tmp_path):
    config = TrainConfig(**tables(**{"run.score_every": 4, "run.score_prompts": 7}))
    calls: list[tuple[str, int]] = []

    def score(folder: Path, prompts: int) -> dict[str, float]:
        calls.append((folder.name, prompts))
        return {"carry-rtl": json.loads((folder / "manifest.json").read_text())["steps"] / 10}

    reports: list[TrainingProgress] = []
    model = run(config, tmp_path, cache, score=score, on_step=reports.append)
    assert calls == [("snapshot", 7), ("snapshot", 7)]
    assert (tmp_path / "scores.csv").read_text() == "step,task,score\n4,carry-rtl,0.4\n6,carry-rtl,0.6\n"
    assert json.loads((model / "manifest.json").read_text())["scores"] == {"carry-rtl": 0.6}
    steps = [report for report in reports if report.scores is None]
    assert [p.step for p in steps] == [1, 2, 3, 4, 5, 6]
    assert [p.step for p in steps if p.point] == [2, 3, 4, 6]
    assert steps[3].tokens_per_second > 0
    lines: list[str] = []
    run(config, tmp_path / "unscored", cache, log=lines.append)
    assert any("no suite scores" in line for line in lines)


def test_a_loss_that_is_no_number_stops_the_run(tables, cache, tmp_path):
    config = TrainConfig(**tables(**{"optimizer.rate": 1e30, "optimizer.warmup": 0, "optimizer.clip": 1e30}))
    with pytest.raises(TrainingFailed, match=r"lower optimizer\.rate"):
        run(config, tmp_path, cache)


# The folder


def test_no_flipped_bit_of_a_checkpoint_is_gone_on_from(config, cache, out):
    first, path = list_checkpoints(out)
    whole, draw = path.read_bytes(), random.Random(5)
    # Both ends are among the places: where the archive and its hash begin and end.
    places = [0, 1, len(whole) - 1, len(whole) - 64, len(whole) - 65, *(draw.randrange(len(whole)) for _ in range(60))]
    damaged = [bytes([*whole[:at], whole[at] ^ 1 << draw.randrange(8), *whole[at + 1 :]]) for at in places]
    damaged += [whole[:length] for length in (0, 1, 63, 5000, -1, -65)]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(SchemaError, match=r"step-00000004\.pt was cut off.*command goes on from step-00000002\.pt"):
            load_checkpoint(out, CPU)
    # As the messages say.
    path.unlink()
    first.write_bytes(b"x" * 1000)
    with pytest.raises(SchemaError, match="delete it, and the same command begins again"):
        run(config, out, cache)
    path.write_bytes(whole)
    first.unlink()
    assert load_checkpoint(out, CPU)["step"] == 4
    assert torch.load(path, weights_only=True)["step"] == 4


def test_a_second_run_in_a_folder_is_refused(config, cache, data, tmp_path):
    def on_step(progress: TrainingProgress) -> None:
        with pytest.raises(ConfigError, match=r"in use by another run \(this process\)"):
            run(config, tmp_path, cache)

    run(config, tmp_path, cache, on_step=on_step)


def test_a_run_with_another_configuration_or_data_is_refused(config, cache, tables, out, unbroken, monkeypatch):
    other = TrainConfig(**tables(**{"optimizer.rate": 1e-3, "sources.english.weight": 9.0}))
    for folder in (out, unbroken):
        with pytest.raises(ConfigError, match=r"weight is 9\.0, was 2\.0; optimizer\.rate is 0\.001, was 0\.005"):
            run(other, folder, cache)
    monkeypatch.setattr("unmask.train.data.LAYOUT", "next")
    for folder in (out, unbroken):
        with pytest.raises(ConfigError, match="the same data"):
            run(config, folder, cache)


@pytest.mark.parametrize(("name", "content"), [("model.safetensors", "other"), ("manifest.json", "{")])
def test_a_finished_run_with_changed_files_is_refused(config, cache, out, name, content):
    model = run(config, out, cache)
    before = model_files(out)
    (model / name).write_text(content)
    with pytest.raises(SchemaError, match="delete the folder model"):
        run(config, out, cache)
    # As the message says.
    shutil.rmtree(model)
    run(config, out, cache)
    assert model_files(out) == before
