"""Second readings of the paper's text: each changes what its name says, and nothing else, against sums by hand."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from unmask.adapt.diagnostics import DIAGNOSTICS, ScoreDiagnostic
from unmask.adapt.diagnostics.region import transport_radius
from unmask.axes import k_min, reveal_count
from unmask.axes import score as rules
from unmask.core import SamplingParams

CARDINALITY = [one for one in DIAGNOSTICS.values() if one.axis == "cardinality"]
REGION = [one for one in DIAGNOSTICS.values() if one.axis == "region"]


@pytest.fixture(scope="module")
def history(kit):
    """States of several problems, at two paces: with one position a step, and with two."""
    found = []
    for seed, steps in ((3, 7), (4, 8), (5, 4)):
        denoiser, start = kit.exact_problem(seed=seed, n=9, rows=(0, 2, 1), steps=steps, dependence=3.0)
        found += kit.states_of(denoiser, start, sampling=SamplingParams(temperature=1.0))[1:]
    return found


def scores(traj, action, mixture):
    """Of each position now and a step ago, under the action's mixture or the score diagnostic's."""
    alpha_BJ = action.alpha_BJ
    if mixture == "diagnosed":
        found = ScoreDiagnostic().read(traj, action)
        alpha_BJ = torch.where(found.abstains_B[:, None], alpha_BJ.double(), found.ingredients["alpha_BJ"])
    L = action.region_BL.shape[1]
    return [
        rules.mix(alpha_BJ, rules.score_all_rules(seen, L)) for seen in (traj.current_prediction, traj.last.prediction)
    ]


def brute_region(s_L, positions, nu, size):
    """The best set by trying all of them; of equal ones the first."""

    def worth(chosen):
        on = [i in chosen for i in positions]
        cut = sum((a != b) / (j - i) for a, b, i, j in zip(on, on[1:], positions, positions[1:], strict=False))
        return sum(float(s_L[i]) for i in chosen) - nu * cut

    return max(combinations(positions, size), key=lambda chosen: (round(worth(chosen), 9), [-i for i in chosen]))


def program(traj, action, row, mixture, size):
    """Region selection by brute force; None where no drift is known."""
    now_BL, before_BL = scores(traj, action, mixture)
    both_BL = traj.state.masked_BL & traj.last.state.masked_BL
    nu = float(transport_radius(before_BL, now_BL, both_BL)[row])
    positions = traj.state.masked_BL[row].nonzero().flatten().tolist()
    return None if np.isnan(nu) else brute_region(now_BL[row], positions, nu, size)


def transfers(traj, row, epsilon=1e-3):
    """D(i -> j) of one row, entry by entry."""
    last, L = traj.last, traj.state.tokens_BL.shape[1]
    D = np.zeros((L, L))
    for j in (traj.state.masked_BL & last.state.masked_BL)[row].nonzero().flatten().tolist():
        given = last.revealed_BL[row].nonzero().flatten().tolist()
        p, phi = last.prediction.clean.p_BNK[row, :, 0], last.prediction.attention_BNN[row]
        tau = float(traj.current_prediction.drift_BN[row, j]) / (epsilon + sum(float(p[r] * phi[j, r]) for r in given))
        for i in range(L):
            D[i, j] = (
                float(traj.current_prediction.clean.p_BNK[row, i, 0])
                * tau
                * float(traj.current_prediction.attention_BNN[row, j, i])
            )
    return D


def cut(D, chosen, others):
    return sum(D[i, j] for i in chosen for j in others)


@pytest.mark.parametrize("one", CARDINALITY, ids=lambda one: one.name)
def test_the_value_is_a_directed_cut_of_the_support(history, one):
    """V(k) = D(N_k -> R minus N_k) - D(N_kmin -> R minus N_kmin), with the support and order that the name says."""
    widened = 0
    for traj, action in history:
        reading = one.read(traj, action)
        m_B, least_B = traj.state.masked_BL.sum(-1), k_min(traj.state)
        now_BL, _ = scores(traj, action, one.mixture)
        for row in range(traj.state.batch):
            m, least = int(m_B[row]), int(least_B[row])
            size = {"region": m, "program": max(least, -(-m // 2)), "two-rounds": min(m, 2 * least)}[one.support]
            support = list(range(len(now_BL[row])))
            support = [i for i in support if traj.state.masked_BL[row, i]]
            if one.support != "region":
                support = program(traj, action, row, one.mixture, size)
            if support is None:
                assert reading.abstains_B[row]
                continue
            order = sorted(support, key=lambda i: (-float(now_BL[row, i]), i))
            D, got_K = transfers(traj, row), reading.ingredients["value_BK"][row]
            assert got_K.isfinite().nonzero().flatten().tolist() == list(range(least, size + 1))
            base = cut(D, order[:least], order[least:])
            want = {k: cut(D, order[:k], order[k:]) - base for k in range(least, size + 1)}
            for k, value in want.items():
                assert float(got_K[k]) == pytest.approx(value, rel=1e-6, abs=1e-9)
            if reading.abstains_B[row]:
                continue
            k = int(reading.ingredients["k_B"][row])
            assert want[k] == pytest.approx(max(want.values()), abs=1e-9)
            assert int(reveal_count(reading.action.kappa_B, m_B)[row]) == k
            widened += k > least
    assert widened


def test_with_equal_transfers_half_of_the_support_is_revealed():
    """Why proposals are large where the support is all that is masked."""
    D = np.ones((8, 8))
    order = list(range(8))
    values = [cut(D, order[:k], order[k:]) for k in range(9)]
    assert int(np.argmax(values)) == 4


def test_two_rounds_are_no_wider_than_needed_with_one_position_a_step(history):
    """The cut of both of two candidates is empty: V(2) = -D(1 -> 2)."""
    two_rounds, seen = DIAGNOSTICS["cardinality:two-rounds"], 0
    for traj, action in history:
        single_B = (k_min(traj.state) == 1) & ~two_rounds.read(traj, action).abstains_B
        assert two_rounds.read(traj, action).ingredients["k_B"][single_B].eq(1).all()
        seen += int(single_B.sum())
    assert seen


@pytest.mark.parametrize("one", REGION, ids=lambda one: one.name)
def test_regions_are_the_best_of_all_under_their_mixture(history, one):
    for traj, action in history:
        reading = one.read(traj, action)
        m_B, least_B = traj.state.masked_BL.sum(-1), k_min(traj.state)
        reference_B = reveal_count(action.kappa_B, m_B)
        for row in (~reading.abstains_B).nonzero().flatten().tolist():
            m, k = int(m_B[row]), int(reference_B[row])
            size = max(int(least_B[row]), -(-m // 2))
            best = program(traj, action, row, one.mixture, size)
            assert reading.action.region_BL[row].nonzero().flatten().tolist() == list(best)
            want = min(k, size) if one.holds == "count" else -(-k * size // m)
            assert int(reveal_count(reading.action.kappa_B[row], torch.tensor(size))) == want


def test_the_diagnosed_mixture_is_the_score_diagnostics(history):
    """As if the reference had that mixture already; where none is found, the reference's is kept."""
    for traj, action in history:
        mixed = replace(action, alpha_BJ=ScoreDiagnostic().read(traj, action).action.alpha_BJ)
        for plain, diagnosed in (("region", "region:diagnosed"), ("cardinality", "cardinality:diagnosed")):
            one, other = DIAGNOSTICS[plain].read(traj, mixed), DIAGNOSTICS[diagnosed].read(traj, action)
            assert torch.equal(one.signal_B.nan_to_num(-1), other.signal_B.nan_to_num(-1))
            assert torch.equal(one.action.region_BL, other.action.region_BL)
            assert torch.equal(one.action.kappa_B, other.action.kappa_B)
            assert other.action.alpha_BJ is action.alpha_BJ
