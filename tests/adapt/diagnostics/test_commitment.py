"""The commitment diagnostic: displacement, pressure and context value, one position at a time."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from scipy.optimize import minimize_scalar

from unmask.adapt.diagnostics import CommitmentDiagnostic
from unmask.adapt.diagnostics.commitment import revision_radius
from unmask.core import SamplingParams
from unmask.engine import apply


def kl(p, q):
    return float((p * (p / q).log()).sum())


def slow_flip(p):
    """Least KL(p || q) over q that tie the two leading tokens: move mass t of the leaders, keep the others' ratios."""
    p1, p2 = p.sort(descending=True).values[:2].tolist()
    rest = 1 - p1 - p2

    def distance(mass):
        out = p1 * torch.log(torch.tensor(2 * p1 / mass)) + p2 * torch.log(torch.tensor(2 * p2 / mass))
        return float(out + (rest * torch.log(torch.tensor(rest / (1 - mass))) if rest > 1e-12 else 0.0))

    return minimize_scalar(distance, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-12}).fun


def slow_displacement(history, row, i, window):
    """`history` holds (trajectory, ...) of every step so far, newest last."""
    moves = []
    for (before, _), (after, _) in list(pairwise(history))[-window:]:
        if before.state.masked_BL[row, i] and after.state.masked_BL[row, i]:
            old, new = (
                before.current_prediction.posterior.to_dense()[row, i],
                after.current_prediction.posterior.to_dense()[row, i],
            )
            moves.append(kl(old, new))
    return max(moves, default=None)


@pytest.mark.parametrize("seed", [2, 3, 6])
def test_decision_is_value_against_pressure(kit, seed):
    denoiser, start = kit.exact_problem(seed=seed, n=9, rows=(0, 2, 1, 1), steps=5, dependence=5.0)
    # Drawn tokens surprise, so that posteriors move enough for some to be overturned.
    history = kit.states_of(denoiser, start, sampling=SamplingParams(temperature=1.0))
    overturned = 0
    for t in range(1, len(history)):
        traj, action = history[t]
        reading = CommitmentDiagnostic().read(traj, action)
        new_BL = apply(traj.state, traj.current_prediction, action).revealed_BL
        for row in range(traj.state.batch):
            excess = []
            for i in new_BL[row].nonzero().flatten().tolist():
                rho = slow_displacement(history[: t + 1], row, i, 4)
                p_V = traj.current_prediction.posterior.to_dense()[row, i]
                eta = max(0.0, rho - slow_flip(p_V))
                beta = 0.0
                for j in (traj.state.masked_BL[row] & ~new_BL[row]).nonzero().flatten().tolist():
                    last = traj.last
                    sources = last.revealed_BL[row].nonzero().flatten().tolist()
                    heard = sum(
                        float(last.prediction.clean.p_BNK[row, r, 0] * last.prediction.attention_BNN[row, j, r])
                        for r in sources
                    )
                    tau = kl(
                        traj.current_prediction.posterior.to_dense()[row, j],
                        last.prediction.posterior.to_dense()[row, j],
                    )
                    tau = tau / (1e-3 + heard)
                    beta += float(p_V.max()) * tau * float(traj.current_prediction.attention_BNN[row, j, i])
                assert float(reading.ingredients["eta_BL"][row, i]) == pytest.approx(eta, abs=1e-7)
                assert float(reading.ingredients["beta_BL"][row, i]) == pytest.approx(beta, rel=1e-9, abs=1e-12)
                if abs(beta - eta) > 1e-6:
                    assert bool(reading.action.commit_BL[row, i]) == (beta >= eta)
                overturned += eta > beta + 1e-6
                excess.append(eta - beta)
            assert float(reading.signal_B[row]) == pytest.approx(max(excess), abs=1e-7)
        assert reading.action.kappa_B is action.kappa_B
        assert reading.action.region_BL is action.region_BL
    assert overturned > 0


def test_displacement_has_the_old_posterior_first(kit):
    denoiser, start = kit.exact_problem(seed=1, n=8, steps=5, dependence=4.0)
    traj, _ = kit.states_of(denoiser, start)[1]
    rho_BL = revision_radius(traj, 4)
    torch.testing.assert_close(
        rho_BL[traj.state.masked_BL], traj.current_prediction.displacement_BN[traj.state.masked_BL]
    )
    new, old = traj.current_prediction.posterior.to_dense(), traj.last.prediction.posterior.to_dense()
    i = int(traj.state.masked_BL[0].nonzero()[0])
    assert float(rho_BL[0, i]) == pytest.approx(kl(old[0, i], new[0, i]))
    assert abs(float(rho_BL[0, i]) - kl(new[0, i], old[0, i])) > 1e-4


def test_displacement_is_the_largest_of_the_window_and_forgets_what_was_not_masked(kit):
    denoiser, start = kit.exact_problem(seed=2, n=9, steps=8, dependence=4.0)
    history = kit.states_of(denoiser, start)
    traj, _ = history[6]
    for window in (1, 2, 4):
        rho_BL = revision_radius(traj, window)
        for row, i in traj.state.masked_BL.nonzero().tolist():
            assert float(rho_BL[row, i]) == pytest.approx(slow_displacement(history[:7], row, i, window))
        assert rho_BL[~traj.state.masked_BL].isnan().all() or window > 1
    # A position that stood revealed one step ago has only the transitions before that.
    row, i = traj.state.masked_BL.nonzero()[0].tolist()
    state = traj.steps[-1].state
    shown = replace(state, tokens_BL=state.tokens_BL.index_put((torch.tensor(row), torch.tensor(i)), torch.tensor(0)))
    steps = (*traj.steps[:-1], replace(traj.steps[-1], state=shown))
    assert revision_radius(replace(traj, steps=steps), 1)[row, i].isnan()
    assert revision_radius(replace(traj, steps=steps), 2)[row, i].isnan()
    want = max(float(s.prediction.displacement_BN[row, i]) for s in traj.steps[-3:-1])
    assert float(revision_radius(replace(traj, steps=steps), 4)[row, i]) == pytest.approx(want)
