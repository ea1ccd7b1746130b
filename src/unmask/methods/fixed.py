"""A fixed action on the four axes: the paper's a_fix, and every candidate of the laboratory."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from unmask.axes import Cardinality, Commitment, Mixture, Region, cardinality, score
from unmask.core import Action, LookAhead, Needs, Policy, Trajectory
from unmask.methods.card import OURS, Card


@dataclass(frozen=True)
class Fixed(Policy):
    """The same named choice on each axis at every state.

    A region smaller than k_min grows by its own rule, and no count falls below k_min unless it says so: a run that
    reveals less early has to reveal the rest at once.
    """

    name: ClassVar[str] = "fixed"
    card: ClassVar[Card] = Card("this library", "any mixture", "any", "any", "any", label=OURS)
    cuda_graph = True
    alpha: Mixture = "confidence"
    """A rule (confidence, margin, certainty, stability, dependency), rules with a plus, "uniform", or weights."""
    region: str = "full"
    """full, block:N, last-block:N, window:N, dilated:N, near:N, groups:N, sliding:N[:LONGEST] or masks:N[:LONGEST]."""
    kappa: str | float = "schedule"
    """schedule (k_min), quota, count:K, share:X, above:X (confidence threshold), factor:F, eb:GAMMA, all, or a number:
    kappa itself. At least k_min, whatever the rule; count:K:below may reveal fewer, until the last step."""
    commit: str = "all"
    """all, none, confidence:X or margin:X."""

    def __post_init__(self) -> None:
        _ = (score.weights(self.alpha), self._region, self._kappa, self._commit)

    @property
    def needs(self) -> Needs:
        return score.needs(self.alpha)

    @property
    def past_steps(self) -> int:
        return 1 if self.needs.divergence else 0

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, prediction = traj.state, traj.current_prediction
        region_BL = self._region(state, cardinality.k_min(state))
        alpha_BJ = score.rows(self.alpha, state)
        rule = score.single_rule(self.alpha)
        order_BL = score.order(alpha_BJ, prediction, region_BL.shape[1], rule) if self._kappa.needs_order else None
        kappa_B = self._kappa.within_steps(state, prediction, region_BL, order_BL)
        return Action(alpha_BJ, region_BL, kappa_B, self._commit(state, prediction), rule=rule)

    @cached_property
    def _region(self) -> Region:
        return Region.parse(self.region)

    @cached_property
    def _kappa(self) -> Cardinality:
        return Cardinality.parse(self.kappa)

    @cached_property
    def _commit(self) -> Commitment:
        return Commitment.parse(self.commit)
