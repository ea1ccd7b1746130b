"""Theorem `thm:strategy_reversal` as identities on random utility tables."""

import numpy as np
import pytest

from tests.helpers.cases import each_case
from unmask.stats import adaptation_gap, frequency_margin, opportunity, pairwise_adaptation_gap, reversal_lower_bound

SEEDS = range(8)


def table(seed, actions=4):
    """Utilities in [0, 1] on a coarse grid, so that ties and states without an opportunity occur."""
    return np.random.default_rng(seed).integers(0, 6, (40, actions)) / 5


def test_by_hand():
    q_SA = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 0.8], [0.6, 0.6]])
    np.testing.assert_allclose(opportunity(q_SA), [0, 0, 0.8, 0])
    np.testing.assert_allclose(opportunity(q_SA, 1), [1, 0.5, 0, 0])
    assert adaptation_gap(q_SA) == pytest.approx(0.2)
    assert frequency_margin(opportunity(q_SA)) == (0.25, pytest.approx(0.8))
    assert pairwise_adaptation_gap(q_SA[:, 0] - q_SA[:, 1]) == pytest.approx(0.2)
    assert reversal_lower_bound(q_SA, 1, 0.8) == pytest.approx(0.2)
    assert reversal_lower_bound(q_SA, 1, 0.81) == 0


@each_case("seed", SEEDS)
def test_gap_is_the_best_adaptive_minus_the_best_fixed_utility(seed):
    q_SA = table(seed)
    assert adaptation_gap(q_SA) == pytest.approx(q_SA.max(1).mean() - q_SA.mean(0).max(), abs=1e-12)
    assert adaptation_gap(q_SA) == min(adaptation_gap(q_SA, a) for a in range(4)) > 0


@each_case("seed", SEEDS)
def test_gap_is_frequency_times_margin(seed):
    q_SA = table(seed)
    fixed = q_SA.mean(0).argmax()
    reversal_S = q_SA.max(1) > q_SA[:, fixed]
    frequency, margin = frequency_margin(opportunity(q_SA))
    assert frequency == pytest.approx(reversal_S.mean())
    assert margin == pytest.approx(opportunity(q_SA)[reversal_S].mean())
    assert frequency * margin == pytest.approx(adaptation_gap(q_SA))


def test_no_reversal_means_no_gap_and_an_estimate_is_no_opportunity():
    assert frequency_margin([0.0, 0.0]) == (0.0, 0.0)
    with pytest.raises(ValueError, match="a true opportunity is >= 0"):
        frequency_margin([0.1, -0.1])


@each_case("seed", SEEDS)
def test_any_challenger_and_margin_bound_the_gap_from_below(seed):
    q_SA = table(seed)
    gap = adaptation_gap(q_SA)
    bounds = [reversal_lower_bound(q_SA, a, m) for a in range(4) for m in (0.2, 0.4, 0.6, 0.8, 1.0)]
    assert max(bounds) <= gap + 1e-12
    assert max(bounds) > 0.1 * gap


def test_the_lower_bound_is_tight_when_every_reversal_has_the_same_margin():
    q_SA = [[1.0, 0.0]] * 7 + [[0.0, 0.5]] * 3
    assert reversal_lower_bound(q_SA, 1, 0.5) == pytest.approx(adaptation_gap(q_SA)) == pytest.approx(0.15)


@each_case("shift", [-0.3, 0.0, 0.3])
@each_case("seed", SEEDS)
def test_pairwise_form_for_either_sign_of_the_mean(seed, shift):
    q_SA = table(seed, actions=2) + np.array([shift, 0.0])
    d_S = q_SA[:, 0] - q_SA[:, 1]
    assert pairwise_adaptation_gap(d_S) == pytest.approx(adaptation_gap(q_SA), abs=1e-12)
    assert pairwise_adaptation_gap(d_S) == pytest.approx(pairwise_adaptation_gap(-d_S), abs=1e-12)
    towards_winner = d_S if d_S.mean() >= 0 else -d_S
    loses = towards_winner < 0
    assert pairwise_adaptation_gap(d_S) == pytest.approx(loses.mean() * -towards_winner[loses].mean(), abs=1e-12)
