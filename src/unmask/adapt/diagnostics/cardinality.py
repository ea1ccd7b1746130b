"""Cardinality: whether one more position now gives more context than it gives up. `app:cardinality_diagnostic`"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unmask.adapt.diagnostics.base import (
    IN_NAME,
    Diagnostic,
    Mixture,
    Positive,
    Reading,
    abstain,
    open_positions,
    predicted_positions,
    priority,
)
from unmask.adapt.diagnostics.context_transfer import (
    attention,
    context_received,
    context_supplied,
    reliability,
    sensitivity,
)
from unmask.adapt.diagnostics.region import drifting_region
from unmask.adapt.diagnostics.score import with_mixture
from unmask.axes import CARDINALITY, fraction, k_min
from unmask.core import Action, State, Step, Trajectory


@dataclass(frozen=True)
class CardinalityDiagnostic(Diagnostic):
    """Context transfer within a support. Signal: V(k-hat), the balance of the positions beyond k_min.

    The proposal changes the count alone. Support and mixture only say where and in which order candidates are weighed;
    that many positions are then revealed of the reference's region, in the reference's order.
    """

    axis: ClassVar[str] = CARDINALITY.name
    cuda_graph: ClassVar[bool] = True
    epsilon: Positive = 1e-3
    """Attention below this share of a row is too little to credit a reaction to."""
    support: Literal["region", "program", "two-rounds"] = field(default="region", metadata=IN_NAME)
    """Candidates: the reference's `region`, or the region program's set of max(k_min, ceil(m / 2)) positions
    (`program`), or of min(m, 2 k_min), this batch and the next (`two-rounds`)."""
    mixture: Mixture = field(default="reference", metadata=IN_NAME)
    """Mixture whose scores order the candidates."""

    @property
    def name(self) -> str:  # type: ignore[override]
        support = [] if self.support == "region" else [self.support]
        # `program` is the text to the letter, with the diagnosed mixture: there the other one is named.
        usual = "diagnosed" if self.support == "program" else "reference"
        return ":".join(["cardinality", *support, *([] if self.mixture == usual else [self.mixture])])

    def read(self, traj: Trajectory, action: Action) -> Reading:
        last, state = traj.last, traj.state
        if last is None:
            return abstain(traj, action)
        L = state.tokens_BL.shape[1]
        answered = sensitivity(traj, last, self.epsilon)
        weighed = with_mixture(self.mixture, traj, action)
        region_BL = open_positions(state, action)
        support_BL, found_B = self._support(traj, last, weighed, region_BL)
        order_BL = candidate_order(priority(traj.current_prediction, weighed), support_BL)
        gamma_BL = balance(
            attention(traj.current_prediction, L),
            torch.where(support_BL, reliability(traj.current_prediction, L), 0.0),
            torch.where(support_BL, answered.tau_BL, 0.0),
            order_BL,
        )
        n_B = support_BL.sum(-1)
        least_B = torch.minimum(k_min(state), n_B)
        value_BK = value(gamma_BL.gather(1, order_BL), least_B, n_B)
        best = value_BK.max(-1)
        abstains_B = ~((answered.known_BL & support_BL).any(-1) & found_B)
        k_B = best.indices
        kappa_B = torch.where(abstains_B, action.kappa_B.double(), fraction(k_B, region_BL.sum(-1)))
        return Reading(
            torch.where(abstains_B, torch.nan, best.values),
            abstains_B,
            replace(action, kappa_B=kappa_B),
            {"k_B": k_B, "least_B": least_B, "most_B": n_B, "value_BK": value_BK},
        )

    def _support(self, traj: Trajectory, last: Step, weighed: Action, region_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Candidates, and a mask of rows that have any: the region program abstains where it knows no drift."""
        if self.support == "region":
            return region_BL, torch.ones_like(region_BL[:, 0])
        budget_B = support_budget(self.support, traj.state, predicted_positions(traj).sum(-1))
        nu_B, support_BL = drifting_region(traj, last, weighed, budget_B)
        return support_BL, ~nu_B.isnan()


def support_budget(support: str, state: State, n_B: Tensor) -> Tensor:
    """Number b of positions, out of n, that the region program selects as support. `app:cardinality_diagnostic`"""
    least_B = k_min(state)
    most_B = torch.maximum(least_B, (n_B + 1) // 2) if support == "program" else 2 * least_B
    return torch.minimum(most_B, n_B)


def candidate_order(score_BL: Tensor, region_BL: Tensor) -> Tensor:
    """Positions as `apply` would reveal them: the region by falling score, ties to the lower, then the others."""
    key_BL = torch.where(region_BL, score_BL.nan_to_num(-1.0), -torch.inf)
    return key_BL.sort(dim=-1, descending=True, stable=True).indices


def balance(phi_BLL: Tensor, source_BL: Tensor, tau_BL: Tensor, order_BL: Tensor) -> Tensor:
    """Balance Gamma of each position when it is added to all that come before it in the order.

    The context it would give to those after it, minus the context it could have got from those before. Positions
    outside the region have source and tau 0. `eq:app_card_balance`
    """
    rank_L = torch.arange(order_BL.shape[1], device=order_BL.device)
    place_BL = torch.empty_like(order_BL).scatter_(1, order_BL, rank_L.expand_as(order_BL))
    later_BLL = phi_BLL * (place_BL[:, :, None] > place_BL[:, None, :])
    return source_BL * context_supplied(later_BLL, tau_BL) - tau_BL * context_received(later_BLL, source_BL)


def value(gamma_BL: Tensor, least_B: Tensor, most_B: Tensor) -> Tensor:
    """Value V(k) for k = 0 to L, from the balances in the order of candidates; -inf outside [least, most].

    `eq:app_card_value`
    """
    count_K = torch.arange(gamma_BL.shape[1] + 1, device=gamma_BL.device)
    beyond_BL = count_K[1:] > least_B[:, None]
    sum_BL = torch.where(beyond_BL, gamma_BL, 0.0).cumsum(-1)
    value_BK = torch.cat((torch.zeros_like(sum_BL[:, :1]), sum_BL), -1)
    allowed_BK = (count_K >= least_B[:, None]) & (count_K <= most_B[:, None])
    return torch.where(allowed_BK, value_BK, -torch.inf)
