"""A configuration that trains in a fraction of a second."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from unmask.train.config import TrainConfig
from unmask.train.data import TrainingData, load_data
from unmask.train.sources import Folders

TINY: dict[str, Any] = {
    "seed": 3,
    "model": {
        "family": "llada",
        "layers": 2,
        "width": 32,
        "heads": 4,
        "kv_heads": 2,
        "mlp": 48,
        "context": 320,
        "theta": 10000.0,
        "norm_eps": 1e-5,
        "init_std": 0.02,
    },
    "tokenizer": {"size": 420, "examples": 100},
    "data": {"lengths": [96, 224], "validation": 8},
    "sources": {
        "carry-rtl": {"weight": 1.0, "examples": 60},
        "english": {"weight": 2.0, "examples": 80},
        "arithmetic": {"weight": 1.0, "examples": 50},
    },
    "optimizer": {
        "kind": "adamw",
        "steps": 6,
        "batch": 8,
        "rate": 5e-3,
        "final_rate": 0.0,
        "warmup": 2,
        "betas": [0.9, 0.95],
        "eps": 1e-8,
        "weight_decay": 0.1,
        "clip": 1.0,
        "least_ratio": 0.001,
    },
    "run": {
        "dtype": "fp32",
        "compile": False,
        "graph": False,
        "export": "bf16",
        "log_every": 2,
        "validate_every": 3,
        "checkpoint_every": 2,
        "score_every": 0,
        "score_prompts": 1,
    },
}

Make = Callable[..., dict[str, Any]]


def changed(**changes: Any) -> dict[str, Any]:
    """The tiny configuration's tables with some values replaced: `changed(**{"model.width": 64})`."""
    tables = deepcopy(TINY)
    for name, value in changes.items():
        *path, last = name.split(".")
        table = tables
        for part in path:
            table = table[part]
        table[last] = value
    return tables


@pytest.fixture(scope="session")
def tables() -> Make:
    return changed


@pytest.fixture(scope="session")
def config() -> TrainConfig:
    return TrainConfig(**TINY)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs on the same data share their rows."""
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="session")
def data(config: TrainConfig, cache: Path) -> TrainingData:
    return load_data(config, Folders(), cache, lambda line: None, workers=1)
