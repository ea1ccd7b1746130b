"""Theorem `thm:region_regime` against explicit worst cases and all regions of a small chain."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from tests.helpers.cases import each_case
from tests.helpers.theorems import region
from unmask.base.errors import ConfigError

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


def test_cut_by_hand():
    r = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]])
    assert region.cut(r).tolist() == [1, 3, 3, 0, 2]
    assert region.cut(r, torch.tensor([1.0, 10.0, 100.0])).tolist() == [10, 111, 111, 0, 101]
    assert region.cut(r.bool()).tolist() == [1, 3, 3, 0, 2]
    assert region.cut(torch.tensor([1])).item() == 0


def test_robust_value_by_hand():
    s, r = torch.tensor([5.0, 1.0, 3.0]), torch.tensor([1, 0, 1])
    assert region.robust_value(s, r, 0.5).item() == 8 - 0.5 * 2
    assert region.robust_value(s, r, 0.5, torch.tensor([1.0, 3.0])).item() == 8 - 0.5 * 4


@each_case("weighted", WEIGHTED)
@each_case("seed", SEEDS)
def test_transport_keeps_the_total_score(seed, weighted):
    """Columns of an incidence matrix sum to 0, so whatever is moved, the whole answer is worth the same."""
    s, weights = instance(seed, weighted)
    assert not incidence(weights).sum(0).any()
    drawn = np.random.default_rng(seed).uniform(-1, 1, (50, L - 1))
    moved = s.numpy() + drawn @ incidence(weights).T
    assert np.abs(moved - s.numpy()).max() > 0.1
    np.testing.assert_allclose(moved.sum(1), s.sum().item())
    for nu in (0.0, 0.4, 10.0):
        whole = region.robust_value(s, torch.ones(L, dtype=torch.bool), nu, weights)
        assert whole.item() == pytest.approx(s.sum().item())


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
def test_no_interior_redistribution_is_worse(seed, weighted):
    s, weights = instance(seed, weighted)
    nu = 0.7
    for r in REGIONS[::9]:
        found = linprog(incidence(weights).T @ r.double().numpy(), bounds=[(-nu, nu)] * (L - 1))
        worst = found.fun + (s * r).sum().item()
        assert region.robust_value(s, r, nu, weights).item() == pytest.approx(worst, abs=1e-9)


@each_case("weighted", WEIGHTED)
@each_case("seed", SEEDS)
def test_more_drift_never_means_more_cut(seed, weighted):
    s, weights = instance(seed, weighted)
    cuts = region.cut(REGIONS, weights)
    least, first = np.inf, None
    for nu in np.linspace(0, 2, 81):
        value = values(s, float(nu), weights)
        optimal = cuts[value >= value.max() - 1e-12]
        assert optimal.max() <= least + 1e-12
        least = optimal.min().item()
        first = least if first is None else first
    assert cuts[values(s, 1e4, weights).argmax()] == cuts.min()
    assert first > least, "the sweep never changed regime, so it tested nothing"


@each_case("weighted", WEIGHTED)
@each_case("seed", SEEDS)
def test_the_optimal_value_is_convex_and_linear_between_thresholds(seed, weighted):
    s, weights = instance(seed, weighted)

    def best(nu):
        return values(s, float(nu), weights).max().item()

    grid = np.array([best(nu) for nu in np.linspace(0, 2, 101)])
    assert (np.diff(grid, 2) >= -1e-12).all()
    assert (np.diff(grid) <= 1e-12).all()
    a, b = torch.combinations(torch.arange(len(REGIONS))).T
    switches = region.switching_threshold(s, REGIONS[a], REGIONS[b], weights)
    switches = switches[(switches > 0) & (switches < 2)].unique()
    edges = np.array([0.0, *switches.tolist(), 2.0])
    slopes = set()
    for left, right in itertools.pairwise(edges):
        assert best((left + right) / 2) == pytest.approx((best(left) + best(right)) / 2, abs=1e-12)
        if right - left > 1e-3:
            slopes.add(round((best(right) - best(left)) / (right - left), 6))
    cuts = region.cut(REGIONS, weights).tolist()
    assert all(min(abs(slope + c) for c in cuts) < 1e-5 for slope in slopes)
    assert len(slopes) > 1


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


def test_switching_threshold_by_hand():
    s = torch.tensor([1.0, 0.2, 0.8, 0.1])
    scattered, together = torch.tensor([1, 0, 1, 0]), torch.tensor([1, 1, 0, 0])
    assert region.switching_threshold(s, scattered, together).item() == pytest.approx((1.8 - 1.2) / (3 - 1))


def test_equal_cuts_have_no_threshold():
    s = torch.tensor([1.0, 0.0, 0.5])
    assert region.switching_threshold(s, torch.tensor([1, 0, 0]), torch.tensor([0, 0, 1])).isnan()
    assert region.switching_threshold(s, torch.tensor([1, 0, 0]), torch.tensor([1, 0, 0])).isnan()


def test_rows_have_their_own_drift_and_weights():
    s, _ = instance(0, False)
    weights = torch.rand(len(REGIONS), L - 1, generator=torch.Generator().manual_seed(0))
    nu = torch.rand(len(REGIONS), generator=torch.Generator().manual_seed(1))
    batched = region.robust_value(s, REGIONS, nu, weights)
    assert batched.dtype == torch.float64
    for k in range(0, len(REGIONS), 7):
        assert batched[k] == region.robust_value(s, REGIONS[k], nu[k], weights[k])


@pytest.mark.parametrize("nu", [-0.1, torch.tensor([0.1, -0.1])])
def test_negative_drift_is_refused(nu):
    with pytest.raises(ConfigError, match="nu is"):
        region.robust_value(torch.ones(2, 3), torch.ones(2, 3), nu)
