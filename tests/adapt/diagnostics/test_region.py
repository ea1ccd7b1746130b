"""The region diagnostic: the transport radius by hand, the dynamic program against brute force."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from tests.helpers.cases import each_case
from tests.helpers.theorems.region import robust_value
from unmask.adapt.diagnostics import RegionDiagnostic
from unmask.adapt.diagnostics.region import best_region, transport_radius
from unmask.axes import k_min, reveal_count


def slow_region(score, places, nu, budget):
    """The best value and the lexicographically first best set, by trying all."""
    weight = [1 / (b - a) for a, b in pairwise(places)]
    best, chosen = -np.inf, None
    for chosen_at in combinations(range(len(places)), budget):
        r = torch.zeros(len(places))
        r[list(chosen_at)] = 1
        value = float(robust_value(score[places], r, nu, torch.tensor(weight, dtype=torch.float64)))
        if value > best + 1e-12:
            best, chosen = value, [places[i] for i in chosen_at]
    return best, chosen


def rows(places_list, length):
    open_BL = torch.zeros(len(places_list), length, dtype=torch.bool)
    for row, places in enumerate(places_list):
        open_BL[row, places] = True
    return open_BL


@each_case("ties", [False, True])
@each_case("m", range(1, 13))
def test_program_is_brute_force_for_every_budget(m, ties):
    """With ties, scores, drift and gaps are powers of two, so that equal sums are equal floats."""
    rng = np.random.default_rng(m + 100 * ties)
    steps = rng.choice([1, 2, 4] if ties else [1, 2, 3, 5], size=m)
    places = np.cumsum(steps).tolist()
    length = places[-1] + 3
    cases = []
    for nu in (0.0, 0.25, 1.0) if ties else (0.0, 0.07, 0.6):
        score = rng.integers(0, 4, length) / 4 if ties else rng.random(length)
        cases += [(torch.from_numpy(score).double(), nu, budget) for budget in range(1, m + 1)]
    problem = (
        torch.stack([score for score, _, _ in cases]),
        rows([places] * len(cases), length),
        torch.tensor([nu for _, nu, _ in cases], dtype=torch.float64),
        torch.tensor([budget for _, _, budget in cases]),
    )
    region_BL = best_region(*problem)
    for found_L, (score, nu, budget) in zip(region_BL, cases, strict=True):
        _, chosen = slow_region(score, places, nu, budget)
        assert found_L.nonzero().flatten().tolist() == chosen


def test_radius_of_landscapes_made_by_hand():
    both_BL = torch.tensor([[True, True, False, True, True], [True, False, False, False, True], [False] * 4 + [True]])
    before_BL = torch.zeros(3, 5, dtype=torch.float64)
    # Row 0: +0.3 moves from position 3 to position 0, across boundaries of gap 1 and 2. Row 1: gap 4.
    now_BL = torch.tensor(
        [[0.3, 0.0, 9.0, -0.3, 0.0], [0.5, 7.0, 7.0, 7.0, 0.1], [1.0, 1.0, 1.0, 1.0, 1.0]], dtype=torch.float64
    )
    nu_B = transport_radius(before_BL, now_BL, both_BL)
    assert nu_B[:2].tolist() == pytest.approx([0.3 * 2, 0.2 * 4])
    assert nu_B[2].isnan()  # one position has no boundary
    shifted_B = transport_radius(before_BL, now_BL + 0.4, both_BL)
    torch.testing.assert_close(shifted_B, nu_B, equal_nan=True)  # centred: a common rise is no drift
    torch.testing.assert_close(transport_radius(now_BL, before_BL, both_BL), nu_B, equal_nan=True)


def test_proposal_holds_its_budget_and_keeps_the_count(kit):
    denoiser, start = kit.exact_problem(n=9, steps=3, dependence=3.0)
    for traj, action in kit.states_of(denoiser, start)[1:]:
        reading = RegionDiagnostic().read(traj, action)
        for row in (~reading.abstains_B).nonzero().flatten().tolist():
            region_L = reading.action.region_BL[row]
            m = int(traj.state.masked_BL[row].sum())
            least = int(k_min(traj.state)[row])
            assert int(region_L.sum()) == max(least, -(-m // 2))
            assert not (region_L & ~traj.state.masked_BL[row]).any()
            counts = [
                int(reveal_count(a.kappa_B, (a.region_BL & traj.state.masked_BL).sum(-1))[row])
                for a in (action, reading.action)
            ]
            assert counts[0] == counts[1]
            assert reading.action.alpha_BJ is action.alpha_BJ
            assert reading.action.commit_BL is action.commit_BL
