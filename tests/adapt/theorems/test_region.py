"""Theorem `thm:region_regime` against explicit worst cases and all regions of a small chain."""

import itertools

import numpy as np
import torch

from tests.helpers.cases import each_case
from tests.helpers.theorems import region

L, SIZE = 7, 3
REGIONS = torch.tensor([[i in chosen for i in range(L)] for chosen in itertools.combinations(range(L), SIZE)])
SEEDS = range(5)
WEIGHTED = [False, True]


def instance(seed, weighted):
    rng = np.random.default_rng(seed)
    weights = torch.tensor(rng.random(L - 1) + 0.1) if weighted else None
    return torch.tensor(rng.random(L)), weights


def incidence(weights):
    """Columns w_e (e_u - e_v); the orientation is arbitrary, so it alternates here."""
    columns = np.zeros((L, L - 1))
    for e in range(L - 1):
        sign = (-1) ** e
        columns[e, e], columns[e + 1, e] = sign, -sign
    return columns if weights is None else columns * weights.numpy()


def values(s, nu, weights):
    return region.robust_value(s, REGIONS, nu, weights)


def test_robust_value_by_hand():
    s, r = torch.tensor([5.0, 1.0, 3.0]), torch.tensor([1, 0, 1])
    assert region.robust_value(s, r, 0.5).item() == 8 - 0.5 * 2
    assert region.robust_value(s, r, 0.5, torch.tensor([1.0, 3.0])).item() == 8 - 0.5 * 4


@each_case("weighted", WEIGHTED)
@each_case("seed", SEEDS)
def test_robust_value_is_the_worst_corner_of_the_uncertainty_set(seed, weighted):
    s, weights = instance(seed, weighted)
    nu = 0.4
    xi = nu * np.array(list(itertools.product((-1, 1), repeat=L - 1)))
    shifted = s.numpy() + xi @ incidence(weights).T
    np.testing.assert_allclose(shifted.sum(1), s.sum().item())
    worst = (shifted @ REGIONS.double().numpy().T).min(0)
    np.testing.assert_allclose(values(s, nu, weights).numpy(), worst, atol=1e-12)
    assert values(s, nu, weights).argmax().item() == worst.argmax()


@each_case("weighted", WEIGHTED)
@each_case("seed", SEEDS)
def test_two_regions_trade_places_at_their_threshold(seed, weighted):
    s, weights = instance(seed, weighted)
    a, b = torch.combinations(torch.arange(len(REGIONS))).T
    r1, r2 = REGIONS[a], REGIONS[b]
    nu = region.switching_threshold(s, r1, r2, weights)
    torch.testing.assert_close(nu, region.switching_threshold(s, r2, r1, weights), equal_nan=True)
    usable = nu > 1e-6
    assert 20 < usable.sum() < len(nu)
    r1, r2, nu = r1[usable], r2[usable], nu[usable]
    gap = region.robust_value(s, r1, nu, weights) - region.robust_value(s, r2, nu, weights)
    assert gap.abs().max() < 1e-9
    before = region.robust_value(s, r1, 0.5 * nu, weights) - region.robust_value(s, r2, 0.5 * nu, weights)
    after = region.robust_value(s, r1, 2 * nu, weights) - region.robust_value(s, r2, 2 * nu, weights)
    fragmented = torch.sign(region.cut(r1, weights) - region.cut(r2, weights))
    assert (torch.sign(before) == fragmented).all(), "the more fragmented region leads while drift is small"
    assert (torch.sign(after) == -fragmented).all()
