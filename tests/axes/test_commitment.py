"""Commitment rules."""

from dataclasses import replace

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.axes import Commitment
from unmask.base.errors import ConfigError, UnknownName
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


def test_all_and_none():
    assert Commitment.parse("all")(STATE, seen()).tolist() == [[True] * 4] * 2
    assert Commitment.parse("none")(STATE, seen()).tolist() == [[False] * 4] * 2


def test_thresholds_include_their_value_and_are_cut_to_the_canvas():
    sure = [[False, True, False, False], [False, False, False, True]]
    assert Commitment.parse("confidence:0.9")(STATE, seen()).tolist() == sure
    clear = [[False, True, True, True], [False, False, True, True]]
    assert Commitment.parse("margin:0.5")(STATE, seen()).tolist() == clear
    assert Commitment.parse("confidence:0")(STATE, seen()).all()
    assert not Commitment.parse("confidence:1")(STATE, seen()).any()


def test_confidence_is_the_proposed_tokens_and_margin_the_posteriors():
    drawn = replace(seen(), confidence_BN=torch.full((2, 5), 0.01))
    assert not Commitment.parse("confidence:0.5")(STATE, drawn).any()
    assert Commitment.parse("margin:0.5")(STATE, drawn).any()


@pytest.mark.parametrize("text", ["all", "none", "confidence:0.9", "margin:0.5", "margin:0"])
def test_names_round_trip(text):
    assert str(Commitment.parse(text)) == text


@each_case(
    "text",
    ["all:1", "none:0", "confidence", "confidence:", "confidence:x", "confidence:1.1", "margin:-0.1", "margin:nan"],
)
def test_refusals(text):
    with pytest.raises(ConfigError) as caught:
        Commitment.parse(text)
    what, allowed, todo = str(caught.value).split("; ")
    assert repr(text) in what
    assert allowed.startswith("allowed: ")
    assert todo


def test_unknown_rules():
    with pytest.raises(UnknownName, match="unknown commitment 'confidnce'; did you mean confidence"):
        Commitment.parse("confidnce:0.9")
