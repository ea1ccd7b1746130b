"""How much a region is worth when priorities may drift between neighbours: `thm:region_regime`.

Positions lie on a chain of L; weights_BX has one entry per boundary, X = L - 1, and defaults to 1. A weight
scales how much score may cross that boundary, hence its penalty. Leading dimensions are batched.
"""

import torch
from torch import Tensor

from unmask.base.errors import require


def cut(r_BL: Tensor, weights_BX: Tensor | None = None) -> Tensor:
    """Fragmentation of a region: the weighted number of its boundaries, Cut in `thm:region_regime`."""
    boundary_BX = r_BL.double().diff(dim=-1).abs()
    return (boundary_BX if weights_BX is None else weights_BX.double() * boundary_BX).sum(-1)


def robust_value(s_BL: Tensor, r_BL: Tensor, nu: Tensor | float, weights_BX: Tensor | None = None) -> Tensor:
    """Score mass that a region keeps under the worst drift of size nu: s'r - nu Cut(r).

    The worst drift moves score out across every boundary at once. `eq:app_region_robust_value`
    """
    nu_B = torch.as_tensor(nu, dtype=torch.float64, device=s_BL.device)
    require(bool((nu_B >= 0).all()), "nu", nu, ">= 0", "use 0 for priorities that do not drift")
    return _mass(s_BL, r_BL) - nu_B * cut(r_BL, weights_BX)


def switching_threshold(s_BL: Tensor, r1_BL: Tensor, r2_BL: Tensor, weights_BX: Tensor | None = None) -> Tensor:
    """The drift at which two regions are worth the same; NaN where their cuts are equal.

    With equal cuts the two values differ by the same amount at every drift.
    `eq:app_region_switching_threshold`
    """
    mass_B = _mass(s_BL, r1_BL) - _mass(s_BL, r2_BL)
    cut_B = cut(r1_BL, weights_BX) - cut(r2_BL, weights_BX)
    return (mass_B / cut_B).where(cut_B != 0, torch.nan)


def _mass(s_BL: Tensor, r_BL: Tensor) -> Tensor:
    return (s_BL.double() * r_BL.double()).sum(-1)
