"""The score diagnostic: pairs, evidence, and the exact optimum on the simplex."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from tests.helpers.cases import each_case
from tests.helpers.theorems.score import best_mixture
from unmask.adapt.diagnostics import ScoreDiagnostic
from unmask.adapt.diagnostics.score import (
    Pairs,
    draw_pairs,
    evidence_moments,
    psi,
    signal,
    signed_evidence,
    simplex_optimum,
)
from unmask.axes import score as rules
from unmask.core import SamplingParams


def instance(seed, J=5):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((J, J + 1))
    return rng.standard_normal(J) + 0.3, a @ a.T / J + 1e-2 * np.eye(J)


def slow_optimum(mu, sigma):
    """max Psi over the simplex with a generic optimiser, from many starts."""
    best = -np.inf
    for start in [*np.eye(len(mu)), np.full(len(mu), 1 / len(mu))]:
        found = minimize(
            lambda a: -(a @ mu) / np.sqrt(a @ sigma @ a),
            0.9 * start + 0.1 / len(mu),
            bounds=[(0, 1)] * len(mu),
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        best = max(best, -found.fun)
    return best


@each_case("seed", range(20))
def test_optimum_matches_a_generic_optimiser(seed):
    mu, sigma = instance(seed)
    mu_BJ, sigma_BJJ = torch.from_numpy(mu)[None], torch.from_numpy(sigma)[None]
    alpha_BJ = simplex_optimum(mu_BJ, sigma_BJJ)
    assert (alpha_BJ >= 0).all()
    assert alpha_BJ.sum() == pytest.approx(1)
    assert float(psi(alpha_BJ, mu_BJ, sigma_BJJ)) == pytest.approx(slow_optimum(mu, sigma), abs=1e-6)


def test_optimum_is_the_theorem_in_the_interior_on_faces_and_where_there_is_none():
    made = [instance(seed) for seed in range(300)]
    mu_BJ = torch.from_numpy(np.stack([m for m, _ in made]))
    sigma_BJJ = torch.from_numpy(np.stack([s for _, s in made]))
    mu_BJ[:20] = -mu_BJ[:20].abs()
    mu_BJ[20:40] = sigma_BJJ[20:40].sum(-1)  # equal weights: interior
    ours_BJ, theirs_BJ = simplex_optimum(mu_BJ, sigma_BJJ), best_mixture(mu_BJ, sigma_BJJ)
    torch.testing.assert_close(ours_BJ, theirs_BJ, equal_nan=True, rtol=1e-9, atol=1e-12)
    assert ours_BJ[:20].isnan().all()
    assert torch.allclose(ours_BJ[20:40], torch.full((20, 5), 0.2, dtype=torch.float64))
    assert (ours_BJ[40:] == 0).any(-1).sum() > 50  # boundary optima are among them


@each_case("n", [2, 3, 4, 5, 22, 23, 24, 25, 60])
def test_pairs_are_distinct_members_and_all_of_them_where_few(n):
    both_BL = torch.zeros(2, 64, dtype=torch.bool)
    both_BL[0, torch.randperm(64, generator=torch.Generator().manual_seed(n))[:n]] = True
    both_BL[1, 3] = True
    pair = draw_pairs(both_BL, torch.tensor([4, 4]), 256)
    drawn_P = pair.drawn_BP[0]
    found = {frozenset(p) for p in zip(pair.i_BP[0][drawn_P].tolist(), pair.j_BP[0][drawn_P].tolist(), strict=True)}
    assert len(found) == int(drawn_P.sum()) == min(256, n * (n - 1) // 2)
    assert all(len(p) == 2 for p in found)
    assert set().union(*found) <= set(both_BL[0].nonzero().flatten().tolist())
    assert not pair.drawn_BP[1].any()


def test_evidence_by_hand():
    before_BLJ = torch.tensor([[[0.9, 0.1], [0.2, 0.6], [0.5, 0.5]]], dtype=torch.float64)
    delta_BL = torch.tensor([[0.1, 0.4, 0.1]], dtype=torch.float64)
    pair = Pairs(torch.tensor([[0, 1, 0]]), torch.tensor([[1, 2, 2]]), torch.tensor([[True, True, True]]))
    x_BPJ, usable_BP = signed_evidence(before_BLJ, delta_BL, pair)
    assert usable_BP.tolist() == [[True, True, False]]  # equal drifts say nothing
    # 0 moved less than 1: a rule that ranked 0 above 1 was right.
    torch.testing.assert_close(x_BPJ, torch.tensor([[[0.7, -0.5], [0.3, -0.1], [0.0, 0.0]]], dtype=torch.float64))
    mu_BJ, sigma_BJJ = evidence_moments(x_BPJ, usable_BP, 0.01)
    x_PJ = x_BPJ[0, :2].numpy()
    torch.testing.assert_close(mu_BJ[0], torch.from_numpy(x_PJ.mean(0)))
    want = np.cov(x_PJ.T, bias=True) + 0.01 * (x_PJ**2).sum() / 2 / 2 * np.eye(2)
    torch.testing.assert_close(sigma_BJJ[0], torch.from_numpy(want))


def test_evidence_uses_the_drift_with_the_new_posterior_first(kit):
    """The labels come from KL(p_t || p_{t-1}); the other direction orders some pairs otherwise."""
    apart = 0.0
    for seed in range(6):
        denoiser, start = kit.exact_problem(seed=seed, dependence=6.0)
        traj, action = kit.states_of(denoiser, start, sampling=SamplingParams(temperature=1.0))[1]
        new_BNV, old_BNV = traj.current_prediction.posterior.to_dense(), traj.last.prediction.posterior.to_dense()
        before_BLJ = rules.score_all_rules(traj.last.prediction, start.tokens_BL.shape[1])
        pair = draw_pairs(traj.state.masked_BL, traj.state.step_B, 256)

        def mean(p_BNV, q_BNV, before_BLJ=before_BLJ, pair=pair):
            delta_BL = (p_BNV * (p_BNV / q_BNV).log()).sum(-1).nan_to_num(0.0)
            return evidence_moments(*signed_evidence(before_BLJ, delta_BL, pair), 1e-3)[0]

        got_BJ = ScoreDiagnostic().read(traj, action).ingredients["mu_BJ"]
        torch.testing.assert_close(got_BJ, mean(new_BNV, old_BNV))
        apart = max(apart, float((got_BJ - mean(old_BNV, new_BNV)).abs().max()))
    assert apart > 1e-3


def test_signal_can_be_taken_against_another_mixture(kit):
    denoiser, start = kit.exact_problem()
    traj, action = kit.states_of(denoiser, start)[1]
    reading = ScoreDiagnostic().read(traj, action)
    live_B = ~reading.abstains_B
    assert live_B.any()
    torch.testing.assert_close(signal(reading.ingredients, action.alpha_BJ), reading.signal_B, equal_nan=True)
    assert (signal(reading.ingredients, reading.action.alpha_BJ)[live_B].abs() < 1e-12).all()
    assert (reading.signal_B[live_B] >= -1e-12).all()  # nothing beats the optimum
    other_B = signal(reading.ingredients, rules.alpha_rows("certainty", traj.state))
    assert (other_B - reading.signal_B)[live_B].abs().max() > 1e-6
