"""Which mixture of scoring rules ranks positions most reliably: `thm:score_aggregation`.

Everything is batched over leading dimensions (B, possibly none) and computed in float64. mu_BJ is the mean
signed ranking evidence of J rules, sigma_BJJ its covariance proxy, positive definite.
"""

from itertools import combinations

import torch
from torch import Tensor

from unmask.base.errors import require

MAX_RULES = 8
"""Above this, trying every support of the mixture (2^J - 1 of them) is no longer cheap."""


def misranking_bound(psi_B: Tensor) -> Tensor:
    """Chernoff bound exp(-Psi^2 / 2) on the chance that the mixture orders a pair wrongly.

    It says nothing where Psi <= 0, where misranking is the likely outcome; there the bound is 1.
    `eq:score_misranking_bound`
    """
    return torch.exp(-psi_B.double().clamp(min=0).square() / 2)


def robust_margin(alpha_BJ: Tensor, mu_BJ: Tensor, sigma_BJJ: Tensor, rho: Tensor | float) -> Tensor:
    """Worst expected margin when mu may move within the ellipsoid u' Sigma^-1 u <= rho^2.

    Psi is the radius at which it reaches zero. `eq:app_score_robust_margin`
    """
    rho_B = torch.as_tensor(rho, dtype=torch.float64, device=mu_BJ.device)
    require(bool((rho_B >= 0).all()), "rho", rho, ">= 0", "pass the radius, not its negative")
    return _dot(alpha_BJ, mu_BJ) - rho_B * _spread(alpha_BJ, sigma_BJJ)


def closed_form(mu_BJ: Tensor, sigma_BJJ: Tensor) -> Tensor:
    """The best mixture Sigma^-1 mu, scaled to sum to 1, where it is entrywise positive; NaN rows elsewhere.

    With a non-positive entry the formula is no mixture at all: `best_mixture` covers those rows.
    `eq:score_closed_form`
    """
    direction_BJ = _solve(sigma_BJJ, mu_BJ)
    interior_B1 = (direction_BJ > 0).all(-1, keepdim=True)
    return (direction_BJ / direction_BJ.sum(-1, keepdim=True)).where(interior_B1, torch.nan)


def best_mixture(mu_BJ: Tensor, sigma_BJJ: Tensor) -> Tensor:
    """The exact maximiser of Psi on the simplex; NaN rows where no rule has positive evidence.

    Rows without an interior optimum have it on a face, so their supports are enumerated (`eq:app_score_qp`).
    With mu <= 0 no mixture is better than chance, and Psi would even reward uncertainty.
    """
    J = mu_BJ.shape[-1]
    require(1 <= J <= MAX_RULES, "the number of rules J", J, f"1..{MAX_RULES}", "drop redundant rules first")
    alpha_BJ = closed_form(mu_BJ, sigma_BJJ)
    on_face_B = alpha_BJ.isnan().any(-1)
    if not on_face_B.any():
        return alpha_BJ
    mu_UJ = mu_BJ.double().expand(alpha_BJ.shape)[on_face_B]
    sigma_UJJ = sigma_BJJ.double().expand(*alpha_BJ.shape, J)[on_face_B]
    alpha_BJ[on_face_B] = _face_optimum(mu_UJ, sigma_UJJ)
    return alpha_BJ


def schur_increment(mu_BJ: Tensor, sigma_BJJ: Tensor, mu0_B: Tensor, c_BJ: Tensor, sigma0_sq_B: Tensor) -> Tensor:
    """Gain in the best squared Psi from adding one rule with evidence mu0, variance sigma0^2, covariances c.

    A rule helps by the evidence and the uncertainty that the others do not already explain. Exact while both
    optima are interior. Step 4 of `app:proof_score_aggregation`
    """
    weights_BJ = _solve(sigma_BJJ, c_BJ)
    evidence_B = mu0_B.double() - _dot(weights_BJ, mu_BJ)
    variance_B = sigma0_sq_B.double() - _dot(weights_BJ, c_BJ)
    least = float(variance_B.min())
    require(least > 0, "the smallest Schur complement", least, "> 0", "add a ridge to the full covariance")
    return evidence_B.square() / variance_B


def _face_optimum(mu_UJ: Tensor, sigma_UJJ: Tensor) -> Tensor:
    """Try the interior optimum of every face.

    On a face S, x = Sigma_S^-1 mu_S has Psi^2 = mu_S' x. The optimum is interior to exactly one face, where x
    is positive; the largest mu_S' x over faces with positive x therefore meets the KKT conditions, without a
    tolerance. If mu <= 0, no face has a positive x (mu_S' x = x' Sigma_S x > 0) and 0 / 0 leaves NaN.
    """
    U, J = mu_UJ.shape
    best_UJ = torch.zeros_like(mu_UJ)
    best_U = mu_UJ.new_full((U,), -torch.inf)
    for support in (list(s) for size in range(1, J + 1) for s in combinations(range(J), size)):
        on_support = _solve(sigma_UJJ[:, support][:, :, support], mu_UJ[:, support])
        value_U = _dot(mu_UJ[:, support], on_support).where((on_support > 0).all(-1), -torch.inf)
        x_UJ = torch.zeros_like(mu_UJ)
        x_UJ[:, support] = on_support
        better_U = value_U > best_U
        best_U = value_U.where(better_U, best_U)
        best_UJ = x_UJ.where(better_U[:, None], best_UJ)
    return best_UJ / best_UJ.sum(-1, keepdim=True)


def _dot(a_BJ: Tensor, b_BJ: Tensor) -> Tensor:
    return (a_BJ.double() * b_BJ.double()).sum(-1)


def _spread(alpha_BJ: Tensor, sigma_BJJ: Tensor) -> Tensor:
    """sqrt(alpha' Sigma alpha)."""
    projected_BJ = (sigma_BJJ.double() * alpha_BJ.double()[..., None, :]).sum(-1)
    return _dot(alpha_BJ, projected_BJ).sqrt()


def _solve(sigma_BJJ: Tensor, b_BJ: Tensor) -> Tensor:
    """Sigma^-1 b through Cholesky, which also finds out whether Sigma is positive definite."""
    factor_BJJ, info_B = torch.linalg.cholesky_ex(sigma_BJJ.double())
    bad = int((info_B != 0).sum())
    require(bad == 0, "the number of indefinite rows of sigma", bad, "0", "add a ridge to sigma")
    return torch.cholesky_solve(b_BJ.double()[..., None], factor_BJJ)[..., 0]
