"""The candidate nearest to a proposal."""

import pytest
import torch

from unmask.core import Action, State
from unmask.errors import UnknownName
from unmask.lab.branch import nearest


class TestNearest:
    """By hand, on a canvas of a prompt and six masks."""

    state = State.from_prompts([[0]], new_tokens=6, steps=3, mask_id=3)
    revealed_BL = torch.tensor([[False, True, True, False, False, False, False]])

    def action(self, alpha=(1, 0, 0, 0, 0), region=(0, 1, 1, 1, 1, 1, 1), kappa=1.0, commit=(1,) * 7):
        return Action(
            torch.tensor([alpha], dtype=torch.float64),
            torch.tensor([region], dtype=torch.bool),
            torch.tensor([kappa], dtype=torch.float64),
            torch.tensor([commit], dtype=torch.bool),
        )

    def near(self, axis, proposed, *others):
        candidates = [self.action(**other) for other in others]
        return nearest(axis, self.state, self.action(**proposed), self.revealed_BL, candidates).tolist()

    def test_score(self):
        pure, margin, uniform = ({"alpha": a} for a in ((1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0.2,) * 5))
        assert self.near("score", {"alpha": (0.1, 0.9, 0, 0, 0)}, pure, margin, uniform) == [1]
        assert self.near("score", {"alpha": (0.3, 0.3, 0.2, 0.1, 0.1)}, pure, margin, uniform) == [2]

    def test_region(self):
        whole, left, right = ({"region": r} for r in ((0, *(1,) * 6), (0, 1, 1, 0, 0, 0, 0), (0, 0, 0, 0, 0, 1, 1)))
        assert self.near("region", {"region": (0, 0, 0, 0, 1, 1, 1)}, whole, left, right) == [2]
        assert self.near("region", {"region": (0, 1, 1, 1, 1, 0, 1)}, whole, left, right) == [0]

    def test_cardinality(self):
        one, three, six = ({"kappa": k / 6} for k in (1, 3, 6))
        assert self.near("cardinality", {"kappa": 4 / 6}, one, three, six) == [1]
        assert self.near("cardinality", {"kappa": 5 / 6}, one, three, six) == [2]

    def test_commitment_looks_at_what_is_revealed(self):
        every, none, first = ({"commit": c} for c in ((1,) * 7, (0,) * 7, (0, 1, 0, 0, 0, 0, 0)))
        assert self.near("commitment", {"commit": (0, 0, 0, 1, 1, 1, 1)}, every, none, first) == [1]
        assert self.near("commitment", {"commit": (0, 1, 0, 1, 1, 1, 1)}, every, none, first) == [2]

    def test_the_first_of_equally_near_ones(self):
        two, four = {"kappa": 2 / 6}, {"kappa": 4 / 6}
        assert self.near("cardinality", {"kappa": 3 / 6}, four, two) == [0]
        assert self.near("cardinality", {"kappa": 3 / 6}, two, four) == [0]

    def test_an_unknown_axis(self):
        with pytest.raises(UnknownName, match="unknown axis 'regoin'"):
            self.near("regoin", {}, {})
