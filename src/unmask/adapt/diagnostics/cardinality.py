"""Cardinality diagnostic: reveal more positions while they give more context than they lose.

`app:cardinality_diagnostic`
"""

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
from unmask.adapt.diagnostics.region import best_region_under_drift
from unmask.adapt.diagnostics.score import with_mixture
from unmask.axes import CARDINALITY, k_min, reveal_fraction
from unmask.core import Action, State, Step, Trajectory


@dataclass(frozen=True)
class CardinalityDiagnostic(Diagnostic):
    """Propose how many positions to reveal: the number with the best context balance.

    The signal is V(k-hat), the balance of the positions that this number adds to k_min.

    The proposal changes only the number of positions; they are still revealed in the reference's region and order.
    Support and mixture say which positions are weighed to find the number, and in which order.
    """

    axis: ClassVar[str] = CARDINALITY.name
    cuda_graph: ClassVar[bool] = True
    epsilon: Positive = 1e-3
    """Added to the received context in the sensitivity, so that too little attention explains no large change."""
    support: Literal["region", "program", "two-rounds"] = field(default="region", metadata=IN_NAME)
    """Positions that are weighed: the reference's `region`, or the region diagnostic's best set of max(k_min,
    ceil(m / 2)) positions (`program`), or of min(m, 2 k_min), this batch and the next (`two-rounds`)."""
    mixture: Mixture = field(default="reference", metadata=IN_NAME)
    """Mixture of scoring rules by which the weighed positions are ordered."""

    @property
    def name(self) -> str:  # type: ignore[override]
        support = [] if self.support == "region" else [self.support]
        # `program` follows the paper's text, which uses the diagnosed mixture: its name says so only if it does not.
        usual = "diagnosed" if self.support == "program" else "reference"
        return ":".join(["cardinality", *support, *([] if self.mixture == usual else [self.mixture])])

    def read(self, traj: Trajectory, action: Action) -> Reading:
        last, state = traj.last, traj.state
        if last is None:
            return abstain(traj, action)
        L = state.tokens_BL.shape[1]
        reaction = sensitivity(traj, last, self.epsilon)
        ordering = with_mixture(self.mixture, traj, action)
        region_BL = open_positions(state, action)
        support_BL, has_support_B = self._find_support(traj, last, ordering, region_BL)
        order_BL = reveal_order(priority(traj.current_prediction, ordering), support_BL)
        # Positions outside the support neither give nor receive context here.
        gamma_BL = context_balance(
            attention(traj.current_prediction, L),
            torch.where(support_BL, reliability(traj.current_prediction, L), 0.0),
            torch.where(support_BL, reaction.tau_BL, 0.0),
            order_BL,
        )
        n_B = support_BL.sum(-1)
        least_B = torch.minimum(k_min(state), n_B)
        # Balances in the order of revealing, so that a running sum of them is the value of each count.
        value_BK = count_values(gamma_BL.gather(1, order_BL), least_B, n_B)
        best = value_BK.max(-1)
        abstains_B = ~((reaction.known_BL & support_BL).any(-1) & has_support_B)
        k_B = best.indices
        kappa_B = torch.where(abstains_B, action.kappa_B.double(), reveal_fraction(k_B, region_BL.sum(-1)))
        return Reading(
            torch.where(abstains_B, torch.nan, best.values),
            abstains_B,
            replace(action, kappa_B=kappa_B),
            {"k_B": k_B, "least_B": least_B, "most_B": n_B, "value_BK": value_BK},
        )

    def _find_support(self, traj: Trajectory, last: Step, ordering: Action, region_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions to weigh, and a mask of the rows that have some: without drift there is no best set."""
        if self.support == "region":
            return region_BL, torch.ones_like(region_BL[:, 0])
        budget_B = support_budget(self.support, traj.state, predicted_positions(traj).sum(-1))
        nu_B, support_BL = best_region_under_drift(traj, last, ordering, budget_B)
        return support_BL, ~nu_B.isnan()


def support_budget(support: str, state: State, n_B: Tensor) -> Tensor:
    """Return the number b of positions, out of n, that are selected as support. `app:cardinality_diagnostic`"""
    least_B = k_min(state)
    most_B = torch.maximum(least_B, (n_B + 1) // 2) if support == "program" else 2 * least_B
    return torch.minimum(most_B, n_B)


def reveal_order(score_BL: Tensor, region_BL: Tensor) -> Tensor:
    """Return positions in their order of revealing: the region by falling score, ties by position, then the rest."""
    key_BL = torch.where(region_BL, score_BL.nan_to_num(-1.0), -torch.inf)
    return key_BL.sort(dim=-1, descending=True, stable=True).indices


def context_balance(phi_BLL: Tensor, source_BL: Tensor, tau_BL: Tensor, order_BL: Tensor) -> Tensor:
    """Return the context balance Gamma of each position, revealed together with all before it in the order.

    It is the context that the position gives to later ones, minus the context that it would have received from earlier
    ones. Positions outside the support have source and tau 0. `eq:app_card_balance`
    """
    rank_L = torch.arange(order_BL.shape[1], device=order_BL.device)
    place_BL = torch.empty_like(order_BL).scatter_(1, order_BL, rank_L.expand_as(order_BL))
    # Attention of later queries to earlier keys: context flows from a revealed position to those after it.
    later_BLL = phi_BLL * (place_BL[:, :, None] > place_BL[:, None, :])
    return source_BL * context_supplied(later_BLL, tau_BL) - tau_BL * context_received(later_BLL, source_BL)


def count_values(gamma_BL: Tensor, least_B: Tensor, most_B: Tensor) -> Tensor:
    """Return the value V(k) of revealing k = 0 to L positions, from their ordered balances; -inf outside [least, most].

    `eq:app_card_value`
    """
    count_K = torch.arange(gamma_BL.shape[1] + 1, device=gamma_BL.device)
    # The first k_min positions are revealed in any case, so their balances decide nothing.
    beyond_BL = count_K[1:] > least_B[:, None]
    sum_BL = torch.where(beyond_BL, gamma_BL, 0.0).cumsum(-1)
    value_BK = torch.cat((torch.zeros_like(sum_BL[:, :1]), sum_BL), -1)
    allowed_BK = (count_K >= least_B[:, None]) & (count_K <= most_B[:, None])
    return torch.where(allowed_BK, value_BK, -torch.inf)
