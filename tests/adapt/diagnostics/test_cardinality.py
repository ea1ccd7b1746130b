"""The cardinality diagnostic against its formulas, summed one by one."""

import numpy as np
import pytest
import torch

from unmask.adapt.diagnostics import CardinalityDiagnostic
from unmask.adapt.diagnostics.cardinality import context_balance, count_values
from unmask.axes import k_min, reveal_count
from unmask.axes import score as rules


def transfer(traj, row, epsilon, swapped=False):
    """D(i -> j) of one row, entry by entry."""
    last, L = traj.last, traj.state.tokens_BL.shape[1]
    new_NV, old_NV = traj.current_prediction.posterior.to_dense()[row], last.prediction.posterior.to_dense()[row]
    D = np.zeros((L, L))
    for j in range(L):
        if not (traj.state.masked_BL[row, j] and last.state.masked_BL[row, j]):
            continue
        p, q = (old_NV[j], new_NV[j]) if swapped else (new_NV[j], old_NV[j])
        delta = float((p * (p / q).log()).sum())
        supplied = sum(
            float(last.prediction.clean.p_BNK[row, r, 0] * last.prediction.attention_BNN[row, j, r])
            for r in last.revealed_BL[row].nonzero().flatten().tolist()
        )
        tau = delta / (epsilon + supplied)
        for i in range(L):
            D[i, j] = (
                float(traj.current_prediction.clean.p_BNK[row, i, 0])
                * tau
                * float(traj.current_prediction.attention_BNN[row, j, i])
            )
    return D


def slow_values(traj, action, row, epsilon, swapped=False):
    """V(k) for k from k_min to b by the sums of the appendix."""
    D = transfer(traj, row, epsilon, swapped)
    region = (action.region_BL & traj.state.masked_BL)[row].nonzero().flatten().tolist()
    s_L = rules.mix(action.alpha_BJ, rules.score_all_rules(traj.current_prediction, action.region_BL.shape[1]))[
        row
    ].tolist()
    order = sorted(region, key=lambda i: (-s_L[i], i))
    least = int(k_min(traj.state)[row])
    values, total = {least: 0.0}, 0.0
    for k in range(least, len(order)):
        x, batch = order[k], order[:k]
        gain = sum(D[x, j] for j in region if j not in batch and j != x)
        penalty = sum(D[r, x] for r in batch)
        total += gain - penalty
        values[k + 1] = total
    return values


@pytest.mark.parametrize("seed", range(4))
def test_value_is_the_sum_of_the_balances(kit, seed):
    denoiser, start = kit.exact_problem(seed=seed, n=8, steps=5, dependence=3.0)
    for traj, action in kit.states_of(denoiser, start)[1:]:
        reading = CardinalityDiagnostic().read(traj, action)
        for row in range(traj.state.batch):
            want = slow_values(traj, action, row, 1e-3)
            got_K = reading.ingredients["value_BK"][row]
            assert got_K.isfinite().nonzero().flatten().tolist() == sorted(want)
            for k, v in want.items():
                assert float(got_K[k]) == pytest.approx(v, rel=1e-9, abs=1e-12)
            best = max(want, key=lambda k: (want[k], -k))
            assert float(reading.signal_B[row]) == pytest.approx(want[best], abs=1e-12)
            assert int(reading.ingredients["k_B"][row]) == best
            n_B = (reading.action.region_BL & traj.state.masked_BL).sum(-1)
            assert int(reveal_count(reading.action.kappa_B, n_B)[row]) == best
        assert reading.action.region_BL is action.region_BL
        assert reading.action.alpha_BJ is action.alpha_BJ


def test_drift_has_the_new_posterior_first(kit):
    denoiser, start = kit.exact_problem(seed=1, n=8, steps=5, dependence=4.0)
    traj, action = kit.states_of(denoiser, start)[1]
    got_K = CardinalityDiagnostic().read(traj, action).ingredients["value_BK"][0]
    swapped = slow_values(traj, action, 0, 1e-3, swapped=True)
    assert max(abs(float(got_K[k]) - v) for k, v in swapped.items()) > 1e-3


def test_attention_is_read_from_query_to_key():
    """Two positions; only the second attends to the first. Revealing the first now helps, the second never."""
    phi_BLL = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]], dtype=torch.float64)  # query 1 reads key 0
    one_BL = torch.ones(1, 2, dtype=torch.float64)
    gamma_BL = context_balance(phi_BLL, one_BL, one_BL, torch.tensor([[0, 1]]))
    assert gamma_BL.tolist() == [[1.0, -1.0]]
    assert context_balance(phi_BLL, one_BL, one_BL, torch.tensor([[1, 0]])).tolist() == [[0.0, 0.0]]


def test_value_respects_horizon_and_region():
    gamma_BL = torch.tensor([[5.0, -1.0, 2.0, 9.0]], dtype=torch.float64)
    value_BK = count_values(gamma_BL, torch.tensor([1]), torch.tensor([3]))
    assert value_BK.tolist() == [[-torch.inf, 0.0, -1.0, 1.0, -torch.inf]]
