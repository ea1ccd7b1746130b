"""Region: where candidates may be drawn from, when priorities drift between neighbours. `app:region_diagnostic`

Masked positions lie on a chain; the boundary between neighbours that are g apart has weight 1/g. How much priority
has crossed boundaries since the last step is the radius nu; the proposed region holds the most priority once nu times
its cut is paid.
"""

import importlib
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from unmask.adapt.diagnostics.base import Diagnostic, Reading, count, masked_twice, mixed, silence, total
from unmask.adapt.diagnostics.score import scored_by
from unmask.axes import REGION, fraction, k_min
from unmask.base.errors import require, warn_once
from unmask.core import Action, Needs, State, Step, Trajectory

D = TypeVar("D", bound=Diagnostic)


@dataclass(frozen=True)
class RegionDiagnostic(Diagnostic):
    """Priority drift. Signal: the transport radius. The proposal keeps the reference's mixture and count."""

    name: ClassVar[str] = "region"
    axis: ClassVar[str] = REGION.name
    replays: ClassVar[bool] = True
    mixture: ClassVar[str] = "reference"
    """Whose scores drift and are gathered: the reference's, or those of the `diagnosed` mixture. The proposal's own
    order stays the reference's."""
    holds: ClassVar[str] = "count"
    """What of the reference the proposal keeps: how many it reveals, or which `share` of what may be revealed."""
    loops: ClassVar[tuple[int, int] | None] = None
    budget: float = 0.5
    """Share of the masked positions that the region holds, rounded up; at least k_min positions."""

    def __post_init__(self) -> None:
        require(0 < self.budget <= 1, "budget", self.budget, "above 0, at most 1", "e.g. 0.5; 1 is the full answer")

    @property
    def needs(self) -> Needs:
        """The reference's mixture needs what the reference needs; a diagnosed one what the score diagnostic does."""
        return super().needs if self.mixture == "diagnosed" else Needs()

    def sized(self, traj: Trajectory) -> "RegionDiagnostic":
        if _kernel(traj.state.tokens_BL.device) is not None:
            return self.bounded(traj.state.tokens_BL.shape[1])
        return with_loops(self, loop_sizes(traj.state, self._budget(traj.state, traj.state.masked_BL.sum(-1))))

    def bounded(self, length: int) -> "RegionDiagnostic":
        return with_loops(self, (length, length))

    def read(self, traj: Trajectory, action: Action) -> Reading:
        last, state = traj.last, traj.state
        if last is None:
            return silence(traj, action)
        open_BL = predicted(traj)
        budget_B = self._budget(state, open_BL.sum(-1))
        nu_B, region_BL = drifting_region(traj, last, scored_by(self.mixture, traj, action), budget_B, self.loops)
        abstains_B = nu_B.isnan()
        kept_B = budget_B if self.holds == "count" else open_BL.sum(-1)
        kappa_B = fraction(count(state, action), kept_B)
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

    def _budget(self, state: State, n_B: Tensor) -> Tensor:
        # 1e-9: a product such as 0.55 * 20 may lie a rounding error above its whole number.
        share_B = (self.budget * n_B.double() - 1e-9).ceil().long()
        return torch.minimum(torch.maximum(share_B, k_min(state)), n_B)


def predicted(traj: Trajectory) -> Tensor:
    """M: masked positions with a prediction."""
    return traj.state.masked_BL & traj.current_prediction.wanted_BN[:, : traj.state.tokens_BL.shape[1]]


def drifting_region(
    traj: Trajectory, last: Step, action: Action, budget_B: Tensor, loops: tuple[int, int] | None = None
) -> tuple[Tensor, Tensor]:
    """nu, and the best region of so many positions that pays for it, both under the action's mixture."""
    now_BL, before_BL = mixed(traj.current_prediction, action), mixed(last.prediction, action)
    nu_B = transport_radius(before_BL, now_BL, masked_twice(traj, last))
    return nu_B, best_region(now_BL, predicted(traj), nu_B.nan_to_num(0.0), budget_B, loops)


