"""Theorem `thm:score_aggregation` against exact tails, explicit worst cases and a generic optimiser."""

import itertools
from math import exp

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import norm

from tests.helpers.cases import each_case
from tests.helpers.theorems import score
from unmask.adapt.diagnostics.score import psi
from unmask.base.errors import ConfigError

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


def slow_psi(alpha, mu, sigma):
    return float(alpha @ mu / np.sqrt(alpha @ sigma @ alpha))


def optimised(mu, sigma):
    """Largest Psi on the simplex that a generic optimiser finds from every corner and the centre."""
    J = len(mu)
    best = -np.inf
    for start in [*np.eye(J), np.full(J, 1 / J)]:
        found = minimize(
            lambda a: -slow_psi(a, mu, sigma),
            0.9 * start + 0.1 / J,
            bounds=[(0, 1)] * J,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        best = max(best, -found.fun)
    return best


def test_psi_by_hand():
    mu, sigma = torch.tensor([3.0, 1.0]), torch.tensor([[4.0, 1.0], [1.0, 2.0]])
    assert psi(torch.tensor([1.0, 0.0]), mu, sigma).item() == 1.5
    assert psi(torch.tensor([0.5, 0.5]), mu, sigma).item() == pytest.approx(2 / 2**0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_psi_does_not_depend_on_the_scale_of_alpha_but_on_that_of_mu(seed):
    mu, sigma = instance(seed)
    alpha = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    reference = psi(alpha, mu, sigma)
    torch.testing.assert_close(psi(17.0 * alpha, mu, sigma), reference)
    torch.testing.assert_close(psi(alpha, 3 * mu, sigma), 3 * reference)
    torch.testing.assert_close(psi(alpha, mu, 4 * sigma), reference / 2)
    assert reference.item() == pytest.approx(slow_psi(alpha.numpy(), mu.numpy(), sigma.numpy()))


@pytest.mark.parametrize("value", [0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_bound_is_the_best_chernoff_bound_and_lies_above_the_gaussian_tail(value):
    bound = score.misranking_bound(torch.tensor(value)).item()
    signal, spread = 2.0 * value, 2.0
    chernoff = minimize_scalar(lambda lam: -lam * signal + lam**2 * spread**2 / 2)
    assert bound == pytest.approx(exp(chernoff.fun), rel=1e-6)
    assert norm.cdf(-value) <= bound
    assert bound <= (1 + value) * 4 * norm.cdf(-value), "too loose to be this bound"


@pytest.mark.parametrize("seed", SEEDS)
def test_gaussian_misranking_by_simulation(seed):
    mu, sigma = instance(seed, J=3, kind="inside")
    alpha = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(mu.numpy(), sigma.numpy(), size=100_000)
    wrong = (x @ alpha.numpy() <= 0).mean()
    ratio = psi(alpha, mu, sigma)
    assert wrong == pytest.approx(norm.cdf(-ratio.item()), abs=0.006)
    assert wrong <= score.misranking_bound(ratio).item()


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


def test_bound_promises_nothing_for_evidence_against_the_mixture():
    bound = score.misranking_bound(torch.tensor([-4.0, -0.1, 0.0]))
    assert bound.tolist() == [1.0, 1.0, 1.0]


@each_case("rho", [0.0, 0.3, 2.0])
@each_case("seed", SEEDS)
def test_robust_margin_is_the_worst_case_over_the_ellipsoid(seed, rho):
    mu, sigma = instance(seed, J=3)
    alpha = np.random.default_rng(seed).random(3)
    precision = np.linalg.inv(sigma.numpy())
    worst = minimize(
        lambda u: alpha @ (mu.numpy() + u),
        -1e-3 * np.ones(3),
        constraints={"type": "ineq", "fun": lambda u: rho**2 - u @ precision @ u},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    margin = score.robust_margin(torch.tensor(alpha), mu, sigma, rho).item()
    assert margin == pytest.approx(worst.fun, abs=1e-4)
    assert margin <= worst.fun + 1e-4


@pytest.mark.parametrize("seed", SEEDS)
def test_psi_is_the_radius_at_which_the_robust_margin_vanishes(seed):
    mu, sigma = instance(seed, kind="inside")
    alpha = torch.full((4,), 0.25, dtype=torch.float64)
    radius = psi(alpha, mu, sigma)
    assert score.robust_margin(alpha, mu, sigma, radius).item() == pytest.approx(0, abs=1e-12)
    assert score.robust_margin(alpha, mu, sigma, 0.99 * radius) > 0
    assert score.robust_margin(alpha, mu, sigma, 1.01 * radius) < 0


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


def test_closed_form_discounts_redundancy():
    """Two copies of one rule share the weight that one of them would get."""
    mu = torch.tensor([1.0, 1.0, 1.0])
    sigma = torch.tensor([[1.0, 0.999, 0.0], [0.999, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    alpha = score.closed_form(mu, sigma)
    torch.testing.assert_close(alpha, torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64), atol=1e-3, rtol=0)


def test_closed_form_is_nan_where_it_is_no_mixture():
    mu = torch.tensor([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    alpha = score.closed_form(mu, torch.eye(2))
    assert alpha[0].isnan().all()
    assert alpha[1].tolist() == [0.5, 0.5]
    assert alpha[2].isnan().all(), "negative evidence everywhere must not turn into a mixture"


@each_case("kind", ["inside", "face", "border", "any"])
@each_case("seed", SEEDS)
def test_best_mixture_matches_a_generic_optimiser(seed, kind):
    mu, sigma = instance(seed, kind=kind)
    alpha = score.best_mixture(mu, sigma)
    assert (alpha >= 0).all()
    assert alpha.sum().item() == pytest.approx(1)
    reached = psi(alpha, mu, sigma).item()
    best = optimised(mu.numpy(), sigma.numpy())
    assert reached >= best - 1e-12
    assert reached == pytest.approx(best, abs=1e-6)


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


def test_best_mixture_on_a_face_by_hand():
    """The second rule is a noisier echo of the first: Sigma^-1 mu gives it a negative weight."""
    mu = torch.tensor([1.0, 0.5, 0.8])
    sigma = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    alpha = score.best_mixture(mu, sigma)
    torch.testing.assert_close(alpha, torch.tensor([1.0, 0.0, 0.8], dtype=torch.float64) / 1.8)
    naive = torch.linalg.solve(sigma, mu).clamp(min=0)
    assert psi(naive / naive.sum(), mu, sigma) < psi(alpha, mu, sigma)


def test_a_rule_without_evidence_still_helps_by_cancelling_noise():
    mu, sigma = torch.tensor([1.0, -0.1]), torch.tensor([[1.0, -0.9], [-0.9, 1.0]])
    alpha = score.best_mixture(mu, sigma)
    assert alpha[1] > 0.3
    assert psi(alpha, mu, sigma) > psi(torch.tensor([1.0, 0.0]), mu, sigma)


def test_no_positive_evidence_gives_nan_rows_only():
    mu = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [-2.0, 0.3]])
    alpha = score.best_mixture(mu, torch.eye(2))
    assert alpha[:2].isnan().all()
    assert alpha[2].tolist() == [0.0, 1.0]


def test_batches_equal_single_rows_and_inputs_are_left_alone():
    kinds = ["inside", "face", "border", "any"]
    rows = [instance(seed, kind=kinds[seed % 4]) for seed in range(12)]
    mu = torch.stack([m for m, _ in rows]).reshape(3, 4, 4)
    sigma = torch.stack([s for _, s in rows]).reshape(3, 4, 4, 4)
    before = mu.clone(), sigma.clone()
    alpha = score.best_mixture(mu, sigma)
    assert alpha.shape == (3, 4, 4)
    for k, (m, s) in enumerate(rows):
        assert torch.equal(alpha.reshape(12, 4)[k], score.best_mixture(m, s))
    assert torch.equal(mu, before[0])
    assert torch.equal(sigma, before[1])
    assert psi(alpha, mu, sigma).shape == (3, 4)
    assert score.robust_margin(alpha, mu, sigma, torch.ones(3, 1)).shape == (3, 4)


def test_one_covariance_serves_many_rows_in_double_precision():
    mu = torch.tensor([[1.0, 2.0], [2.0, -1.0]])
    alpha = score.best_mixture(mu, torch.eye(2))
    assert alpha.dtype == torch.float64
    assert alpha.tolist() == [[pytest.approx(1 / 3), pytest.approx(2 / 3)], [1.0, 0.0]]


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


@pytest.mark.parametrize("seed", SEEDS)
def test_schur_increment_is_the_gain_of_the_best_mixture_when_both_are_interior(seed):
    rng = np.random.default_rng(seed)
    sigma = torch.tensor(0.1 * covariance(rng, 5) + np.eye(5))
    mu = torch.tensor(1 + 0.1 * rng.random(5))
    before, after = score.closed_form(mu[:4], sigma[:4, :4]), score.closed_form(mu, sigma)
    assert not before.isnan().any()
    assert not after.isnan().any()
    gain = psi(after, mu, sigma) ** 2 - psi(before, mu[:4], sigma[:4, :4]) ** 2
    increment = score.schur_increment(mu[:4], sigma[:4, :4], mu[4], sigma[:4, 4], sigma[4, 4])
    torch.testing.assert_close(increment, gain)


def test_an_echo_adds_nothing():
    mu, sigma = instance(0, J=3)
    echo = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    c = sigma @ echo
    gain = score.schur_increment(mu, sigma, mu @ echo, c, c @ echo + 0.1)
    assert gain.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: score.best_mixture(torch.ones(9), torch.eye(9)), "J is 9"),
        (lambda: score.best_mixture(torch.ones(2), torch.ones(2, 2)), "ridge"),
        (lambda: score.closed_form(torch.ones(2), -torch.eye(2)), "ridge"),
        (lambda: score.robust_margin(torch.ones(2), torch.ones(2), torch.eye(2), -1.0), "rho is -1.0"),
        (
            lambda: score.schur_increment(
                torch.ones(2), torch.eye(2), torch.tensor(1.0), torch.ones(2), torch.tensor(2.0)
            ),
            "Schur",
        ),
    ],
)
def test_bad_settings_are_named(call, named):
    with pytest.raises(ConfigError, match=named):
        call()
