"""Classifier-free guidance: the formula, its two forwards, and what it passes on."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from unmask.base.errors import ConfigError
from unmask.core import ModelInput, ModelOutput, Needs, Noise, State, Vocabulary
from unmask.engine import decode
from unmask.methods import fixed_action
from unmask.models import ExactDenoiser, GuidedDenoiser, JointDistribution

MASK = 3
EXACT = ExactDenoiser(JointDistribution.random(6, 3, dependence=2.0, seed=4))
STATE = State.from_prompts([[0, 1], [2]], new_tokens=[3, 4], steps=2, mask_id=MASK)


@dataclass
class Spy:
    """Keeps the calls to the exact denoiser."""

    calls: list[tuple[ModelInput, Needs]] = field(default_factory=list)
    vocabulary: Vocabulary = EXACT.vocabulary

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self.calls.append((inputs, needs))
        return EXACT(inputs, needs)


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_logits_are_pushed_away_from_those_without_the_prompt(scale):
    """Only given tokens are hidden; attention and hidden rows come from the conditional forward."""
    spy, needs = Spy(), Needs(attention=True, hidden=True)
    inputs = ModelInput.of(replace(STATE, tokens_BL=STATE.tokens_BL.index_fill(1, torch.tensor([3]), 1)), Needs())
    got = GuidedDenoiser(spy, scale)(inputs, needs)
    (first, first_needs), (second, second_needs) = spy.calls
    assert first is inputs
    assert (first_needs, second_needs) == (needs, Needs())
    assert second.tokens_BN.tolist() == [[MASK, MASK, MASK, 1, MASK], [MASK, MASK, MASK, 1, MASK]]
    conditional, free = EXACT(first, needs), EXACT(second, Needs())
    z, u = conditional.logits_RV, free.logits_RV
    assert torch.equal(got.logits_RV, u + (scale + 1) * (z - u))
    assert not torch.equal(got.logits_RV, z)
    assert torch.equal(got.attention_BNN, conditional.attention_BNN)
    assert torch.equal(got.hidden_RH, conditional.hidden_RH)


def test_a_run_pays_for_every_forward():
    guided, plain = (
        decode(d, fixed_action(), STATE, noise=Noise.of([0, 1])) for d in (GuidedDenoiser(EXACT, 1.0), EXACT)
    )
    assert (guided.forwards_B.tolist(), plain.forwards_B.tolist()) == ([4, 4], [2, 2])
    assert guided.processed_B.tolist() == (2 * plain.processed_B).tolist()
    twice = GuidedDenoiser(GuidedDenoiser(EXACT, 1.0), 1.0)
    assert twice(ModelInput.of(STATE, Needs()), Needs()).forwards == 4


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_scales_are_refused(scale):
    with pytest.raises(ConfigError, match=f"cfg_scale is {scale}; allowed: above 0, finite; 0 means no guidance"):
        GuidedDenoiser(EXACT, scale)
