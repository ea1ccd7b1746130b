"""Theorem `thm:strategy_reversal` as identities on random utility tables."""

import numpy as np
import pytest

from tests.helpers.cases import each_case
from unmask.stats.reversal import (
    FrequencyMargin,
    adaptation_gap,
    best_fixed,
    frequency_margin,
    opportunity,
    pairwise_gap,
    reversal_lower_bound,
)

SEEDS = range(8)


def table(seed, states=40, actions=4):
    """Utilities in [0, 1] on a coarse grid, so that ties and states without an opportunity occur."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 6, (states, actions)) / 5, rng.random(states)


def pair(seed, shift):
    """Two actions, the first moved up by `shift`."""
    q_SA, w_S = table(seed, actions=2)
    return q_SA + np.array([shift, 0.0]), w_S


def test_by_hand():
    q_SA = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 0.8], [0.6, 0.6]])
    assert best_fixed(q_SA) == 0
    np.testing.assert_allclose(opportunity(q_SA, 0), [0, 0, 0.8, 0])
    np.testing.assert_allclose(opportunity(q_SA, 1), [1, 0.5, 0, 0])
    assert adaptation_gap(q_SA) == pytest.approx(0.2)
    parts = frequency_margin(opportunity(q_SA, 0))
    assert parts == FrequencyMargin(0.25, pytest.approx(0.8), pytest.approx(0.2))
    assert pairwise_gap(q_SA[:, 0] - q_SA[:, 1]) == pytest.approx(0.2)
    assert reversal_lower_bound(q_SA, 1, 0.8) == pytest.approx(0.2)
    assert reversal_lower_bound(q_SA, 1, 0.81) == 0


def test_the_first_of_tied_actions_is_fixed():
    assert best_fixed([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]) == 1


def test_weights_decide_which_action_is_fixed():
    q_SA = [[1.0, 0.0], [0.0, 1.0]]
    assert best_fixed(q_SA, [3, 1]) == 0
    assert best_fixed(q_SA, [1, 3]) == 1
    assert adaptation_gap(q_SA, weights_S=[1, 3]) == pytest.approx(0.25)
    assert adaptation_gap(q_SA, fixed=0, weights_S=[1, 3]) == pytest.approx(0.75)


@each_case("weighted", [False, True])
@each_case("seed", SEEDS)
def test_gap_is_the_best_adaptive_minus_the_best_fixed_utility(seed, weighted):
    q_SA, w_S = table(seed)
    weights = w_S if weighted else None
    adaptive = np.average(q_SA.max(1), weights=weights)
    fixed = np.average(q_SA, axis=0, weights=weights).max()
    assert adaptation_gap(q_SA, weights_S=weights) == pytest.approx(adaptive - fixed, abs=1e-12)
    gaps = [adaptation_gap(q_SA, fixed=a, weights_S=weights) for a in range(4)]
    assert adaptation_gap(q_SA, weights_S=weights) == min(gaps) > 0


@each_case("weighted", [False, True])
@each_case("seed", SEEDS)
def test_gap_is_frequency_times_margin(seed, weighted):
    q_SA, w_S = table(seed)
    weights = w_S if weighted else np.ones(len(q_SA))
    fixed = best_fixed(q_SA, weights)
    g_S = opportunity(q_SA, fixed)
    assert (g_S >= 0).all()
    reversal_S = q_SA.argmax(1) != fixed
    reversal_S &= q_SA.max(1) > q_SA[:, fixed]
    parts = frequency_margin(g_S, weights)
    assert parts.frequency == pytest.approx(weights[reversal_S].sum() / weights.sum())
    assert parts.margin == pytest.approx(np.average(g_S[reversal_S], weights=weights[reversal_S]))
    assert parts.gap == pytest.approx(adaptation_gap(q_SA, weights_S=weights))
    assert parts.frequency * parts.margin == pytest.approx(parts.gap)
    assert 0 < parts.frequency < 1


def test_no_reversal_means_no_gap():
    parts = frequency_margin([0.0, 0.0])
    assert parts == FrequencyMargin(0.0, 0.0, 0.0)


@each_case("seed", SEEDS)
def test_any_challenger_and_margin_bound_the_gap_from_below(seed):
    q_SA, w_S = table(seed)
    gap = adaptation_gap(q_SA, weights_S=w_S)
    fixed = best_fixed(q_SA, w_S)
    bounds = []
    for challenger in range(4):
        for margin in (0.2, 0.4, 0.6, 0.8, 1.0):
            wins = q_SA[:, challenger] - q_SA[:, fixed] >= margin
            bound = reversal_lower_bound(q_SA, challenger, margin, weights_S=w_S)
            assert bound == pytest.approx(margin * w_S[wins].sum() / w_S.sum())
            assert bound <= gap + 1e-12
            bounds.append(bound)
    assert max(bounds) > 0.1 * gap


def test_the_lower_bound_is_tight_when_every_reversal_has_the_same_margin():
    q_SA = [[1.0, 0.0]] * 7 + [[0.0, 0.5]] * 3
    assert reversal_lower_bound(q_SA, 1, 0.5) == pytest.approx(adaptation_gap(q_SA)) == pytest.approx(0.15)


@each_case("weighted", [False, True])
@each_case("shift", [-0.3, 0.0, 0.3])
@each_case("seed", SEEDS)
def test_pairwise_form_for_either_sign_of_the_mean(seed, shift, weighted):
    q_SA, w_S = pair(seed, shift)
    weights = w_S if weighted else np.ones(len(q_SA))
    d_S = q_SA[:, 0] - q_SA[:, 1]
    gap = pairwise_gap(d_S, weights)
    assert gap == pytest.approx(adaptation_gap(q_SA, weights_S=weights), abs=1e-12)
    assert gap == pytest.approx(pairwise_gap(-d_S, weights), abs=1e-12)

    towards_winner = d_S if np.average(d_S, weights=weights) >= 0 else -d_S
    loses = towards_winner < 0
    frequency = weights[loses].sum() / weights.sum()
    margin = np.average(-towards_winner[loses], weights=weights[loses])
    assert gap == pytest.approx(frequency * margin, abs=1e-12)


def test_both_signs_of_the_mean_were_tried():
    means = [np.diff(pair(seed, shift)[0]).mean() for seed in SEEDS for shift in (-0.3, 0.3)]
    assert min(means) < 0 < max(means)


def test_an_action_that_always_wins_leaves_no_gap():
    assert pairwise_gap([0.1, 0.0, 2.0]) == pytest.approx(0, abs=1e-15)
    assert pairwise_gap([-0.1, -3.0]) == pytest.approx(0, abs=1e-15)


@each_case(
    "call",
    [
        lambda: best_fixed(np.ones(3)),
        lambda: best_fixed(np.ones((0, 3))),
        lambda: best_fixed([[np.nan, 1.0]]),
        lambda: opportunity([[0.0, 1.0]], 2),
        lambda: opportunity([[0.0, 1.0]], -1),
        lambda: frequency_margin([0.1, -0.1]),
        lambda: frequency_margin([]),
        lambda: pairwise_gap([1.0], weights_S=[1.0, 2.0]),
        lambda: pairwise_gap([1.0, 2.0], weights_S=[1.0, -1.0]),
        lambda: pairwise_gap([1.0, 2.0], weights_S=[0.0, 0.0]),
        lambda: reversal_lower_bound([[0.0, 1.0]], 0, 0.0),
        lambda: reversal_lower_bound([[0.0, 1.0]], 5, 0.1),
    ],
)
def test_bad_tables_are_refused(call):
    with pytest.raises(ValueError, match=r"must be|pass|actions|opportunity"):
        call()
