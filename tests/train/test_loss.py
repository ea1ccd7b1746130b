"""The loss against hand computation and against its formula, summed over every mask."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from unmask.models import Transformer, TransformerSpec
from unmask.train.batches import RowGroup, draw_batch
from unmask.train.loss import token_losses

MASK = 4


def network(layers: int = 0, shift: int = 0) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(
        TransformerSpec(
            vocab=5,
            width=8,
            layers=layers,
            heads=2,
            kv_heads=1,
            mlp=8,
            theta=100.0,
            eps=1e-5,
            qkv_bias=bool(shift),
            rope_float32=True,
        )
    ).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model


def hidden(tokens: Tensor, places: Tensor) -> Tensor:
    """A batch that is masked at these places."""
    return torch.zeros_like(tokens, dtype=torch.bool).flatten().index_fill(0, places, True).view_as(tokens)


def losses_at(model: Transformer, tokens: Tensor, valid: Tensor, masked: Tensor, shift: int) -> Tensor:
    """Of the masked tokens, and no others."""
    return token_losses(model, tokens, valid, hidden(tokens, masked), masked, MASK, shift)


def by_hand(model: Transformer, read: int, target: int) -> float:
    """-log softmax of the head on one normed embedding, in plain Python."""
    x = model.embed.weight[read].tolist()
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + model.spec.eps)
    normed = [v * scale * w for v, w in zip(x, model.norm.weight.tolist(), strict=True)]
    logits = [sum(a * b for a, b in zip(row, normed, strict=True)) for row in model.head.weight.tolist()]
    return math.log(sum(math.exp(v) for v in logits)) - logits[target]


@pytest.mark.parametrize("shift", [0, 1])
def test_token_losses_by_hand(shift):
    model = network()
    tokens = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])
    masked = torch.tensor([2, 3, 5])  # of row 0 the last two, of row 1 the second
    found = losses_at(model, tokens, torch.ones_like(tokens, dtype=torch.bool), masked, shift)
    # What the network reads where the prediction is made: the mask itself, or the slot before.
    read = [MASK, MASK, MASK] if shift == 0 else [1, MASK, 3]
    expected = [by_hand(model, r, t) for r, t in zip(read, [2, 3, 2], strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    assert min(expected) > 0


@pytest.mark.parametrize("shift", [0, 1])
def test_padding_and_neighbours_change_nothing(shift):
    model = network(layers=2, shift=shift)
    short = torch.tensor([[0, 1, 2, 3, 1]])
    alone = losses_at(model, short, torch.ones_like(short, dtype=torch.bool), torch.tensor([2, 4]), shift)
    tokens = torch.tensor([[3, 3, 3, 3, 3, 3, 3, 3], [0, 1, 2, 3, 1, 2, 2, 2]])
    valid = torch.tensor([[True] * 8, [True] * 5 + [False] * 3])
    together = losses_at(model, tokens, valid, torch.tensor([10, 12]), shift)
    assert torch.allclose(alone, together, atol=1e-6)


# The objective: sums over all masks against what batches draw.

ANSWER = 3


def joint() -> dict[tuple[int, ...], float]:
    """A made-up distribution over three tokens of two values."""
    raw = {x: 1.0 + 3 * x[0] * x[1] + 2 * (x[2] == x[0]) + 0.5 * x[2] for x in product((0, 1), repeat=ANSWER)}
    return {x: p / sum(raw.values()) for x, p in raw.items()}


def surprise(truth: tuple[int, ...], masked: tuple[int, ...], i: int) -> float:
    """-log p(x_i | what is not masked), by enumeration."""
    shown = [j for j in range(ANSWER) if j not in masked]
    fits = {x: p for x, p in joint().items() if all(x[j] == truth[j] for j in shown)}
    return -math.log(sum(p for x, p in fits.items() if x[i] == truth[i]) / sum(fits.values()))


def formula(truth: tuple[int, ...], least: float) -> float:
    """E_t E_masks of 1 / (t n) times the masked tokens' surprises, integrated over t in (least, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    total = 0.0
    for node, weight in zip(nodes, weights, strict=True):
        t = least + (1 - least) * (node + 1) / 2
        for k in range(1, ANSWER + 1):
            for masked in combinations(range(ANSWER), k):
                chance = t**k * (1 - t) ** (ANSWER - k)
                total += weight / 2 * chance / (t * ANSWER) * sum(surprise(truth, masked, i) for i in masked)
    return total


@pytest.mark.parametrize("truth", [(1, 1, 0), (0, 1, 1)])
def test_drawn_masks_and_weights_have_the_formulas_expectation(truth):
    least, size, prompt, length = 0.05, 20_000, 2, 6
    index = np.arange(size)
    group = RowGroup(length, index, np.full(size, prompt), np.full(size, ANSWER), (index,), np.ones(1), 1.0, size)
    batch = draw_batch(group, 0, 0, least)
    real = batch.weight_R > 0
    row_R, column_R = np.divmod(batch.place_R[real], length)
    masks: dict[int, list[int]] = {}
    for row, column in zip(row_R.tolist(), column_R.tolist(), strict=True):
        masks.setdefault(row, []).append(column - prompt)
    memo = {m: [surprise(truth, m, i) for i in m] for k in range(1, 4) for m in combinations(range(ANSWER), k)}
    value_R = np.concatenate([memo[tuple(masks[row])] for row in sorted(masks)])
    assert (batch.weight_R[real] * value_R).sum() == pytest.approx(formula(truth, least), rel=0.02)


@pytest.mark.parametrize("shift", [0, 1])
def test_fillers_change_neither_the_sum_nor_a_gradient(shift):
    model = network(layers=2, shift=shift)
    tokens = torch.tensor([[3, 3, 3, 3, 3, 2, 1, 3], [0, 1, 2, 3, 1, 2, 2, 2]])
    valid = torch.tensor([[True] * 8, [True] * 5 + [False] * 3])
    masked = torch.tensor([5, 10, 12])
    found = []
    # Slots seen, masked and padded are all good enough to fill up with.
    for places in (masked, torch.tensor([5, 10, 12, 1, 2, 3, 4, 9, 13, 15])):
        weights = torch.tensor([0.5, 2.0, 1.0] + [0.0] * (len(places) - 3), dtype=torch.float64)
        losses = token_losses(model, tokens, valid, hidden(tokens, masked), places, MASK, shift)
        model.zero_grad()
        loss = (losses * weights).sum()
        loss.backward()
        found.append((loss.item(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    (alone, gradients), (filled, others) = found
    assert filled == pytest.approx(alone, rel=1e-12)
    assert len(gradients) > 5
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-14) for a, b in zip(gradients, others, strict=True))
