"""Configurations: every key is needed, checked, and named when it is wrong."""

from pathlib import Path

import pytest

from unmask.errors import ConfigError, UnknownName
from unmask.train.config import Config, differences

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["mini", "mini-dream", "smoke"])
def test_committed_configurations_are_read(name):
    assert Config.read(ROOT / "configs" / f"{name}.toml").digest


@pytest.mark.parametrize("name", ["mini", "mini-dream"])
def test_embedded_models_have_the_promised_size(name):
    from unmask.train.learner import spec_of

    config = Config.read(ROOT / "configs" / f"{name}.toml")
    assert 4_000_000 <= spec_of(config).parameters <= 7_000_000
    assert 2048 <= config.tokenizer.size <= 8192


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("seed", -1, "seed is -1"),
        ("seed", "one", "seed of"),
        ("model.family", "gpt", "llada or dream"),
        ("model.layers", 0, "layers of model"),
        ("model.width", 3.5, "width of"),
        ("model.theta", 0.0, "theta of model"),
        ("model.heads", 5, "[model] of the configuration: width of model is 32; allowed: a multiple of 10"),
        ("model.kv_heads", 3, "kv_heads of model is 3; allowed: a divisor of 4"),
        ("model.context", 64, "the context"),
        ("tokenizer.size", 256, "size of tokenizer"),
        ("tokenizer.examples", 0, "examples of tokenizer"),
        ("data.lengths", [], "lengths of data"),
        ("data.lengths", [96, 96], "lengths of data"),
        ("data.lengths", list(range(16, 25)), "one to eight"),
        ("data.validation", 0, "validation of data"),
        ("sources.carry-rtl.weight", 0.0, "weight of source"),
        ("sources.carry-rtl.examples", 0, "examples of source"),
        ("sources", {}, "one or more of"),
        ("sources", 5, "tables"),
        ("optimizer.kind", "sgd", "adamw or muon"),
        ("optimizer.kind", 1, "kind of"),
        ("optimizer.steps", 0, "steps of optimizer"),
        ("optimizer.batch", 1, "one row of each length"),
        ("optimizer.rate", float("inf"), "rate of optimizer"),
        ("optimizer.final_rate", 1.0, "final_rate of optimizer"),
        ("optimizer.warmup", 6, "warmup of optimizer"),
        ("optimizer.betas", [0.9, 1.0], "betas of optimizer"),
        ("optimizer.betas", [0.9], "betas of"),
        ("optimizer.weight_decay", -0.1, "weight_decay of optimizer"),
        ("optimizer.clip", 0.0, "clip of optimizer"),
        ("optimizer.least_ratio", 0.0, "least_ratio of optimizer"),
        ("run.dtype", "fp16", "dtype of run"),
        ("run.compile", 1, "compile of"),
        ("run.graph", "yes", "graph of"),
        ("run.export", "int8", "export of run"),
        ("run.log_every", 0, "log_every of run"),
        ("run.checkpoint_every", -1, "checkpoint_every of run"),
        ("model", 5, "a table of keys"),
    ],
)
def test_impossible_values_are_refused_by_name(tables, key, value, named):
    with pytest.raises(ConfigError, match="allowed") as refusal:
        Config.of(tables(**{key: value}))
    assert named in str(refusal.value)


def test_scores_need_prompts(tables):
    with pytest.raises(ConfigError, match="score_prompts"):
        Config.of(tables(**{"run.score_every": 2, "run.score_prompts": 0}))


@pytest.mark.parametrize(
    ("key", "hint"), [("optimizer.warm_up", "warmup"), ("sources.cary-rtl", "carry-rtl"), ("optimiser", "optimizer")]
)
def test_unknown_keys_are_refused_with_a_hint(tables, key, hint):
    with pytest.raises(UnknownName, match=f"did you mean {hint}"):
        Config.of(tables(**{key: {"weight": 1.0, "examples": 1}}))


def test_a_missing_key_is_refused(tables):
    document = tables()
    del document["optimizer"]["clip"]
    with pytest.raises(ConfigError, match="has no 'clip'"):
        Config.of(document)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.read(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("seed = ")
    with pytest.raises(ConfigError, match="is not TOML"):
        Config.read(tmp_path / "broken.toml")


def test_differences_name_what_differs(tables):
    ours, theirs = Config.of(tables(**{"model.mlp": 64})), Config.of(tables(**{"optimizer.betas": [0.8, 0.9]}))
    found = differences(ours.flat(), theirs.flat())
    assert found == ["model.mlp is 64, was 48", "optimizer.betas is [0.9, 0.95], was [0.8, 0.9]"]
