"""Region diagnostic: reveal where priorities did not drift between neighbours. `app:region_diagnostic`

Masked positions form a chain, and the boundary between neighbours at distance g has weight 1/g. The transport radius nu
is the largest priority per weight that crossed a boundary since the last step. The proposed region maximises its
priority minus nu times the weight of the boundaries that it cuts.
"""

import importlib
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.adapt.diagnostics.base import (
    IN_NAME,
    Diagnostic,
    Mixture,
    Reading,
    abstain,
    masked_at_both_steps,
    ordered_sum,
    planned_count,
    predicted_positions,
    priority,
)
from unmask.adapt.diagnostics.score import with_mixture
from unmask.axes import REGION, fraction, k_min
from unmask.base.errors import warn_once
from unmask.core import Action, Needs, Step, Trajectory


@dataclass(frozen=True)
class RegionDiagnostic(Diagnostic):
    """Propose the region of most priority under drift. Signal: the transport radius nu.

    The proposal keeps the reference's mixture and its count.
    """

    axis: ClassVar[str] = REGION.name
    cuda_graph: ClassVar[bool] = True
    budget: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Size of the region as a share of the masked positions, rounded up; at least k_min positions."""
    mixture: Mixture = field(default="reference", metadata=IN_NAME)
    """Mixture whose scores are the priorities. Positions are still revealed in the reference's order."""
    holds: Literal["count", "share"] = field(default="count", metadata=IN_NAME)
    """Keep the reference's `count` of revealed positions, or their `share` of the open ones."""

    @property
    def name(self) -> str:  # type: ignore[override]
        diagnosed = ["diagnosed"] if self.mixture == "diagnosed" else []
        return ":".join(["region", *diagnosed, *(["share"] if self.holds == "share" else [])])

    @property
    def needs(self) -> Needs:
        """Nothing beyond the reference's own needs, or those of the score diagnostic for a diagnosed mixture."""
        return super().needs if self.mixture == "diagnosed" else Needs()

    def read(self, traj: Trajectory, action: Action) -> Reading:
        last, state = traj.last, traj.state
        if last is None:
            return abstain(traj, action)
        n_B = predicted_positions(traj).sum(-1)
        # 1e-9: a product such as 0.55 * 20 may lie a rounding error above its whole number.
        share_B = (self.budget * n_B.double() - 1e-9).ceil().long()
        budget_B = torch.minimum(torch.maximum(share_B, k_min(state)), n_B)
        nu_B, region_BL = best_region_under_drift(traj, last, with_mixture(self.mixture, traj, action), budget_B)
        abstains_B = nu_B.isnan()
        # The same number of positions out of a smaller region is a larger share of it.
        kappa_B = fraction(planned_count(state, action), budget_B if self.holds == "count" else n_B)
        return Reading(
            nu_B,
            abstains_B,
            replace(
                action,
                region_BL=torch.where(abstains_B[:, None], action.region_BL, region_BL),
                kappa_B=torch.where(abstains_B, action.kappa_B.double(), kappa_B),
            ),
            {"nu_B": nu_B, "budget_B": budget_B},
        )


