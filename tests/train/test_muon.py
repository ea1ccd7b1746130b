"""Muon: orthogonal updates, part by part, of the right size, for the layers' matrices alone."""

import math

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.train.config import TrainConfig
from unmask.train.muon import MOMENTUM, SCALE, Muon, layer_matrices, orthogonalize
from unmask.train.trainer import Trainer

CPU = torch.device("cpu")


@each_case("shape", [(3, 32, 32), (2, 48, 32), (2, 32, 80), (1, 8, 256)])
@each_case("size", [1e-4, 1.0, 1e3])
def test_singular_values_come_near_one(shape, size):
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(noise, full_matrices=False)
    x = size * (u * torch.linspace(0.1, 1.0, min(shape[1:]))) @ v
    found = torch.linalg.svdvals(orthogonalize(x))
    assert found.min() > 0.65
    assert found.max() < 1.25
    # Each matrix for itself, and in the same directions.
    assert torch.allclose(orthogonalize(x)[:1], orthogonalize(x[:1]), atol=1e-5)
    assert torch.nn.functional.cosine_similarity(orthogonalize(x).flatten(), (u @ v).flatten(), dim=0) > 0.97


def test_the_first_update_by_hand():
    """Two matrices one above the other in one parameter; another shape beside it."""
    generator = torch.Generator().manual_seed(1)
    both, other = (torch.nn.Parameter(torch.randn(n, 16, generator=generator)) for n in (24 + 16, 16))
    before = [p.detach().clone() for p in (both, other)]
    optimizer = Muon([both, other], [(24, 16), (16,)], lr=0.01, weight_decay=0.5)
    for p in (both, other):
        p.grad = torch.randn(p.shape, generator=generator)
    optimizer.step()
    for old, p, rows in zip(before, (both, other), ((24, 16), (16,)), strict=True):
        for part, was, gradient in zip(p.detach().split(rows), old.split(rows), p.grad.split(rows), strict=True):
            size = SCALE * math.sqrt(max(part.shape))
            expected = was * (1 - 0.01 * 0.5) - 0.01 * size * orthogonalize(gradient[None])[0]
            assert torch.allclose(part, expected, atol=1e-5)
            # As large as AdamW's: about 0.2 per number and rate.
            step = (part - was * (1 - 0.01 * 0.5)) / 0.01
            assert 0.1 < step.square().mean().sqrt() < 0.25


def test_momentum_is_nesterovs():
    p = torch.nn.Parameter(torch.zeros(4, 4))
    optimizer = Muon([p], [(4,)], lr=1.0, weight_decay=0.0)
    gradients = [torch.randn(4, 4, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    momentum, value = torch.zeros(4, 4), torch.zeros(4, 4)
    for gradient in gradients:
        p.grad = gradient.clone()
        optimizer.step()
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        ahead = (1 - MOMENTUM) * gradient + MOMENTUM * momentum
        value = value - SCALE * 2 * orthogonalize(ahead[None])[0]
    assert torch.allclose(p.detach(), value, atol=1e-4)


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_layers_go_to_muon_and_the_rest_to_adamw(tables, data, family):
    config = TrainConfig(**tables(**{"model.family": family, "optimizer.kind": "muon"}))
    trainer = Trainer(config, data, CPU)
    names = {p: name for name, p in trainer.model.named_parameters()}
    found = {names[p]: rows for p, rows in layer_matrices(trainer.model).items()}
    assert {name.split(".", 2)[2] for name in found} == {"qkv.weight", "out.weight", "gate_up.weight", "down.weight"}
    assert len(found) == 4 * config.model.layers
    assert found["layers.0.qkv.weight"] == (32, 16, 16)
    assert found["layers.1.gate_up.weight"] == (48, 48)
    first, rest = trainer.optimizers
    assert isinstance(first, Muon)
    assert isinstance(rest, torch.optim.AdamW)
    moved = [p for optimizer in trainer.optimizers for group in optimizer.param_groups for p in group["params"]]
    assert sorted(names[p] for p in moved) == sorted(names.values()), "each by one"
    undecayed = {names[p] for group in rest.param_groups if group["weight_decay"] == 0 for p in group["params"]}
    assert undecayed == {name for p, name in names.items() if p.dim() == 1}
