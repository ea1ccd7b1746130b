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
VIEW = ModelInput.of(STATE, Needs())


@dataclass
class Spy:
    """Records what it is asked; delegates the answers."""

    asked: list[tuple[ModelInput, Needs]] = field(default_factory=list)
    forwards: int = 1

    @property
    def vocabulary(self) -> Vocabulary:
        return EXACT.vocabulary

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self.asked.append((inputs, needs))
        return replace(EXACT(inputs, needs), forwards=self.forwards)


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_formula(scale):
    hidden = replace(VIEW, tokens_BN=torch.full_like(VIEW.tokens_BN, MASK))
    z, u = EXACT(VIEW, Needs()).logits_RV, EXACT(hidden, Needs()).logits_RV
    got = GuidedDenoiser(EXACT, scale)(VIEW, Needs())
    assert torch.equal(got.logits_RV, u + (scale + 1) * (z - u))
    assert not torch.equal(got.logits_RV, z)
    assert torch.equal(got.wanted_BN, VIEW.wanted_BN)


def test_formula_by_hand():
    class Fake:
        vocabulary = Vocabulary(2, 2)

        def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
            value = [1.0, 3.0] if (inputs.tokens_BN == 0).any() else [2.0, -1.0]
            return ModelOutput(torch.tensor([value]), inputs.wanted_BN)

    inputs = ModelInput.of(State.from_prompts([[0]], new_tokens=1, steps=1, mask_id=2), Needs())
    # u + 3 (z - u) with w = 2: 2 + 3 (1 - 2), -1 + 3 (3 + 1).
    assert GuidedDenoiser(Fake(), 2.0)(inputs, Needs()).logits_RV.tolist() == [[-1.0, 11.0]]


def test_only_what_is_fixed_is_hidden_from_the_second_forward():
    spy = Spy()
    revealed = replace(STATE, tokens_BL=STATE.tokens_BL.clone().index_fill_(1, torch.tensor([3]), 1))
    inputs = ModelInput.of(revealed, Needs())
    GuidedDenoiser(spy, 1.0)(inputs, Needs(attention=True, hidden=True))
    (first, first_needs), (second, second_needs) = spy.asked
    assert first is inputs
    assert first_needs == Needs(attention=True, hidden=True)
    assert second_needs == Needs()
    assert second.tokens_BN.tolist() == [[MASK, MASK, MASK, 1, MASK], [MASK, MASK, MASK, 1, MASK]]
    assert torch.equal(second.wanted_BN, inputs.wanted_BN)
    assert torch.equal(second.position_BN, inputs.position_BN)


def test_extras_come_from_the_conditional_forward():
    needs = Needs(attention=True, hidden=True)
    got, plain = GuidedDenoiser(EXACT, 1.0)(VIEW, needs), EXACT(VIEW, needs)
    assert torch.equal(got.attention_BNN, plain.attention_BNN)
    assert torch.equal(got.hidden_RH, plain.hidden_RH)


def test_two_forwards_are_counted():
    assert GuidedDenoiser(EXACT, 1.0)(VIEW, Needs()).forwards == 2
    assert GuidedDenoiser(GuidedDenoiser(EXACT, 1.0), 1.0)(VIEW, Needs()).forwards == 4
    assert GuidedDenoiser(Spy(forwards=3), 1.0)(VIEW, Needs()).forwards == 6


def test_a_run_pays_twice():
    guided, plain = (
        decode(d, fixed_action(), STATE, noise=Noise.of([0, 1])) for d in (GuidedDenoiser(EXACT, 1.0), EXACT)
    )
    assert guided.forwards_B.tolist() == [4, 4]
    assert plain.forwards_B.tolist() == [2, 2]
    assert guided.processed_B.tolist() == (2 * plain.processed_B).tolist()


def test_the_vocabulary_is_the_denoisers():
    assert GuidedDenoiser(EXACT, 1.0).vocabulary == EXACT.vocabulary


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_refusals(scale):
    with pytest.raises(ConfigError, match=f"cfg_scale is {scale}; allowed: above 0, finite; 0 means no guidance"):
        GuidedDenoiser(EXACT, scale)
