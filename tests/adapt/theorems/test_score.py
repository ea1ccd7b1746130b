"""Theorem `thm:score_aggregation` against exact tails, explicit worst cases and a generic optimiser."""

import itertools
from math import exp

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from tests.helpers.cases import each_case
from tests.helpers.theorems import score
from unmask.adapt.diagnostics.score import psi

SEEDS = range(6)


def covariance(rng, J):
    factor = rng.standard_normal((J, J + 2))
    return factor @ factor.T / J + 0.05 * np.eye(J)


def instance(seed, J=4, kind="any"):
    """mu and Sigma with the optimum inside the simplex, on a face, on the border between, or anywhere."""
    rng = np.random.default_rng(seed)
    sigma = covariance(rng, J)
    weights = rng.random(J) + 0.1
    if kind == "border":
        weights[rng.integers(J)] = 0.0
    mu = sigma @ weights
    if kind == "face":
        mu[rng.integers(J)] -= 2.0
    if kind == "any":
        mu = rng.standard_normal(J)
        mu[rng.integers(J)] = 0.5
    return torch.tensor(mu), torch.tensor(sigma)


def test_psi_by_hand():
    mu, sigma = torch.tensor([3.0, 1.0]), torch.tensor([[4.0, 1.0], [1.0, 2.0]])
    assert psi(torch.tensor([1.0, 0.0]), mu, sigma).item() == 1.5
    assert psi(torch.tensor([0.5, 0.5]), mu, sigma).item() == pytest.approx(2 / 2**0.5)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_bound_is_the_best_chernoff_bound_and_lies_above_the_gaussian_tail(value):
    bound = score.misranking_bound(torch.tensor(value)).item()
    signal, spread = 2.0 * value, 2.0
    chernoff = minimize_scalar(lambda lam: -lam * signal + lam**2 * spread**2 / 2)
    assert bound == pytest.approx(exp(chernoff.fun), rel=1e-6)
    assert norm.cdf(-value) <= bound
    assert bound <= (1 + value) * 4 * norm.cdf(-value), "too loose to be this bound"


@pytest.mark.parametrize("seed", SEEDS)
def test_bound_holds_for_sign_noise_exactly(seed):
    """Sums of signs are sub-Gaussian with proxy A A', and their misranking probability can be counted."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((3, 8)) / 2
    signs = np.array(list(itertools.product((-1, 1), repeat=8)))
    mu, alpha = rng.random(3), rng.random(3)
    wrong = (mu @ alpha + signs @ mix.T @ alpha <= 0).mean()
    ratio = psi(torch.tensor(alpha), torch.tensor(mu), torch.tensor(mix @ mix.T))
    assert 0 < wrong <= score.misranking_bound(ratio).item() < 1


@each_case("J", [1, 2, 4, 5])
@each_case("seed", SEEDS)
def test_closed_form_reaches_the_certificate_and_beats_its_neighbours(seed, J):
    mu, sigma = instance(seed, J, kind="inside")
    alpha = score.closed_form(mu, sigma)
    assert alpha.sum().item() == pytest.approx(1)
    assert (alpha > 0).all()
    certificate = mu.numpy() @ np.linalg.inv(sigma.numpy()) @ mu.numpy()
    assert psi(alpha, mu, sigma).item() ** 2 == pytest.approx(certificate)
    nearby = alpha + 0.05 * torch.randn(200, J, generator=torch.Generator().manual_seed(seed))
    assert (psi(nearby, mu, sigma) <= psi(alpha, mu, sigma) + 1e-12).all()


@each_case("kind", ["inside", "face", "border", "any"])
@each_case("J", [2, 5, 8])
def test_best_mixture_meets_the_kkt_conditions(kind, J):
    """Of min a'Sa/2 - mu'a, a >= 0: the slope S a - mu is zero on the support and nowhere negative."""
    for seed in SEEDS:
        mu, sigma = instance(seed, J, kind)
        alpha = score.best_mixture(mu, sigma)
        scale = (alpha @ mu) / (alpha @ sigma @ alpha)
        slope = sigma @ (scale * alpha) - mu
        assert (slope >= -1e-9).all()
        assert slope[alpha > 1e-9].abs().max() < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_schur_increment_is_the_growth_of_the_certificate(seed):
    mu, sigma = instance(seed, J=5)
    small = mu[:4], sigma[:4, :4]
    grown = mu @ torch.linalg.solve(sigma, mu) - small[0] @ torch.linalg.solve(small[1], small[0])
    gain = score.schur_increment(*small, mu[4], sigma[:4, 4], sigma[4, 4])
    torch.testing.assert_close(gain, grown)
    assert gain > 0
    rows = (t.expand(3, *t.shape) for t in (*small, mu[4], sigma[:4, 4], sigma[4, 4]))
    batched = score.schur_increment(*rows)
    torch.testing.assert_close(batched, gain.expand(3))
