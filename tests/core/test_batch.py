"""Selecting and joining rows of nested batch values."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.core import Edit, ModelOutput, Noise, Posterior, concat, select


@dataclass(frozen=True)
class Inner:
    x_B: Tensor
    name: str


@dataclass(frozen=True)
class Outer:
    inner: Inner
    maybe: Tensor | None
    parts: tuple[Tensor, ...]
    notes: Mapping[str, Tensor]
    noise: Noise
    size: int = 3


def outer(start: int) -> Outer:
    x_B = torch.arange(start, start + 3)
    return Outer(Inner(x_B, "n"), None, (x_B * 10, x_B[:, None]), {"a": x_B + 0.5}, Noise(x_B))


ROWS = torch.tensor([2, 0, 0])


def test_select_reaches_every_level():
    got = select(outer(0), ROWS)
    assert got.inner.x_B.tolist() == [2, 0, 0]
    assert got.inner.name == "n"
    assert got.maybe is None
    assert [p.tolist() for p in got.parts] == [[20, 0, 0], [[2], [0], [0]]]
    assert got.notes["a"].tolist() == [2.5, 0.5, 0.5]
    assert got.noise.key_B.tolist() == [2, 0, 0]
    assert got.size == 3


def test_concat_undoes_a_split():
    value = outer(4)
    back = concat([select(value, torch.tensor([0])), select(value, torch.tensor([1, 2]))])
    assert torch.equal(back.inner.x_B, value.inner.x_B)
    assert torch.equal(back.parts[1], value.parts[1])
    assert torch.equal(back.notes["a"], value.notes["a"])
    assert torch.equal(back.noise.key_B, value.noise.key_B)
    assert back.maybe is None


def test_a_posterior_selects_slots_and_keeps_its_packed_rows():
    wanted_BN = torch.tensor([[True, False], [True, True]])
    output = ModelOutput(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), wanted_BN)
    assert output.slot_BN.tolist() == [[0, -1], [1, 2]]
    assert output.slots.index_R.tolist() == [0, 2, 3]
    whole = Posterior(output.logits_RV, output.logits_RV.logsumexp(-1), output.slot_BN, Edit())
    for rows in (torch.tensor([1, 0]), torch.tensor([1]), torch.tensor([0, 1, 0])):
        assert torch.equal(select(whole, rows).to_dense(), whole.to_dense()[rows])


def test_posteriors_join_behind_each_other_and_share_what_they_share():
    def posterior(seed: int) -> Posterior:
        generator = torch.Generator().manual_seed(seed)
        logits_RV = torch.randn(4, 5, generator=generator)
        slot_BN = torch.tensor([[0, -1, 1], [2, 3, -1]])
        return Posterior(logits_RV, logits_RV.logsumexp(-1), slot_BN)

    a, b = posterior(0), posterior(1)
    joined = concat([a.select(torch.tensor([1])), b, a.select(torch.tensor([0]))])
    assert len(joined.logits_RV) == 8
    expected = torch.cat((a.to_dense()[1:], b.to_dense(), a.to_dense()[:1]))
    assert torch.equal(joined.to_dense(), expected)
