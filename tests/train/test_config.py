"""Configurations: every key is needed and checked, and its hash is part of what models were published with."""

import pytest

from tests.helpers.paths import CONFIGS
from unmask.base.errors import ConfigError
from unmask.train import TrainConfig


@pytest.mark.parametrize(
    ("name", "start"), [("mini", "4176e072a297dd9f"), ("mini-dream", "3ffb816ca386b1c2"), ("smoke", "fe1cc2ad528d41ed")]
)
def test_recipes_keep_their_hash(name, start):
    assert TrainConfig.read(CONFIGS / f"{name}.toml").digest.startswith(start)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sources", 5, "tables [sources.NAME]"),
        ("optimizer.least_ratio", 0.0, "above 0, below 1"),
        ("model.context", 64, "the context"),
        ("data.lengths", [], "lengths is []"),
        ("data.lengths", [96, 96], "one to eight rising lengths"),
        ("sources", {}, "one or more of"),
        ("optimizer.batch", 1, "one row of each length"),
        ("optimizer.final_rate", 1.0, "final_rate is 1.0"),
        ("optimizer.warmup", 6, "warmup is 6"),
        ("optimizer.betas", [0.9, 1.0], "two numbers from 0 to below 1"),
        ("run.score_prompts", 0, "score_prompts is 0"),
    ],
)
def test_impossible_values_are_refused(tables, key, value, message):
    with pytest.raises(ConfigError, match="allowed") as refusal:
        TrainConfig(**tables(**{"run.score_every": 2, key: value}))
    assert message in str(refusal.value)