def best_region_under_drift(traj: Trajectory, last: Step, action: Action, budget_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the radius nu and the best region of `budget_B` positions at this radius, under the action's mixture."""
    now_BL, before_BL = priority(traj.current_prediction, action), priority(last.prediction, action)
    nu_B = transport_radius(before_BL, now_BL, masked_at_both_steps(traj, last))
    return nu_B, best_region(now_BL, predicted_positions(traj), nu_B.nan_to_num(0.0), budget_B)


def transport_radius(before_BL: Tensor, now_BL: Tensor, both_BL: Tensor) -> Tensor:
    """Return nu, the largest |sum of drift left of a boundary| / weight; NaN with fewer than two positions.

    The drift is centred over the positions, so that only its redistribution counts. `eq:app_transport_radius`
    """
    n_B1 = both_BL.sum(-1, keepdim=True)
    drift_BL = torch.where(both_BL, now_BL - before_BL, 0.0)
    # Rows without positions divide by 0; they are NaN at the end.
    centre_B1 = ordered_sum(drift_BL)[:, None] / n_B1
    crossed_BL = torch.where(both_BL, drift_BL - centre_B1, 0.0).cumsum(-1).abs()
    # Distance from each member to the next one, which is 1 / weight; 0 off the set and at its last member.
    L = both_BL.shape[1]
    position_L = torch.arange(L, device=both_BL.device)
    at_BL = torch.where(both_BL, position_L, 2 * L)
    next_BL = torch.full_like(at_BL, 2 * L)
    next_BL[:, :-1] = at_BL.flip(-1).cummin(-1).values.flip(-1)[:, 1:]
    gap_BL = torch.where(both_BL & (next_BL < L), next_BL - position_L, 0)
    nu_B = torch.where(gap_BL > 0, crossed_BL * gap_BL, 0.0).amax(-1)
    return torch.where(n_B1[:, 0] >= 2, nu_B, torch.nan)


def best_region(score_BL: Tensor, open_BL: Tensor, nu_B: Tensor, budget_B: Tensor) -> Tensor:
    """Maximise s'r - nu Cut(r) over the sets of `budget_B` open positions; ties go to the lower positions.

    Exact: of all best sets it is the lexicographically first, as sorted positions. `eq:method_region`

    The program walks over the number of selected positions and is vectorised over rows and positions. The c-th
    selected position i either follows i - 1, or opens a new run after the best place where the last run could have
    ended, which is a running maximum. Positions are taken from right to left, because a running maximum settles ties
    for its last entry. O(m b) time with O(m) values, and one back-pointer for each position and number.
    """
    (B, L), device = score_BL.shape, score_BL.device
    gain_BL, toll_BX, place_BL = _build_chain(score_BL, open_BL, nu_B)
    if (kernel := _load_kernel(device)) is not None:
        # Each row is a program of its own, with as many rounds as its budget.
        sets_BL: Tensor = kernel.best_sets(gain_BL, toll_BX, place_BL, budget_B)
        return sets_BL
    # As many rounds as the canvas has positions: to ask the device for the largest budget would make the host wait,
    # which a recorded graph may not do.
    end_BY = torch.nn.functional.pad(toll_BX[:, 1:], (2, 0))

    # Position i stands at i + 2. After c rounds, with i the c-th selected position, `run` is the best value, `closed`
    # the best of any up to i once its run has ended, and `closed_at` the position where that is. back[c, i] is the
    # c-th selected position when the next one is i. The last column stands for "no next one": rows with a smaller
    # budget wait there.
    run_BY = gain_BL.new_full((B, L + 2), -torch.inf)
    closed_BY = torch.zeros_like(run_BY)
    closed_at_KBY = torch.ones(L + 1, B, L + 2, dtype=torch.long, device=device)
    back_KBZ = torch.empty(L + 1, B, L + 3, dtype=torch.long, device=device)
    before_L = torch.arange(1, L + 1, device=device)
    for c in range(1, L + 1):
        stayed_BL, opened_BL = run_BY[:, 1:-1], closed_BY[:, :-2] - toll_BX[:, :-1]
        back_BL = back_KBZ[c - 1, :, 2:-1]
        torch.where(stayed_BL >= opened_BL, before_L, closed_at_KBY[c - 1, :, :-2], out=back_BL)
        torch.add(torch.maximum(stayed_BL, opened_BL), gain_BL, out=run_BY[:, 2:])
        torch.cummax(run_BY - end_BY, -1, out=(closed_BY, closed_at_KBY[c]))
    none, count_K1 = L + 2, torch.arange(1, L + 1, device=device)[:, None]
    back_KBZ[1:, :, -1] = torch.where(budget_B >= count_K1, closed_at_KBY[1:, :, -1], none)

    at_B1 = torch.full((B, 1), none, device=device)
    places = [at_B1]
    for c in range(L, 0, -1):
        at_B1 = back_KBZ[c].gather(1, at_B1)
        places.append(at_B1)
    home_BZ = torch.nn.functional.pad(torch.where(place_BL >= 0, place_BL, L), (2, 1), value=L)
    chosen_BK = home_BZ.gather(1, torch.cat(places, -1))
    return torch.zeros(B, L + 1, dtype=torch.bool, device=device).scatter(1, chosen_BK, True)[:, :L]


def _build_chain(score_BL: Tensor, open_BL: Tensor, nu_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return score, boundary cost and place of the open positions, from right to left.

    toll[i] is the cost of the boundary between i - 1 and i, 0 at both ends. Rows with fewer positions end in places -1.
    """
    (B, L), device = open_BL.shape, open_BL.device
    place_BL = torch.where(open_BL, torch.arange(L, device=device), -1).sort(-1, descending=True).values
    real_BL = place_BL >= 0
    gain_BL = torch.where(real_BL, score_BL.gather(1, place_BL.clamp(min=0)), -torch.inf)
    toll_BX = gain_BL.new_zeros(B, L + 1)
    toll_BX[:, 1:-1] = torch.where(real_BL[:, 1:], nu_B[:, None] / (place_BL[:, :-1] - place_BL[:, 1:]), 0.0)
    return gain_BL, toll_BX, place_BL


@cache
def _load_kernel(device: torch.device) -> ModuleType | None:
    """Load the Triton kernel, or return None where the device cannot run it, which one small launch shows."""
    if device.type != "cuda":
        return None
    try:
        kernel = importlib.import_module("unmask.adapt.diagnostics.region_triton")
        one_B, two_BW = torch.ones(1, dtype=torch.long, device=device), torch.ones(1, 2, device=device).double()
        kernel.best_sets(two_BW, two_BW.new_zeros(1, 3), one_B.new_tensor([[1, 0]]), one_B)
        torch.cuda.synchronize(device)
    except Exception as error:  # An import, a compiler or a driver may raise anything. The plain program is there.
        reason = str(error).splitlines()[0] if str(error) else ""
        warn_once(f"regions are searched without a kernel, which takes longer: {type(error).__name__}: {reason}")
        return None
    return kernel
