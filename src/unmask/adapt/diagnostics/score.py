"""Score diagnostic: the mixture of rules that would have ranked positions best one step ago. `app:score_diagnostic`

Of two positions, the one whose prediction changed less when new context arrived was safer to reveal. So each pair of
positions is evidence for the rules that had ranked the safer one first. The mixture with the largest ratio of mean
evidence to its spread is proposed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from unmask.adapt.diagnostics.base import Diagnostic, Positive, Reading, abstain, masked_at_both_steps, require_part
from unmask.axes import SCORE, score
from unmask.core import Action, Noise, Trajectory


@dataclass(frozen=True)
class ScoreDiagnostic(Diagnostic):
    """Propose the mixture with the most ranking evidence. Signal: Psi of the proposed minus that of the given one."""

    name: ClassVar[str] = "score"
    axis: ClassVar[str] = SCORE.name
    cuda_graph: ClassVar[bool] = True
    pairs: Annotated[int, Field(ge=1, le=1 << 20)] = 256
    """Number of pairs of positions that are compared; all of them where there are fewer."""
    ridge: Positive = 1e-3
    """Ridge on the covariance, relative to the mean squared evidence of a rule; without it sigma may be singular."""

    def read(self, traj: Trajectory, action: Action) -> Reading:
        last = traj.last
        if last is None:
            return abstain(traj, action)
        delta_BL = require_part(traj.current_prediction.drift_BN, "drift")[:, : action.region_BL.shape[1]].double()
        # Without these parts of the last step two rules would silently drop out of its landscape.
        require_part(last.prediction.drift_BN, "drift of the last step")
        require_part(last.prediction.visible_BN, "visible attention of the last step")
        before_BLJ = score.landscape(last.prediction, action.region_BL.shape[1])

        both_BL = masked_at_both_steps(traj, last) & ~delta_BL.isnan()
        pair = draw_pairs(both_BL, traj.state.step_B, self.pairs)
        x_BPJ, usable_BP = signed_evidence(before_BLJ, delta_BL, pair)
        mu_BJ, sigma_BJJ = evidence_moments(x_BPJ, usable_BP, self.ridge)
        alpha_BJ = simplex_optimum(mu_BJ, sigma_BJJ)

        # NaN where no rule has positive evidence: there is no mixture to propose.
        abstains_B = alpha_BJ.isnan().any(-1)
        ingredients = {"mu_BJ": mu_BJ, "sigma_BJJ": sigma_BJJ, "alpha_BJ": alpha_BJ, "pairs_B": usable_BP.sum(-1)}
        proposed_BJ = torch.where(abstains_B[:, None], action.alpha_BJ.double(), alpha_BJ)
        return Reading(
            signal(ingredients, action.alpha_BJ),
            abstains_B,
            replace(action, alpha_BJ=proposed_BJ, rule=None),
            ingredients,
        )


def with_mixture(mixture: str, traj: Trajectory, action: Action) -> Action:
    """Return the action with the score diagnostic's mixture if `mixture` is "diagnosed", else as it is.

    Rows on which the score diagnostic abstains keep their own mixture.
    """
    return action if mixture == "reference" else ScoreDiagnostic().read(traj, action).action


@dataclass(frozen=True)
class Pairs:
    """P pairs (i, j) of canvas positions per row; `drawn_BP` is False behind the last pair of a row."""

    i_BP: Tensor
    j_BP: Tensor
    drawn_BP: Tensor


def psi(alpha_BJ: Tensor, mu_BJ: Tensor, sigma_BJJ: Tensor) -> Tensor:
    """Return Psi, the mean ranking evidence of a mixture divided by its standard deviation. `thm:score_aggregation`

    Psi does not change when alpha is scaled.
    """
    alpha_BJ, sigma_BJJ = alpha_BJ.double(), sigma_BJJ.double()
    evidence_B = (alpha_BJ * mu_BJ.double()).sum(-1)
    projected_BJ = (sigma_BJJ * alpha_BJ[..., None, :]).sum(-1)
    return evidence_B / (alpha_BJ * projected_BJ).sum(-1).sqrt()


def signal(ingredients: Mapping[str, Tensor], fixed_BJ: Tensor) -> Tensor:
    """Return the signal, from stored moments: Psi of the proposed mixture minus Psi of a fixed mixture."""
    mu_BJ, sigma_BJJ = ingredients["mu_BJ"], ingredients["sigma_BJJ"]
    return psi(ingredients["alpha_BJ"], mu_BJ, sigma_BJJ) - psi(fixed_BJ, mu_BJ, sigma_BJJ)


def draw_pairs(both_BL: Tensor, step_B: Tensor, pairs: int) -> Pairs:
    """Draw distinct pairs from each row's set; all n (n - 1) / 2 of them where that is at most `pairs`.

    The set is shuffled and written on a circle; then come all neighbours at distance 1, at distance 2, and so on. So
    no pair comes twice, each has the same chance, and each position stands in about as many pairs as any other. The
    shuffle is a hash of step and position, not the row's noise: a reading is a function of the trajectory alone, the
    same in every rollout.
    """
    B, L = both_BL.shape
    position_BL = torch.arange(L, device=both_BL.device).expand(B, L)
    key_BL = Noise(torch.zeros_like(step_B)).uniform(step_B, position_BL, "score/pairs")
    # 2 is above every key, so the members of the set come first.
    order_BL = torch.where(both_BL, key_BL, 2.0).argsort(-1)
    n_B1 = both_BL.sum(-1, keepdim=True)
    circle_B1 = n_B1.clamp(min=1)
    at_BP = torch.arange(pairs, device=both_BL.device).expand(B, pairs)
    first_BP = at_BP % circle_B1
    second_BP = (first_BP + at_BP // circle_B1 + 1) % circle_B1
    return Pairs(order_BL.gather(1, first_BP), order_BL.gather(1, second_BP), at_BP < n_B1 * (n_B1 - 1) // 2)


def signed_evidence(before_BLJ: Tensor, delta_BL: Tensor, pair: Pairs) -> tuple[Tensor, Tensor]:
    """Return evidence x = sign(delta_j - delta_i) (s(i) - s(j)) of each pair and rule, and which pairs count.

    Pairs with equal drift say nothing. `delta` is the drift KL(p_t || p_{t-1}), new posterior first.
    `eq:app_signed_evidence`
    """
    J = before_BLJ.shape[-1]
    moved_BP = delta_BL.gather(1, pair.j_BP) - delta_BL.gather(1, pair.i_BP)
    usable_BP = pair.drawn_BP & (moved_BP != 0)
    s_i_BPJ = before_BLJ.gather(1, pair.i_BP[..., None].expand(-1, -1, J))
    s_j_BPJ = before_BLJ.gather(1, pair.j_BP[..., None].expand(-1, -1, J))
    x_BPJ = moved_BP.sign()[..., None] * (s_i_BPJ - s_j_BPJ)
    return torch.where(usable_BP[..., None], x_BPJ, 0.0), usable_BP


def evidence_moments(x_BPJ: Tensor, usable_BP: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of the usable evidence; zero, apart from the ridge, on rows without any.

    The ridge is relative to the trace of the second moment, because the covariance of a single pair is 0 and Psi would
    be infinite. So Psi is at most sqrt(J / ridge). Sums over pairs are elementwise products, because a matrix product
    may round differently with the size of the batch.
    """
    J = x_BPJ.shape[-1]
    n_B1 = usable_BP.sum(-1, keepdim=True).clamp(min=1)
    mu_BJ = x_BPJ.sum(1) / n_B1
    apart_BPJ = torch.where(usable_BP[..., None], x_BPJ - mu_BJ[:, None], 0.0)
    cov_BJJ = (apart_BPJ[..., :, None] * apart_BPJ[..., None, :]).sum(1) / n_B1[..., None]
    square_B = cov_BJJ.diagonal(dim1=-2, dim2=-1).sum(-1) + mu_BJ.square().sum(-1)
    eye_JJ = torch.eye(J, dtype=x_BPJ.dtype, device=x_BPJ.device)
    # Without any evidence an identity stands in, so that nothing divides by zero.
    scale_B = torch.where(square_B > 0, ridge * square_B / J, 1.0)
    return mu_BJ, cov_BJJ + scale_B[:, None, None] * eye_JJ


