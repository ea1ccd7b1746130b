"""How far a prediction is from being overturned: `thm:commitment_regime`.

The ball of future posteriors is KL(p || q) <= rho with the current posterior p first, as displacement is
measured away from it. Leading dimensions are batched; everything is computed in float64.

The least KL(p || q) at which token b leads the top token a by log(q_b / q_a) = v >= 0 leaves q_a + q_b and
every other token as in p (the Lagrangian of the proof's Step 1, at ratio e^v instead of 1). It equals

    R_b(v) = gamma_b + (p_a + p_b) log cosh(v / 2) + (p_a - p_b) v / 2,

which grows with v and shrinks as p_b grows: the runner-up is the cheapest challenger at every v, not only at
the flip. So R is rho*(beta) in closed form, and V(rho) is its inverse.
"""

from math import log

import torch
from torch import Tensor

from unmask.adapt.diagnostics.commitment import flip_radius
from unmask.base.errors import require

NEWTON_STEPS = 48
"""Tied leaders at rho = gamma make a double root, where each step only halves the error: 2^-48 is ample."""


def switching_radius(p_BV: Tensor, beta: Tensor | float) -> Tensor:
    """rho*(beta): the largest posterior change up to which committing is worth context value beta.

    Step 4 of `app:proof_commitment_regime`
    """
    p1_B, p2_B = _leaders(p_BV)
    beta_B = _nonnegative("beta", beta, p1_B)
    return flip_radius(p1_B, p2_B) + _beyond_flip(p1_B, p2_B, beta_B)


def revision_value(p_BV: Tensor, rho: Tensor | float) -> Tensor:
    """V(rho) = max of log(max_y q_y / q_a) over KL(p || q) <= rho: the most that revising can gain.

    Inverts R by Newton's method. R is convex and the start lies right of the root, so no step overshoots.
    `thm:commitment_regime`
    """
    p1_B, p2_B = _leaders(p_BV)
    excess_B = (_nonnegative("rho", rho, p1_B) - flip_radius(p1_B, p2_B)).clamp(min=0)
    p1_B, p2_B, excess_B = torch.broadcast_tensors(p1_B, p2_B, excess_B)
    # From log cosh x >= x - log 2.
    v_B = (excess_B + (p1_B + p2_B) * log(2)) / p1_B
    for _ in range(NEWTON_STEPS):
        slope_B = ((p1_B + p2_B) * torch.tanh(v_B / 2) + p1_B - p2_B) / 2
        v_B = v_B - (_beyond_flip(p1_B, p2_B, v_B) - excess_B) / slope_B
    return v_B.where(excess_B > 0, 0.0)


def _leaders(p_BV: Tensor) -> tuple[Tensor, Tensor]:
    V = p_BV.shape[-1]
    require(V >= 2, "the vocabulary size", V, ">= 2", "a single token cannot be revised")
    top_B2 = p_BV.double().topk(2).values
    return top_B2[..., 0], top_B2[..., 1]


def _beyond_flip(p1_B: Tensor, p2_B: Tensor, v_B: Tensor) -> Tensor:
    """R(v) - gamma."""
    return (p1_B + p2_B) * _log_cosh(v_B / 2) + (p1_B - p2_B) * v_B / 2


def _log_cosh(x_B: Tensor) -> Tensor:
    """log cosh x for x >= 0, exact to rounding near 0 and without overflow far out."""
    near_B = torch.log1p(2 * torch.sinh(x_B.clamp(max=1) / 2).square())
    return near_B.where(x_B < 1, x_B + torch.log1p(torch.exp(-2 * x_B)) - log(2))


def _nonnegative(name: str, value: Tensor | float, like_B: Tensor) -> Tensor:
    value_B = torch.as_tensor(value, dtype=torch.float64, device=like_B.device)
    ok = bool(((value_B >= 0) & value_B.isfinite()).all())
    require(ok, name, value, "finite and >= 0", "clamp it, or leave those rows out")
    return value_B
