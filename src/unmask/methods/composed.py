"""Any score with any region, cardinality and commitment: the ingredients of the published methods, by name."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from unmask.axes import (
    AXES,
    CARDINALITY,
    ORDERS,
    Cardinality,
    Commitment,
    Mixture,
    Region,
    ReMDM,
    cardinality,
    describe_commitment,
    parse_commitment,
    score,
)
from unmask.base.errors import UnknownName
from unmask.base.options import check_types
from unmask.core import RULES, Action, LookAhead, Needs, Policy, State, Trajectory
from unmask.methods.blocks import check_blocks, clock
from unmask.methods.card import OURS, Card
from unmask.methods.llada import quota
from unmask.methods.revised import revise


@dataclass(frozen=True)
class Composed(Policy):
    """One named rule on each axis, as the methods have them.

    Cardinalities that go by the steps (schedule, quota, count, share) finish within them; a region smaller than k_min
    then grows by its own rule. The others (above, factor, eb, all) go on until nothing is left, as their methods do.
    """

    name: ClassVar[str] = "composed"
    card: ClassVar[Card] = Card("this library", "any", "any", "any", "any, or re-maskable", label=OURS)
    cuda_graph = True
    score: Mixture = "confidence"
    """confidence, margin, certainty, stability, dependency, uniform, rules with a plus, weights, entropy or random."""
    region: str = "full"
    """full, block:N, last-block:N, window:N, dilated:N, near:N, groups:N, sliding:N[:LONGEST] or masks:N[:LONGEST]."""
    cardinality: str | float = "schedule"
    """schedule, quota, count:K, share:X or a number; above:X, factor:F, eb:GAMMA or all, which steps do not bound."""
    commitment: str = "all"
    """all, none, confidence:X, margin:X, remdm-cap, remdm-rescale, remdm-conf, remdm-loop (each with :ETA), or both
    with a plus: confidence:0.9+remdm-conf."""

    def __post_init__(self) -> None:
        _ = (self._weights, self._region, self._cardinality, self._revisable)

    @property
    def needs(self) -> Needs:
        return Needs() if self._weights is None else score.needs(self._weights)

    @property
    def past_steps(self) -> int:
        return 1 if self.needs.divergence or self._operator is not None else 0

    @property
    def random(self) -> bool:
        return self.score == "random" or self._operator is not None

    @property
    def steps(self) -> str:
        if self._cardinality.bounded:
            return "end"
        return "ignore" if self._operator is None else "pace"

    @property
    def block_cache(self) -> bool:
        return self._operator is None and self._region.rule in ("full", "block")

    @property
    def block_length(self) -> int | None:
        """Of the blocks that are filled one after the other; None is one block."""
        return self._region.size if self._region.rule == "block" else None

    @property
    def resolved(self) -> dict[str, dict[str, Any]]:
        """The four axes, each with its rule and its parameters."""
        rules = (score.describe_mixture(self.score), self._region.describe(), self._cardinality.describe())
        return dict(zip(AXES, (*rules, describe_commitment(*self._revisable)), strict=True))

    def check(self, state: State) -> None:
        if self._by_blocks:
            check_blocks(state, self.block_length, even=True)

    def done(self, traj: Trajectory) -> Tensor:
        full_B = super().done(traj)
        # A full canvas may still be revised.
        return full_B if self._operator is None else full_B & (traj.state.step_B >= traj.state.horizon_B)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        order_BL = self._order(traj)
        region_BL, kappa_B = self._where(traj, order_BL)
        if self._weights is None:
            k_B = cardinality.reveal_count(kappa_B, region_BL.sum(-1))
            region_BL, kappa_B = cardinality.reveal_set(score.best(order_BL, region_BL, k_B), region_BL)
        mixture = self._weights or "confidence"
        alpha_BJ, commit_BL = score.rows(mixture, state), self._commit(state, traj.current_prediction)
        action = Action(alpha_BJ, region_BL, kappa_B, commit_BL, rule=score.single_rule(mixture))
        return action if self._operator is None else revise(traj, action, self._operator)

    def _order(self, traj: Trajectory) -> Tensor:
        """What positions are revealed by, best first."""
        length = traj.state.tokens_BL.shape[1]
        if self.score == "random":
            return traj.uniform("order")
        if self.score == "entropy":
            return -traj.current_prediction.clean.entropy_BN[:, :length]
        mixture = self._weights or "confidence"
        return score.order(score.rows(mixture, traj.state), traj.current_prediction, length, score.single_rule(mixture))

    def _where(self, traj: Trajectory, order_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Where, and which share of it."""
        state = traj.state
        if self._by_blocks:
            now = clock(state, self.block_length)
            return now.open_BL, cardinality.fraction(quota(now), now.open_BL.sum(-1))
        count = self._cardinality
        need_B: Tensor | int = cardinality.k_min(state) if count.bounded else 1
        region_BL = self._region(state, need_B)
        counted = count.within_steps if count.bounded else count
        return region_BL, counted(state, traj.current_prediction, region_BL, order_BL)

    @property
    def _by_blocks(self) -> bool:
        """LLaDA's schedule, which has a clock for every block."""
        return self._cardinality.rule == "quota" and self._region.rule in ("full", "block")

    @cached_property
    def _weights(self) -> list[float] | None:
        """Of the scoring rules; None for an order that is no mixture of them."""
        if isinstance(self.score, str) and self.score in ORDERS:
            return None
        try:
            return score.weights(self.score)
        except UnknownName:
            if isinstance(self.score, str) and not {"+", "*"} & set(self.score):
                raise UnknownName("scoring rule", self.score, (*RULES, "uniform", *ORDERS)) from None
            raise

    @cached_property
    def _region(self) -> Region:
        return Region.parse(self.region)

    @cached_property
    def _cardinality(self) -> Cardinality:
        return Cardinality.parse(self.cardinality, CARDINALITY.name)

    @cached_property
    def _revisable(self) -> tuple[Commitment, ReMDM | None]:
        return parse_commitment(self.commitment)

    @property
    def _commit(self) -> Commitment:
        return self._revisable[0]

    @property
    def _operator(self) -> ReMDM | None:
        return self._revisable[1]


def compose(
    score: Mixture = "confidence",
    region: str = "full",
    cardinality: str | float = "schedule",
    commitment: str = "all",
) -> Composed:
    """A policy out of one rule per axis: `compose(score="margin", region="block:32", cardinality="eb:0.1")`."""
    names = [f.name for f in fields(Composed)]
    rules = dict(zip(names, (score, region, cardinality, commitment), strict=True))
    check_types(Composed, rules, "composed")
    return Composed(**rules)  # type: ignore[arg-type]
