"""Configurations: every key is needed, checked, named when it is wrong, and does something."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import CONFIGS
from unmask.base.errors import ConfigError, UnknownName
from unmask.train import TrainConfig, TrainingProgress, train
from unmask.train.config import describe_differences
from unmask.train.run_folder import list_checkpoints
from unmask.train.trainer import network_spec


@pytest.mark.parametrize("name", ["mini", "mini-dream", "smoke"])
def test_committed_configurations_are_read(name):
    assert TrainConfig.read(CONFIGS / f"{name}.toml").digest


@pytest.mark.parametrize("name", ["mini", "mini-dream"])
def test_embedded_models_have_the_promised_size(name):
    config = TrainConfig.read(CONFIGS / f"{name}.toml")
    assert 4_000_000 <= network_spec(config).parameters <= 7_000_000
    assert 2048 <= config.tokenizer.size <= 8192


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("seed", -1, "0 or more"),
        ("seed", "one", "int"),
        ("model.family", "gpt", "'llada' or 'dream'"),
        ("model.layers", 0, "1 or more"),
        ("model.width", 3.5, "int"),
        ("model.theta", 0.0, "above 0"),
        ("tokenizer.size", 256, "300 to 32768"),
        ("tokenizer.examples", 0, "1 or more"),
        ("data.validation", 0, "1 or more"),
        ("sources.carry-rtl.weight", 0.0, "above 0"),
        ("sources.carry-rtl.examples", 0, "1 or more"),
        ("sources", 5, "tables [sources.NAME]"),
        ("optimizer.kind", "sgd", "'adamw' or 'muon'"),
        ("optimizer.kind", 1, "'adamw' or 'muon'"),
        ("optimizer.steps", 0, "1 or more"),
        ("optimizer.rate", float("inf"), "above 0"),
        ("optimizer.final_rate", -0.1, "0 or more"),
        ("optimizer.betas", [0.9], "tuple[float, float]"),
        ("optimizer.weight_decay", -0.1, "0 or more"),
        ("optimizer.clip", 0.0, "above 0"),
        ("optimizer.least_ratio", 0.0, "above 0, below 1"),
        ("run.dtype", "fp16", "'bf16' or 'fp32'"),
        ("run.compile", 1, "true or false"),
        ("run.graph", "yes", "true or false"),
        ("run.export", "int8", "'bf16', 'fp16' or 'fp32'"),
        ("run.log_every", 0, "1 or more"),
        ("run.checkpoint_every", -1, "0 or more"),
        ("model", 5, "a table of keys: family, layers"),
    ],
)
def test_impossible_values_are_refused_by_name(tables, key, value, allowed):
    with pytest.raises(ConfigError) as refusal:
        TrainConfig(**tables(**{key: value}))
    assert str(refusal.value).startswith(key)
    assert f"allowed: {allowed}" in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model.heads", 5, "width is 32; allowed: a multiple of 10"),
        ("model.kv_heads", 3, "kv_heads is 3; allowed: a divisor of 4"),
        ("model.context", 64, "the context"),
        ("data.lengths", [], "lengths is []"),
        ("data.lengths", [96, 96], "one to eight rising lengths"),
        ("data.lengths", list(range(16, 25)), "one to eight rising lengths"),
        ("sources", {}, "one or more of"),
        ("optimizer.batch", 1, "one row of each length"),
        ("optimizer.final_rate", 1.0, "final_rate is 1.0"),
        ("optimizer.warmup", 6, "warmup is 6"),
        ("optimizer.betas", [0.9, 1.0], "two numbers from 0 to below 1"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(tables, key, value, message):
    with pytest.raises(ConfigError, match="allowed") as refusal:
        TrainConfig(**tables(**{key: value}))
    assert message in str(refusal.value)


def test_scores_need_prompts(tables):
    with pytest.raises(ConfigError, match="score_prompts"):
        TrainConfig(**tables(**{"run.score_every": 2, "run.score_prompts": 0}))


@pytest.mark.parametrize(
    ("key", "hint"), [("optimizer.warm_up", "warmup"), ("sources.cary-rtl", "carry-rtl"), ("optimiser", "optimizer")]
)
def test_unknown_keys_are_refused_with_a_hint(tables, key, hint):
    with pytest.raises(UnknownName, match=f"did you mean {hint}"):
        TrainConfig(**tables(**{key: {"weight": 1.0, "examples": 1}}))


def test_a_missing_key_is_refused(tables):
    document = tables()
    del document["optimizer"]["clip"]
    with pytest.raises(ConfigError, match=r"has no .optimizer\.clip."):
        TrainConfig(**document)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        TrainConfig.read(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("seed = ")
    with pytest.raises(ConfigError, match="is not TOML"):
        TrainConfig.read(tmp_path / "broken.toml")


def test_differences_name_what_differs(tables):
    ours, theirs = (
        TrainConfig(**tables(**{"model.mlp": 64})),
        TrainConfig(**tables(**{"optimizer.betas": [0.8, 0.9]})),
    )
    found = describe_differences(ours.flat(), theirs.flat())
    assert found == ["model.mlp is 64, was 48", "optimizer.betas is [0.9, 0.95], was [0.8, 0.9]"]


# Every key changes the hash, and what a run leaves behind.


OTHER: dict[str, Any] = {
    "seed": 4,
    "model.family": "dream",
    "model.layers": 1,
    "model.width": 40,
    "model.heads": 2,
    "model.kv_heads": 4,
    "model.mlp": 56,
    "model.context": 352,
    "model.theta": 500.0,
    "model.norm_eps": 1e-3,
    "model.init_std": 0.03,
    "tokenizer.size": 410,
    "tokenizer.examples": 40,
    "data.lengths": [104, 224],
    "data.validation": 6,
    "sources.carry-rtl.weight": 3.0,
    "sources.carry-rtl.examples": 50,
    "sources.english.weight": 3.0,
    "sources.english.examples": 60,
    "sources.arithmetic.weight": 3.0,
    "sources.arithmetic.examples": 40,
    "optimizer.kind": "muon",
    "optimizer.steps": 5,
    "optimizer.batch": 10,
    "optimizer.rate": 4e-3,
    "optimizer.final_rate": 1e-3,
    "optimizer.warmup": 3,
    "optimizer.betas": [0.8, 0.9],
    "optimizer.eps": 1e-4,
    "optimizer.weight_decay": 0.5,
    "optimizer.clip": 0.1,
    "optimizer.least_ratio": 0.2,
    "run.dtype": "bf16",
    "run.compile": True,
    "run.graph": True,
    "run.export": "fp16",
    "run.log_every": 3,
    "run.validate_every": 2,
    "run.checkpoint_every": 3,
    "run.score_every": 3,
    "run.score_prompts": 2,
}


class Noticed(Exception):
    """The curve already differs: the rest of the run need not be computed."""


def curve(out: Path) -> list[str]:
    """Its lines so far, without the time."""
    path = out / "curve.csv"
    return [line.rpartition(",")[0] for line in path.read_text().splitlines()] if path.exists() else []


def left_behind(
    config: TrainConfig, out: Path, cache: Path, on_step: Callable[[TrainingProgress], None] = lambda progress: None
) -> dict[str, Any]:
    """All that somebody could notice, apart from the configuration itself and the time."""
    asked: list[tuple[int, int]] = []
    lines: list[str] = []

    def score(folder: Path, prompts: int) -> dict[str, float]:
        asked.append((json.loads((folder / "manifest.json").read_text())["steps"], prompts))
        return {}

    train(config, out, device="cpu", cache=cache, workers=1, score=score, log=lines.append, on_step=on_step)
    model = out / "model"
    return {
        "files": {
            p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in model.iterdir() if p.name != "manifest.json"
        },
        "validation": json.loads((model / "manifest.json").read_text())["validation"],
        "curve": curve(out),
        "checkpoints": [path.name for path in list_checkpoints(out)],
        "scored": asked,
        "ignored": [line for line in lines if "CUDA" in line],
    }


BASE = {"run.score_every": 4}


@pytest.fixture(scope="module")
def reference(
    cache: Path, tmp_path_factory: pytest.TempPathFactory, tables: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    return left_behind(TrainConfig(**tables(**BASE)), tmp_path_factory.mktemp("reference"), cache)


def test_no_key_is_forgotten(config):
    assert set(OTHER) == set(config.flat())


@pytest.mark.parametrize("key", OTHER)
def test_a_key_changes_the_hash(config, tables, key):
    assert TrainConfig(**tables(**{key: OTHER[key]})).digest != config.digest


@pytest.mark.parametrize("key", OTHER)
def test_a_key_changes_what_a_run_leaves_behind(tables, cache, tmp_path, reference, key):
    def watch(progress: TrainingProgress) -> None:
        lines = curve(tmp_path)
        if lines != reference["curve"][: len(lines)]:
            raise Noticed

    config = TrainConfig(**tables(**{**BASE, key: OTHER[key]}))
    try:
        other = left_behind(config, tmp_path, cache, watch)
    except Noticed:
        other = {"curve": curve(tmp_path)}
    assert other != reference


def test_an_equal_run_is_not_told_apart(tables, cache, tmp_path, reference):
    assert left_behind(TrainConfig(**tables(**BASE)), tmp_path, cache) == reference
