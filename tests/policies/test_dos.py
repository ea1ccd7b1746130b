"""DOS-style: its worked example on two heads, the self-entry, sinks, and the empty prompt."""

import pytest
import torch

from tests.policies.worked import peaked, revealed
from unmask.core import Logits, Needs, Noise, State, View, Vocabulary
from unmask.decode import decode
from unmask.errors import ConfigError
from unmask.policies.check import check_policy
from unmask.policies.dos import DOS

VOCAB = 64
HEADS = [
    [[0.10, 0.20, 0.40, 0.20, 0.10], [0.35, 0.25, 0.10, 0.20, 0.10], [0.05, 0.15, 0.30, 0.20, 0.30]],
    [[0.20, 0.30, 0.30, 0.10, 0.10], [0.15, 0.45, 0.10, 0.20, 0.10], [0.10, 0.10, 0.35, 0.25, 0.20]],
]
CONFIDENCE = [0.5, 0.5, 0.95, 0.60, 0.90]


class Attentive:
    """Says the sheet's attention (mean over heads) and confidences."""

    vocabulary = Vocabulary(VOCAB, VOCAB)
    device = torch.device("cpu")

    def __call__(self, view: View, needs: Needs) -> Logits:
        rows = torch.tensor([peaked(CONFIDENCE[at]) for _, at in view.wanted_BN.nonzero().tolist()])
        mean = torch.tensor(HEADS).mean(0)
        attention = torch.cat((torch.full((2, 5), 0.2), mean))[None]
        return Logits(rows.double(), view.wanted_BN, attention_BNN=attention if needs.attention else None)


def start(given=2, steps=3):
    canvas = [*range(given), *[VOCAB] * (5 - given)]
    return State.from_canvases([canvas], steps=steps, mask_id=VOCAB)


def order(policy, steps=3):
    return revealed(decode(Attentive(), policy, start(steps=steps), noise=Noise.of([0])))


def test_worked_example():
    """s = .4, .6, .2: position 3 first, where confidence would have said 2; then .55 against .425."""
    assert order(DOS()) == [[3], [2], [4]]
    assert order(DOS(), steps=2) == [[2, 3], [4]]


def test_without_the_self_entry():
    assert order(DOS(drop_self=True)) == [[3], [2], [4]]


def test_sinks_are_left_out():
    """Token 1 gets .28 of the mean attention; without it s = .15, .25, .075, and the same order."""
    traj = decode(Attentive(), DOS(sinks=0.25), start(), noise=Noise.of([0]))
    assert revealed(traj) == [[3], [2], [4]]
    everything = decode(Attentive(), DOS(sinks=0.01), start(), noise=Noise.of([0]))
    # With every token a sink nothing is visible: confidence decides.
    assert revealed(everything)[0] == [2]


def test_the_budget_follows_the_attention_order():
    """Position 3 alone, then more as the budget allows."""
    assert order(DOS("eb", gamma=0.0))[0] == [3]
    assert order(DOS("eb", gamma=100.0)) == [[2, 3, 4]]


@pytest.mark.parametrize("policy", [DOS(), DOS("eb", gamma=1.0), DOS(drop_self=True, sinks=0.3)])
def test_contract(policy):
    check_policy(policy)


def test_a_model_without_attention_is_refused():
    class Blind(Attentive):
        def __call__(self, view, needs):
            return super().__call__(view, Needs())

    with pytest.raises(ConfigError, match="attention"):
        decode(Blind(), DOS(), start(), noise=Noise.of([0]))


def test_bad_settings():
    with pytest.raises(ConfigError, match=r"base is 'wino'; allowed: schedule or eb"):
        DOS("wino")
    with pytest.raises(ConfigError, match=r"sinks is 0; allowed: above 0"):
        DOS(sinks=0)
