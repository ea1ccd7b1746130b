"""The training run: its start, its steps, and runs that end in the same bits however they are interrupted."""

import csv
import json
import math
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.fresh_python import fresh_python
from tests.helpers.paths import CONFIGS
from unmask.models.checkpoints import DREAM, LLADA
from unmask.train import TrainConfig, TrainingProgress, train
from unmask.train.batches import draw_batch
from unmask.train.loss import token_losses
from unmask.train.run_folder import list_checkpoints
from unmask.train.trainer import (
    SHIFT,
    Trainer,
    TrainingFailed,
    init_network,
    learning_rate,
    mean_loss,
    network_spec,
)

CPU = torch.device("cpu")
FILES = ("config.json", "generation_config.json", "manifest.json", "model.safetensors", "tokenizer.json")


def run(config: TrainConfig, out: Path, cache: Path, **options) -> Path:
    return train(config, out, device="cpu", cache=cache, workers=1, **options)


def stop_at(config: TrainConfig, cache: Path, out: Path, step: int) -> None:
    def on_step(progress: TrainingProgress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, out, cache, on_step=on_step)


def model_files(out: Path) -> dict[str, bytes]:
    return {name: (out / "model" / name).read_bytes() for name in FILES}


def manifest(out: Path) -> dict:
    return json.loads((out / "model" / "manifest.json").read_text(encoding="utf-8"))


def curve(out: Path) -> list[dict[str, str]]:
    with (out / "curve.csv").open(encoding="utf-8") as file:
        return [{k: v for k, v in line.items() if k != "seconds"} for line in csv.DictReader(file)]


# Steps


def test_initial_weights_are_as_documented(tables):
    config = TrainConfig(**tables(**{"model.family": "dream", "model.width": 128, "model.init_std": 0.05}))
    model = init_network(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == (0.0 if name.endswith("bias") else 1.0)).all()
            continue
        writes = name.endswith(("out.weight", "down.weight"))
        expected = 0.05 / math.sqrt(2 * config.model.layers) if writes else 0.05
        assert parameter.std().item() == pytest.approx(expected, rel=0.05)
    again = init_network(config)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_families_follow_the_published_conventions(tables):
    llada, dream = (network_spec(TrainConfig(**tables(**{"model.family": name}))) for name in ("llada", "dream"))
    assert (llada.qkv_bias, llada.rope_float32) == (False, True)
    assert (dream.qkv_bias, dream.rope_float32) == (True, False)
    assert {"llada": LLADA.shift, "dream": DREAM.shift} == SHIFT


def test_learning_rate_grows_and_then_follows_half_a_cosine(tables):
    changes = {"steps": 110, "warmup": 10, "rate": 1.0, "final_rate": 0.2}
    settings = TrainConfig(**tables(**{f"optimizer.{name}": value for name, value in changes.items()})).optimizer
    rates = [learning_rate(settings, step) for step in (0, 4, 9, 10, 60, 109)]
    assert rates == pytest.approx([0.1, 0.5, 1.0, 1.0, 0.6, 0.2], abs=1e-3)


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
    assert result.gradient.item() > 0
    assert not torch.equal(before, trainer.model.head.weight)


def test_a_fresh_model_gives_every_token_the_same_probability(config, data):
    losses = Trainer(config, data, CPU).validate()
    assert list(losses) == list(config.sources)
    for loss in losses.values():
        assert loss == pytest.approx(math.log(config.tokenizer.size), rel=0.25)
    assert mean_loss({"carry-rtl": 1.0, "english": 2.0, "arithmetic": 5.0}, config) == pytest.approx(2.5)


def test_validation_changes_nothing_and_never_changes(config, data):
    trainer = Trainer(config, data, CPU)
    first = trainer.validate()
    weights = [p.clone() for p in trainer.model.parameters()]
    assert trainer.validate() == first
    assert all(p.grad is None for p in trainer.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(weights, trainer.model.parameters(), strict=True))


def test_held_out_rows_are_not_trained_on(data):
    rows = [data.training, data.held_out]
    seen, held = ({part.tobytes() for part in np.split(r.tokens, np.cumsum(r.length_E)[:-1])} for r in rows)
    # Short requests may come twice by chance; whole sets may not.
    assert len(held & seen) <= len(held) // 10


# Whole runs

KILLED = """
import json, os, signal, sys
import torch
from unmask.train import TrainConfig, train

torch.set_num_threads(1)

def on_step(progress):
    if progress.step == int(sys.argv[4]) and progress.scores is None:
        os.kill(os.getpid(), signal.SIGKILL)

config = TrainConfig(**json.loads(sys.argv[1]))
train(config, sys.argv[2], device="cpu", cache=sys.argv[3], workers=1, on_step=on_step)
"""


