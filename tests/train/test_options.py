"""Every key of a configuration does something: it changes the hash, and what a run leaves behind."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unmask.train import Config, journal, train
from unmask.train.loop import TrainingProgress

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
    config: Config, out: Path, cache: Path, on_step: Callable[[TrainingProgress], None] = lambda progress: None
) -> dict[str, Any]:
    """All that somebody could notice, apart from the configuration itself and the time."""
    asked: list[tuple[int, int]] = []
    lines: list[str] = []

    def score(folder: Path, prompts: int) -> dict[str, float]:
        asked.append((json.loads((folder / "manifest.json").read_text())["steps"], prompts))
        return {}

    train(config, out, device="cpu", cache=cache, workers=1, score=score, say=lines.append, on_step=on_step)
    model = out / "model"
    return {
        "files": {
            p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in model.iterdir() if p.name != "manifest.json"
        },
        "validation": json.loads((model / "manifest.json").read_text())["validation"],
        "curve": curve(out),
        "checkpoints": [path.name for path in journal.checkpoints(out)],
        "scored": asked,
        "ignored": [line for line in lines if "CUDA" in line],
    }


BASE = {"run.score_every": 4}


@pytest.fixture(scope="module")
def reference(
    cache: Path, tmp_path_factory: pytest.TempPathFactory, tables: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    return left_behind(Config.of(tables(**BASE)), tmp_path_factory.mktemp("reference"), cache)


def test_no_key_is_forgotten(config):
    assert set(OTHER) == set(config.flat())


@pytest.mark.parametrize("key", OTHER)
def test_a_key_changes_the_hash(config, tables, key):
    assert Config.of(tables(**{key: OTHER[key]})).digest != config.digest


@pytest.mark.parametrize("key", OTHER)
def test_a_key_changes_what_a_run_leaves_behind(tables, cache, tmp_path, reference, key):
    def watch(progress: TrainingProgress) -> None:
        lines = curve(tmp_path)
        if lines != reference["curve"][: len(lines)]:
            raise Noticed

    config = Config.of(tables(**{**BASE, key: OTHER[key]}))
    try:
        other = left_behind(config, tmp_path, cache, watch)
    except Noticed:
        other = {"curve": curve(tmp_path)}
    assert other != reference


def test_an_equal_run_is_not_told_apart(tables, cache, tmp_path, reference):
    assert left_behind(Config.of(tables(**BASE)), tmp_path, cache) == reference
