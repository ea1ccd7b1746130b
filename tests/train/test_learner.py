"""One step at a time: start, learning rate, updates, validation."""

import math

import numpy as np
import pytest
import torch

from unmask.train.config import Config
from unmask.train.learner import SHIFT, Learner, initial, learning_rate, mixed, spec_of

CPU = torch.device("cpu")


def test_the_start_is_as_documented(tables):
    config = Config.of(tables(**{"model.family": "dream", "model.width": 128, "model.init_std": 0.05}))
    model = initial(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == (0.0 if name.endswith("bias") else 1.0)).all()
            continue
        writes = name.endswith(("out.weight", "down.weight"))
        expected = 0.05 / math.sqrt(2 * config.model.layers) if writes else 0.05
        assert parameter.std().item() == pytest.approx(expected, rel=0.05)
    again = initial(config)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_families_differ_where_they_should(tables):
    llada, dream = (spec_of(Config.of(tables(**{"model.family": family}))) for family in ("llada", "dream"))
    assert (llada.qkv_bias, llada.rope_float32) == (False, True)
    assert (dream.qkv_bias, dream.rope_float32) == (True, False)
    assert SHIFT == {"llada": 0, "dream": 1}


def test_shifts_are_those_of_the_published_families():
    from unmask.models.checkpoints import DREAM, LLADA

    assert {"llada": LLADA.shift, "dream": DREAM.shift} == SHIFT


def test_learning_rate(tables):
    settings = Config.of(
        tables(
            **{
                "optimizer.steps": 110,
                "optimizer.warmup": 10,
                "optimizer.rate": 1.0,
                "optimizer.final_rate": 0.2,
            }
        )
    ).optimizer
    assert [learning_rate(settings, step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert learning_rate(settings, 10) == pytest.approx(1.0)
    assert learning_rate(settings, 60) == pytest.approx(0.6)
    assert learning_rate(settings, 109) == pytest.approx(0.2, abs=1e-3)


def test_a_step_is_the_weighted_sum_of_its_groups(config, pool):
    """The reported loss is what single rows give, by the objective's weights; and the weights move."""
    from unmask.train.batches import draw
    from unmask.train.loss import token_losses

    learner = Learner(config, pool, CPU)
    expected = 0.0
    for table in learner.tables:
        batch = draw(table.group, config.seed, 0, config.optimizer.least_ratio)
        for b, row in enumerate(batch.rows_B):
            inside = (batch.place_R // table.group.length == b) & (batch.weight_R > 0)
            length = int(table.length_E[row])
            tokens = table.tokens_EN[row][None, :length].long()
            masked = torch.from_numpy(batch.place_R[inside] % table.group.length)
            hidden = torch.from_numpy(batch.hidden_BN[b : b + 1, :length])
            losses = token_losses(learner.model, tokens, tokens >= 0, hidden, masked, pool.ids.mask, 0)
            expected += float((losses * torch.from_numpy(batch.weight_R[inside])).sum().detach())
    before = learner.model.head.weight.clone()
    stepped = learner.step(0)
    assert stepped.loss.item() == pytest.approx(expected, rel=1e-5)
    assert stepped.gradient.item() > 0
    assert not torch.equal(before, learner.model.head.weight)


def test_a_fresh_model_knows_nothing(config, pool):
    """With small random weights every token has about the same probability."""
    losses = Learner(config, pool, CPU).validate()
    assert list(losses) == list(config.sources)
    for loss in losses.values():
        assert loss == pytest.approx(math.log(config.tokenizer.size), rel=0.25)
    assert mixed({"carry-rtl": 1.0, "english": 2.0, "arithmetic": 5.0}, config) == pytest.approx(2.5)


def test_validation_changes_nothing_and_never_changes(config, pool):
    learner = Learner(config, pool, CPU)
    first = learner.validate()
    weights = [p.clone() for p in learner.model.parameters()]
    assert learner.validate() == first
    assert all(p.grad is None for p in learner.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(weights, learner.model.parameters(), strict=True))


def test_held_out_rows_are_not_trained_on(pool):
    rows = [pool.training, pool.held_out]
    seen, held = ({part.tobytes() for part in np.split(r.tokens, np.cumsum(r.length_E)[:-1])} for r in rows)
    # Short requests may come twice by chance; whole sets may not.
    assert len(held & seen) <= len(held) // 10