def simplex_optimum(mu_BJ: Tensor, sigma_BJJ: Tensor) -> Tensor:
    """Return the exact maximiser of Psi on the simplex; NaN rows where no rule has positive evidence.

    All sets of rules are solved at once, without waiting for the device. On a set S the optimum is
    x = Sigma_S^-1 mu_S, with Psi^2 = mu_S' x. Among the sets where x is positive, the largest Psi meets the KKT
    conditions of `eq:app_score_qp`. The set of all rules is the closed form `eq:app_score_closed_form`.
    """
    J = mu_BJ.shape[-1]
    on_IJ = _rule_subsets(J, mu_BJ.dtype, mu_BJ.device)
    inside_IJJ = on_IJ[:, :, None] * on_IJ[:, None, :]
    # Rules outside a set get a row of the identity, so that the systems of all sets have one size.
    system_BIJJ = sigma_BJJ[:, None] * inside_IJJ + torch.diag_embed(1 - on_IJ)
    x_BIJ = _solve_systems(system_BIJJ, mu_BJ[:, None] * on_IJ)
    value_BI = (x_BIJ * mu_BJ[:, None]).sum(-1)
    feasible_BI = ((x_BIJ > 0) | (on_IJ == 0)).all(-1)
    # -inf leaves out sets with a negative weight, which are no mixtures.
    best_B1 = torch.where(feasible_BI, value_BI, -torch.inf).argmax(-1, keepdim=True)
    x_BJ = x_BIJ.gather(1, best_B1[..., None].expand(-1, -1, J))[:, 0]
    alpha_BJ = x_BJ / x_BJ.sum(-1, keepdim=True)
    return torch.where(feasible_BI.any(-1, keepdim=True), alpha_BJ, torch.nan)


@cache
def _rule_subsets(J: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return all non-empty sets of rules as a table of 0 and 1, kept on the device: a copy makes the host wait."""
    return torch.tensor([s for s in product((0.0, 1.0), repeat=J) if any(s)], dtype=dtype, device=device)


def _solve_systems(system_BIJJ: Tensor, rhs_BIJ: Tensor) -> Tensor:
    """Solve small positive definite systems by Gauss-Jordan elimination, which then needs no pivoting."""
    table = torch.cat((system_BIJJ, rhs_BIJ[..., None]), -1)
    for j in range(rhs_BIJ.shape[-1]):
        row = table[..., j, :] / table[..., j, j, None]
        table = table - table[..., j, None] * row[..., None, :]
        table[..., j, :] = row
    return table[..., -1]
