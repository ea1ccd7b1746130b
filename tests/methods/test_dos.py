"""DOS-style: sinks, the budget along attention, and a model without."""

from dataclasses import replace

import pytest

from tests.methods.worked import VOCAB, revealed
from unmask.base.errors import ConfigError
from unmask.core import Noise, State
from unmask.engine import decode
from unmask.methods.check import check_policy
from unmask.methods.dos import DOS
from unmask.methods.examples import load_cases, scripted_model

SCRIPT = load_cases("dos")[0].script


def attentive():
    """Says the sheet's attention (mean over heads) and confidences."""
    return scripted_model(SCRIPT)


def start(given=2, steps=3):
    canvas = [*range(given), *[VOCAB] * (5 - given)]
    return State.from_canvases([canvas], steps=steps, mask_id=VOCAB)


def order(policy, steps=3):
    return revealed(decode(attentive(), policy, start(steps=steps), noise=Noise.of([0])))


def test_sinks_are_left_out():
    """Token 1 gets .28 of the mean attention; without it s = .15, .25, .075, and the same order."""
    traj = decode(attentive(), DOS(sinks=0.25), start(), noise=Noise.of([0]))
    assert revealed(traj) == [[3], [2], [4]]
    everything = decode(attentive(), DOS(sinks=0.01), start(), noise=Noise.of([0]))
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
    blind = replace(attentive(), attention=None)
    with pytest.raises(ConfigError, match="attention"):
        decode(blind, DOS(), start(), noise=Noise.of([0]))
