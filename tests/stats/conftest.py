"""Tables of states for the tests of detection."""

import numpy as np
import pytest

from unmask.stats.protocol import ProposedAction, ValidationSet

MARGINS = (0.1, 0.2, 0.3)


def states(kind=ValidationSet, *, q_SA, signal_S, gain_S=None, **columns):
    """States from a few columns: four equal rollouts, one prompt for each state, proposals by their gain on action 0.

    Where the gain is NaN the diagnostic abstains.
    """
    q_SA, signal_S = np.asarray(q_SA, float), np.asarray(signal_S, float)
    count, actions = q_SA.shape
    q_SR = np.repeat(
        q_SA[:, :1] + np.zeros(count)[:, None] + (0 if gain_S is None else np.array(gain_S)[:, None]), 4, 1
    )
    proposal = ProposedAction(q_SR, np.zeros((count, actions), bool))
    return kind(
        **{
            "prompt_S": np.arange(count) + (0 if kind is ValidationSet else 10_000),
            "place_S": np.zeros(count, int),
            "masked_S": np.full(count, 0.9),
            "q_SAR": np.repeat(q_SA[:, :, None], 4, 2),
            "signal_S": signal_S,
            "abstained_S": np.isnan(q_SR[:, 0]),
            "proposals": {"raw": proposal, "snapped": proposal},
            "candidates": tuple("abcdefgh"[:actions]),
            "reference": 0,
            **columns,
        }
    )


def world(kind, seed, *, prompts=60, information=1.5, skill=0.7, loss=0.02, rate=0.15, noise=0.0, silent=0.1):
    """Eight states a prompt and four actions, the first of which is best on average.

    With chance `rate`, which varies between prompts, another action is better by 0.1, 0.2 or 0.3. The signal is
    standard normal, and larger by `information` on those states. There the diagnostic's action gains as much with
    chance `skill`; else it gains 0.1, nothing or -0.1, less `loss`. `noise` moves each utility in each rollout. At a
    share of states it abstains.
    """
    rng = np.random.default_rng([seed, kind is ValidationSet])
    count = 8 * prompts
    ease_S = np.repeat(rng.uniform(0.4, 0.5, prompts), 8) + rng.uniform(-0.03, 0.03, count)
    q_SA = ease_S[:, None] - [0.0, 0.02, 0.05, 0.1]
    positive_S = rng.random(count) < np.repeat(rng.beta(4 * rate, 4 * (1 - rate), prompts), 8)
    margin_S, best_S = rng.choice(MARGINS, count), rng.integers(1, 4, count)
    q_SA[positive_S, best_S[positive_S]] = (ease_S + margin_S)[positive_S]
    signal_S = information * positive_S + rng.normal(size=count)
    right_S = positive_S & (rng.random(count) < skill)
    gain_S = np.where(right_S, margin_S, rng.choice([-0.1, 0.0, 0.0, 0.1], count) - loss)
    q_SAR = np.repeat(q_SA[:, :, None], 4, 2) + noise * rng.choice([-1.0, 1.0], (count, 4, 4))
    raw_SR = np.repeat((ease_S + gain_S)[:, None], 4, 1) + noise * rng.choice([-1.0, 1.0], (count, 4))
    # Snapping finds the right candidate or else the second one.
    snapped_S = np.where(right_S, best_S, 1)
    abstained_S = rng.random(count) < silent
    same_SA = (np.arange(4) == snapped_S[:, None]) & ~abstained_S[:, None]
    snapped_SR = np.where(abstained_S[:, None], np.nan, q_SAR[np.arange(count), snapped_S])
    return kind(
        prompt_S=np.char.add("v" if kind is ValidationSet else "h", np.repeat(np.arange(prompts), 8).astype(str)),
        place_S=np.tile(np.arange(8), prompts),
        masked_S=np.tile(1 - np.arange(8) / 8, prompts),
        q_SAR=q_SAR,
        signal_S=np.where(abstained_S, np.nan, signal_S),
        abstained_S=abstained_S,
        proposals={
            "raw": ProposedAction(np.where(abstained_S[:, None], np.nan, raw_SR), same_SA & right_S[:, None]),
            "snapped": ProposedAction(snapped_SR, same_SA),
        },
        candidates=("best", "second", "third", "fourth"),
        reference=0,
    )


@pytest.fixture(name="states")
def _states():
    return states


@pytest.fixture(name="world")
def _world():
    return world
