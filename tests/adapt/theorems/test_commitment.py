"""Theorem `thm:commitment_regime` against a generic optimiser over the whole simplex."""

from math import log

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from scipy.special import softmax

from tests.helpers.cases import each_case
from tests.helpers.theorems import commitment

SEEDS = range(5)


def posterior(seed, vocab=4):
    """A distribution with a clear top token, in shuffled order."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(vocab)) + 0.02
    p[rng.integers(vocab)] += 0.3
    return p / p.sum()


def kl(p, q):
    return float((p * np.log(p / q)).sum())


def slow_flip(p, b, distance):
    """The least distance(q) over the simplex such that q_b >= q_a."""
    a = p.argmax()
    found = minimize(
        distance,
        0.5 * p + 0.5 / len(p),
        bounds=[(1e-9, 1)] * len(p),
        constraints=[
            {"type": "eq", "fun": lambda q: q.sum() - 1},
            {"type": "ineq", "fun": lambda q: q[b] - q[a]},
        ],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.fun


def slow_lead(p, b, rho):
    """max log(q_b / q_a) such that KL(p || q) <= rho, over q = softmax(z), where the problem is convex."""
    a = p.argmax()
    gradient = np.eye(len(p))[a] - np.eye(len(p))[b]
    found = minimize(
        lambda z: z @ gradient,
        np.log(p),
        jac=lambda z: gradient,
        constraints={
            "type": "ineq",
            "fun": lambda z: 1 - kl(p, softmax(z)) / rho,
            "jac": lambda z: (p - softmax(z)) / rho,
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    assert kl(p, softmax(found.x)) == pytest.approx(rho, rel=1e-6)
    return -found.fun


def leaders(p):
    top = np.sort(p)[::-1]
    return torch.tensor(top[0]), torch.tensor(top[1])


def radius(p):
    return commitment.flip_radius(*leaders(p)).item()


def value(p, rho):
    return commitment.revision_value(torch.tensor(p), rho).item()


@pytest.mark.parametrize("seed", SEEDS)
def test_flip_radius_is_the_nearest_distribution_that_overturns_the_top_token(seed):
    p = posterior(seed)
    a = p.argmax()
    by_token = {b: slow_flip(p, b, lambda q: kl(p, q)) for b in range(4) if b != a}
    for b, slow in by_token.items():
        pair = commitment.flip_radius(torch.tensor(p[a]), torch.tensor(p[b]))
        assert pair.item() == pytest.approx(slow, abs=1e-7)
    assert radius(p) == pytest.approx(min(by_token.values()), abs=1e-7)
    assert min(by_token, key=by_token.__getitem__) == np.argsort(p)[-2], "the runner-up is nearest"


def test_flip_radius_by_hand():
    gamma = commitment.flip_radius(torch.tensor(0.6), torch.tensor(0.2)).item()
    assert gamma == pytest.approx(0.6 * log(1.5) + 0.2 * log(0.5), rel=1e-6)


def test_flip_radius_at_its_limits():
    p1 = torch.tensor([0.5, 1.0, 0.3, 0.25], dtype=torch.float64)
    p2 = torch.tensor([0.5, 0.0, 0.0, 0.25], dtype=torch.float64)
    gamma = commitment.flip_radius(p1, p2)
    torch.testing.assert_close(gamma, torch.tensor([0.0, log(2), 0.3 * log(2), 0.0], dtype=torch.float64))
    assert gamma[0] == gamma[3] == 0


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_flip_radius_keeps_its_digits_near_a_tie(delta):
    """gamma = s (delta^2 / 2 + delta^4 / 12 + ...) in the relative margin delta."""
    p1, p2 = 0.4 * torch.tensor([1 + delta, 1 - delta], dtype=torch.float64)
    series = 0.8 * (delta**2 / 2 + delta**4 / 12)
    assert commitment.flip_radius(p1, p2).item() == pytest.approx(series, rel=1e-6, abs=0)


@each_case("factor", [1.05, 1.5, 4.0, 12.0])
@each_case("seed", SEEDS)
def test_revision_value_is_the_best_lead_any_token_can_take(seed, factor):
    p = posterior(seed)
    a, rho = p.argmax(), factor * radius(p)
    by_token = {b: slow_lead(p, b, rho) for b in range(4) if b != a}
    assert value(p, rho) == pytest.approx(max(by_token.values()), abs=2e-5)
    assert max(by_token, key=by_token.__getitem__) == np.argsort(p)[-2], "the runner-up leads at every radius"


@pytest.mark.parametrize("seed", SEEDS)
def test_revision_value_is_zero_exactly_up_to_the_flip_radius(seed):
    p = posterior(seed)
    gamma = radius(p)
    a = p.argmax()
    for rho in (0.0, 0.5 * gamma, gamma * (1 - 1e-9), gamma):
        assert value(p, rho) == 0
    for rho in (gamma * (1 + 1e-9), gamma * 1.01, gamma + 1):
        assert value(p, rho) > 0
    others = [b for b in range(4) if b != a]
    assert max(slow_lead(p, b, 0.99 * gamma) for b in others) < 0, "no token can take the lead yet"
    assert max(slow_lead(p, b, 1.01 * gamma) for b in others) > 0, "now one can"


@pytest.mark.parametrize("seed", SEEDS)
def test_switching_radius_is_the_end_of_the_commitment_regime(seed):
    """Against bisection on KL(p || q) itself: the supremum of radii at which V stays within beta."""
    p = posterior(seed)
    a, b = p.argmax(), np.argsort(p)[-2]
    for beta in (0.1, 1.0, 4.0):
        rho = commitment.switching_radius(torch.tensor(p), beta).item()
        assert value(p, 0.999 * rho) < beta < value(p, 1.001 * rho)

        def distance(share):
            q = p.copy()
            q[a], q[b] = (p[a] + p[b]) * (1 - share), (p[a] + p[b]) * share
            return kl(p, q), np.log(q[b] / q[a])

        share = brentq(lambda w, beta=beta: distance(w)[1] - beta, 0.01, 0.999, xtol=1e-15)
        assert rho == pytest.approx(distance(share)[0], rel=1e-9)
