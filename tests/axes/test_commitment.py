"""Commitment rules."""

import torch

from unmask.axes import Commitment
from unmask.core import Prediction, State, Statistics

STATE = State.from_prompts([[1], [1, 2]], new_tokens=[3, 2], steps=1, mask_id=9)


def seen() -> Prediction:
    """Two rows of four canvas slots and one extra slot, with exact binary probabilities."""
    p1 = torch.tensor([[0.0, 0.9, 0.89, 0.5, 1.0], [0.0, 0.0, 0.75, 0.95, 1.0]])
    p2 = torch.tensor([[0.0, 0.05, 0.05, 0.0, 0.0], [0.0, 0.0, 0.25, 0.05, 0.0]])
    statistics = Statistics(torch.zeros(2, 5, 2, dtype=torch.long), torch.stack((p1, p2), -1), p1 * 0)
    zero = p1.long() * 0
    return Prediction(
        wanted_BN=p1 >= 0,
        token_BN=zero,
        confidence_BN=p1,
        proposed_BN=p1,
        clean=statistics,
        filtered=statistics,
        logz_BN=p1 * 0,
        vocab=4,
        token_BND=zero[..., None],
        confidence_BND=p1[..., None],
    )


def test_thresholds_include_their_value_and_are_cut_to_the_canvas():
    assert Commitment.parse("all")(STATE, seen()).tolist() == [[True] * 4] * 2
    assert Commitment.parse("none")(STATE, seen()).tolist() == [[False] * 4] * 2
    sure = [[False, True, False, False], [False, False, False, True]]
    assert Commitment.parse("confidence:0.9")(STATE, seen()).tolist() == sure
    clear = [[False, True, True, True], [False, False, True, True]]
    assert Commitment.parse("margin:0.5")(STATE, seen()).tolist() == clear
    assert Commitment.parse("confidence:0")(STATE, seen()).all()
    assert not Commitment.parse("confidence:1")(STATE, seen()).any()