def loop_sizes(state: State, budget_B: Tensor) -> tuple[int, int]:
    """How long the program's loops must be for all rows: in eighths of the canvas, so that few sizes differ. On a GPU
    each is a recording of its own."""
    grain = -(-state.tokens_BL.shape[1] // 8)
    width, most = torch.stack((state.masked_BL.sum(-1), budget_B)).amax(-1).tolist()
    return -(-width // grain) * grain, -(-most // grain) * grain


def with_loops(diagnostic: D, loops: tuple[int, int]) -> D:
    """The same diagnostic, which knows how long the program's loops are: at least as many positions as any row has
    masked, and as any region holds."""
    sized: D = _with_loops(type(diagnostic))(**vars(diagnostic), loops=loops)
    return sized


@cache
def _with_loops(kind: type) -> Any:
    """A kind that is equal where its loops are, too, and asks for none; its name and readings stay."""
    body: dict[str, Any] = {"__annotations__": {"loops": tuple[int, int]}, "__module__": kind.__module__}
    body |= {"sized": lambda self, traj: self, "bounded": lambda self, length: self}
    return dataclass(frozen=True, kw_only=True)(type(f"Sized{kind.__name__}", (kind,), body))


def transport_radius(before_BL: Tensor, now_BL: Tensor, both_BL: Tensor) -> Tensor:
    """max over boundaries of |sum of drift to their left| / weight; NaN with fewer than two positions.

    Both landscapes are centred over the positions, so that only redistribution counts. `eq:app_transport_radius`
    """
    n_B1 = both_BL.sum(-1, keepdim=True)
    drift_BL = torch.where(both_BL, now_BL - before_BL, 0.0)
    centre_B1 = total(drift_BL)[:, None] / n_B1
    crossed_BL = torch.where(both_BL, drift_BL - centre_B1, 0.0).cumsum(-1).abs()
    gap_BL = _next_gap(both_BL)
    nu_B = torch.where(gap_BL > 0, crossed_BL * gap_BL, 0.0).amax(-1)
    return torch.where(n_B1[:, 0] >= 2, nu_B, torch.nan)


def best_region(
    score_BL: Tensor, open_BL: Tensor, nu_B: Tensor, budget_B: Tensor, loops: tuple[int, int] | None = None
) -> Tensor:
    """argmax over sets of `budget` open positions of s'r - nu Cut(r); ties go to the lower positions.

    Exact: of all best sets it is the lexicographically first, as sorted positions. `eq:method_region`

    The program walks over the number of selected positions and is vectorised over rows and positions: the c-th
    selected position i either follows i - 1, or opens a new run after the best place where the last one could have
    ended, which is a running maximum. Positions are taken from right to left, because a running maximum settles ties
    for its last entry. O(m b) time; values O(m), and one back-pointer for each position and number.

    `loops` bounds the number of open positions and the budget; without it the device is asked. On a GPU with Triton
    each row is a program with a loop of its own, and neither is needed.
    """
    B, L = score_BL.shape
    if (kernel := _kernel(score_BL.device)) is not None:
        sets_BL: Tensor = kernel.best_sets(*_chain(score_BL, open_BL, nu_B, L), budget_B)
        return sets_BL
    width, most = _sizes(open_BL, budget_B) if loops is None else loops
    width = min(max(width, 1), L)
    gain_BW, toll_BX, place_BW = _chain(score_BL, open_BL, nu_B, width)
    end_BY = torch.nn.functional.pad(toll_BX[:, 1:], (2, 0))

    # Position i stands at i + 2. After c rounds, with i the c-th selected position, `run` is the best value, `closed`
    # the best of any up to i once its run has ended, and `closed_at` who that was. back[c, i]: the c-th selected
    # position when the next one is i; the last column is for no next one, where rows with a smaller budget wait.
    run_BY = gain_BW.new_full((B, width + 2), -torch.inf)
    closed_BY = torch.zeros_like(run_BY)
    closed_at_KBY = torch.ones(most + 1, B, width + 2, dtype=torch.long, device=open_BL.device)
    back_KBZ = torch.empty(most + 1, B, width + 3, dtype=torch.long, device=open_BL.device)
    before_W = torch.arange(1, width + 1, device=open_BL.device)
    for c in range(1, most + 1):
        stayed_BW, opened_BW = run_BY[:, 1:-1], closed_BY[:, :-2] - toll_BX[:, :-1]
        back_BW = back_KBZ[c - 1, :, 2:-1]
        torch.where(stayed_BW >= opened_BW, before_W, closed_at_KBY[c - 1, :, :-2], out=back_BW)
        torch.add(torch.maximum(stayed_BW, opened_BW), gain_BW, out=run_BY[:, 2:])
        torch.cummax(run_BY - end_BY, -1, out=(closed_BY, closed_at_KBY[c]))
    none, count_K1 = width + 2, torch.arange(1, most + 1, device=open_BL.device)[:, None]
    back_KBZ[1:, :, -1] = torch.where(budget_B >= count_K1, closed_at_KBY[1:, :, -1], none)

    at_B1 = torch.full((B, 1), none, device=open_BL.device)
    places = [at_B1]
    for c in range(most, 0, -1):
        at_B1 = back_KBZ[c].gather(1, at_B1)
        places.append(at_B1)
    home_BZ = torch.nn.functional.pad(torch.where(place_BW >= 0, place_BW, L), (2, 1), value=L)
    chosen_BK = home_BZ.gather(1, torch.cat(places, -1))
    return torch.zeros(B, L + 1, dtype=torch.bool, device=open_BL.device).scatter(1, chosen_BK, True)[:, :L]


def _chain(score_BL: Tensor, open_BL: Tensor, nu_B: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Open positions from right to left: what each adds, what is paid between neighbours, and where it is (or -1).

    toll[i] is paid between i - 1 and i; there is none at either end.
    """
    position_L = torch.arange(open_BL.shape[1], device=open_BL.device)
    place_BW = torch.where(open_BL, position_L, -1).sort(-1, descending=True).values[:, :width]
    real_BW = place_BW >= 0
    gain_BW = torch.where(real_BW, score_BL.gather(1, place_BW.clamp(min=0)), -torch.inf)
    toll_BX = gain_BW.new_zeros(len(gain_BW), width + 1)
    toll_BX[:, 1:-1] = torch.where(real_BW[:, 1:], nu_B[:, None] / (place_BW[:, :-1] - place_BW[:, 1:]), 0.0)
    return gain_BW, toll_BX, place_BW


@cache
def _kernel(device: torch.device) -> ModuleType | None:
    """The kernel where the device can run it, which one small launch shows; else the plain program runs."""
    if device.type != "cuda":
        return None
    try:
        kernel = importlib.import_module("unmask.adapt.diagnostics.region_kernel")
        one_B, two_BW = torch.ones(1, dtype=torch.long, device=device), torch.ones(1, 2, device=device).double()
        kernel.best_sets(two_BW, two_BW.new_zeros(1, 3), one_B.new_tensor([[1, 0]]), one_B)
        torch.cuda.synchronize(device)
    except Exception as error:  # whatever an import, a compiler or a driver raises, the plain program is there
        reason = str(error).splitlines()[0] if str(error) else ""
        warn_once(f"regions are searched without a kernel, which takes longer: {type(error).__name__}: {reason}")
        return None
    return kernel


def _next_gap(in_set_BL: Tensor) -> Tensor:
    """Distance from each member to the next one; 0 off the set and at its last member."""
    L = in_set_BL.shape[1]
    position_L = torch.arange(L, device=in_set_BL.device)
    at_BL = torch.where(in_set_BL, position_L, 2 * L)
    after_BL = torch.full_like(at_BL, 2 * L)
    after_BL[:, :-1] = at_BL.flip(-1).cummin(-1).values.flip(-1)[:, 1:]
    return torch.where(in_set_BL & (after_BL < L), after_BL - position_L, 0)


def _sizes(open_BL: Tensor, budget_B: Tensor) -> tuple[int, int]:
    """How many positions the widest row has, and the largest budget."""
    width, most = torch.stack((open_BL.sum(-1), budget_B)).amax(-1).tolist()
    return width, most