@pytest.fixture(scope="module")
def unbroken(config, cache, data, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    run(config, out, cache)
    return out


def test_a_killed_run_ends_in_the_same_bits(config, cache, tables, unbroken, tmp_path):
    killed = fresh_python(KILLED, json.dumps(tables()), str(tmp_path), str(cache), "5")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "model").exists()
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-00000002.pt", "step-00000004.pt"]
    # As if the kill had come while a checkpoint and the export were being written.
    (tmp_path / "checkpoints" / ".step-00000006.pt.1.partial").write_bytes(b"half")
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "config.json").write_text("{")
    lines: list[str] = []
    run(config, tmp_path, cache, log=lines.append)
    assert "going on from step 4" in lines
    assert model_files(tmp_path) == model_files(unbroken)
    assert not list(tmp_path.rglob("*.partial"))
    # The curve has no gap and no line twice, and but for the time it is the same.
    assert curve(tmp_path) == curve(unbroken)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_an_interrupted_run_ends_in_the_same_bits(tables, cache, tmp_path, kind):
    config = TrainConfig(**tables(**{"model.family": "dream", "run.dtype": "bf16", "optimizer.kind": kind}))
    run(config, tmp_path / "whole", cache)
    stop_at(config, cache, tmp_path / "broken", 3)
    run(config, tmp_path / "broken", cache)
    assert model_files(tmp_path / "whole") == model_files(tmp_path / "broken")


def test_what_a_run_leaves_behind(config, unbroken):
    assert [line["step"] for line in curve(unbroken)] == ["2", "3", "4", "6"]
    assert [line["step"] for line in curve(unbroken) if line["validation"]] == ["3", "6"]
    assert [p.name for p in list_checkpoints(unbroken)] == ["step-00000002.pt", "step-00000004.pt"]
    stored = manifest(unbroken)
    assert stored["seed"] == config.seed
    assert stored["steps"] == 6
    assert stored["config_sha256"] == config.digest
    assert stored["loss"] == pytest.approx(float(curve(unbroken)[-1]["loss"]))
    assert list(stored["validation_by_source"]) == list(config.sources)


def test_a_finished_run_is_left_alone(config, cache, unbroken):
    before = model_files(unbroken)
    steps: list[TrainingProgress] = []
    assert run(config, unbroken, cache, on_step=steps.append) == unbroken / "model"
    assert not steps
    assert model_files(unbroken) == before


def test_every_step_is_reported(config, cache, tmp_path):
    steps: list[TrainingProgress] = []
    run(config, tmp_path, cache, on_step=steps.append)
    assert [p.step for p in steps] == [1, 2, 3, 4, 5, 6]
    assert [p.step for p in steps if p.point] == [2, 3, 4, 6]
    assert steps[-1].remaining == 0.0
    assert steps[3].tokens_per_second > 0


def test_scores_are_computed_on_snapshots_and_kept(tables, cache, tmp_path):
    config = TrainConfig(**tables(**{"run.score_every": 4, "run.score_prompts": 7}))
    calls: list[tuple[str, int, int]] = []

    def score(folder: Path, prompts: int) -> dict[str, float]:
        done = json.loads((folder / "manifest.json").read_text())["steps"]
        calls.append((folder.name, prompts, done))
        return {"carry-rtl": done / 10}

    steps: list[TrainingProgress] = []
    run(config, tmp_path, cache, score=score, on_step=steps.append)
    assert calls == [("snapshot", 7, 4), ("snapshot", 7, 6)]
    assert (tmp_path / "scores.csv").read_text() == "step,task,score\n4,carry-rtl,0.4\n6,carry-rtl,0.6\n"
    assert manifest(tmp_path)["scores"] == {"carry-rtl": 0.6}
    assert [p.scores for p in steps if p.scores] == [{"carry-rtl": 0.4}, {"carry-rtl": 0.6}]


def test_scores_without_a_scorer_are_not_silently_missing(tables, cache, tmp_path):
    lines: list[str] = []
    run(TrainConfig(**tables(**{"run.score_every": 4})), tmp_path, cache, log=lines.append)
    assert any("no suite scores" in line for line in lines)


def test_a_loss_that_is_no_number_stops_the_run(tables, cache, tmp_path):
    config = TrainConfig(**tables(**{"optimizer.rate": 1e30, "optimizer.warmup": 0, "optimizer.clip": 1e30}))
    with pytest.raises(TrainingFailed, match=r"lower optimizer\.rate"):
        run(config, tmp_path, cache)


def test_the_smoke_configurations_loss_falls(tmp_path):
    """The committed toy, cut to a third of its steps."""
    config = TrainConfig.read(CONFIGS / "smoke.toml")
    config = config.model_copy(update={"optimizer": config.optimizer.model_copy(update={"steps": 40})})
    train(config, tmp_path, device="cpu", workers=1)
    losses = [float(line["loss"]) for line in curve(tmp_path)]
    assert losses[-1] < 0.6 * losses[0]
    assert manifest(tmp_path)["validation"] < 0.5 * math.log(config.tokenizer.size)
