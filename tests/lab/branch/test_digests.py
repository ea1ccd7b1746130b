"""Digests: equal for equal rows whatever their company, different for any bit that differs."""

import torch

from unmask.lab.branch.digests import digests


def parts(rows=64):
    draw = torch.Generator().manual_seed(0)
    return [
        torch.randint(0, 126_464, (rows, 40), generator=draw),
        torch.rand(rows, 40, generator=draw) < 0.5,
        torch.arange(rows),
        torch.randint(-(2**63), 2**63 - 1, (rows,), generator=draw),
        torch.rand(rows, 40, generator=draw),
        torch.rand(rows, 40, generator=draw, dtype=torch.float64),
    ]


def listed(some):
    return [tuple(row) for row in digests(some).tolist()]


def test_a_row_has_its_digest_in_any_company():
    whole = listed(parts())
    assert len(set(whole)) == len(whole)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    assert listed([part[order] for part in parts()]) == [whole[at] for at in order.tolist()]
    assert [listed([part[at : at + 1] for part in parts()])[0] for at in range(64)] == whole


def test_every_bit_counts():
    """One bit of one word is another digest: of whole numbers, truth values and both kinds of floats."""
    one = [part[:1].reshape(1, -1) for part in parts()]
    seen = set(listed(one))
    for at, part in enumerate(one):
        for place in {0, part.numel() - 1}:
            for byte in {0, part.element_size() - 1}:
                other = part.clone()
                other.view(torch.uint8)[0, place * part.element_size() + byte] ^= 1
                (new,) = listed([*one[:at], other, *one[at + 1 :]])
                assert new not in seen
                seen.add(new)
    assert len(seen) > 15


def test_moved_words_are_other_rows():
    """The same tokens in another order, and a token that moves between tensors."""
    tokens = torch.tensor([[5, 7, 0, 0], [7, 5, 0, 0], [0, 5, 7, 0], [5, 7, 0, 1]])
    assert len(set(listed([tokens]))) == 4
