"""Any score with any region, cardinality and commitment, alone or around another policy.

Four recorded names are one class here. `composed` is one rule per axis, as the published methods have them; `fixed` is
the same with the floor of the paper's fixed action a_fix; `instead` replaces axes of another policy's action; `revised`
adds ReMDM's remasking (Wang et al.) to any policy. Results record each by its own name and spelling of the settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import torch
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
from unmask.core import ALL, RULES, Action, LookAhead, ModelInput, Needs, Policy, State, Trajectory
from unmask.methods.blocks import block_clock, check_blocks

_RULES = {"score": "confidence", "region": "full", "cardinality": "schedule", "commitment": "all"}
"""The rules of LLaDA's own decoder, which a composition without a base starts from."""
_FIXED = {"alpha": "score", "region": "region", "kappa": "cardinality", "commit": "commitment"}
_STORED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "composed": {axis: axis for axis in AXES},
        "fixed": _FIXED,
        "instead": {"base": "base", **_FIXED, "holds": "holds"},
        "revised": {"base": "base", "operator": "operator"},
    }
)
"""Recorded settings of each registered name, and the field that holds each."""  # stored names


class CombinedPolicy(Policy):
    """A policy that decides with other policies, its parts. It declares whatever a part declares."""

    @property
    def parts(self) -> tuple[Policy, ...]:
        """The policies that it asks."""
        raise NotImplementedError

    @property
    def needs(self) -> Needs:
        needs = Needs()
        for part in self.parts:
            needs = needs | part.needs
        return needs

    @property
    def past_steps(self) -> int:
        steps = [part.past_steps for part in self.parts]
        return ALL if ALL in steps else max(steps, default=0)

    @property
    def random(self) -> bool:
        return any(part.random for part in self.parts)

    @property
    def looks_ahead(self) -> bool:
        return any(part.looks_ahead for part in self.parts)

    @property
    def remasks(self) -> bool:
        return any(part.remasks for part in self.parts)

    @property
    def extra_steps(self) -> bool:
        return any(part.extra_steps for part in self.parts)

    @property
    def cuda_graph(self) -> bool:
        return all(part.cuda_graph for part in self.parts)

    @property
    def own_end(self) -> bool:
        return any(part.own_end for part in self.parts)

    def check(self, state: State) -> None:
        for part in self.parts:
            part.check(state)


@dataclass(frozen=True)
class Composed(CombinedPolicy):
    """One named rule on each axis, as the methods have them.

    Cardinalities that go by the steps (schedule, quota, count, share) finish within them; a region smaller than k_min
    then grows by its own rule. The others (above, factor, eb, all) go on until nothing is left, as their methods do.

    With a `base` every axis without a rule stays as the base's action has it, and its count stays unless `cardinality`
    changes it. With nothing but a region changed, only *where* changes: kappa = min(1, k / |region|).
    """

    base: Policy | None = None
    score: Mixture | None = None
    """confidence, margin, certainty, stability, dependency, uniform, rules with a plus, or weights; without a floor or
    a base also entropy or random."""
    region: str | None = None
    """full, block:N, last-block:N, window:N, dilated:N, near:N, groups:N, sliding:N[:LONGEST] or masks:N[:LONGEST]."""
    cardinality: str | float | None = None
    """schedule (k_min), quota, count:K, share:X or a number (kappa itself); above:X (confidence threshold), factor:F,
    eb:GAMMA or all, which steps do not bound; count:K:below may reveal fewer than k_min, until the last step."""
    commitment: str | None = None
    """all, none, confidence:X, margin:X; without a floor or a base also remdm-cap, remdm-rescale, remdm-conf,
    remdm-loop (each with :ETA), or both with a plus: confidence:0.9+remdm-conf."""
    holds: Literal["count", "share"] = "count"
    """What of the base stays where a region is changed: its count, or its share (kappa) of what is masked."""
    operator: ReMDM | None = None
    """What re-opens revisable positions until the last step. A full canvas may still be revised, so a row is then done
    only when its steps are."""
    floor: bool = False
    """Whether every cardinality reveals at least k_min, so that the steps end the run. Always so with a base."""

    def __post_init__(self) -> None:
        for axis, rule in _RULES.items():
            if self.base is None and getattr(self, axis) is None:
                object.__setattr__(self, axis, rule)
        super().__post_init__()
        _ = (self._weights, self._region, self._cardinality, self._commitment)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The registered name that results record."""
        if self.base is None:
            return "fixed" if self.floor else "composed"
        return "instead" if self.operator is None else "revised"

    @property
    def setting_fields(self) -> Mapping[str, str]:
        return _STORED[self.name] if type(self) is Composed else super().setting_fields

    # --- traits

    @property
    def parts(self) -> tuple[Policy, ...]:
        return () if self.base is None else (self.base,)

    @property
    def needs(self) -> Needs:
        return super().needs if self._weights is None else super().needs | score.needs(self._weights)

    @property
    def past_steps(self) -> int:
        past = super().past_steps
        own = int(self.needs.divergence or self._operator is not None)
        return past if past == ALL else max(past, own)

    @property
    def random(self) -> bool:
        return super().random or self.score == "random" or self._operator is not None

    @property
    def remasks(self) -> bool:
        return super().remasks or self._operator is not None

    @property
    def steps(self) -> str:
        if self._cardinality is None:
            assert self.base is not None
            steps = self.base.steps
        else:
            steps = "end" if self._bounded else "ignore"
        return "pace" if steps == "ignore" and self._operator is not None else steps  # the operator's clock

    @property
    def own_end(self) -> bool:
        return super().own_end or self._operator is not None

    @property
    def block_cache(self) -> bool:
        if self.base is not None or self.floor or self._operator is not None:
            return False
        return self._region is not None and self._region.rule in ("full", "block")

    @property
    def block_length(self) -> int | None:
        """Length of the blocks that are filled one after the other; None is one block."""
        return self._region.size if self._region is not None and self._region.rule == "block" else None

    @property
    def rules(self) -> dict[str, dict[str, Any]]:
        """The rule and the parameters of each axis, for a composition without a base."""
        assert self.base is None
        assert self.score is not None
        assert self._region is not None
        assert self._cardinality is not None
        assert self._commitment is not None
        rules = (score.describe_mixture(self.score), self._region.describe(), self._cardinality.describe())
        return dict(zip(AXES, (*rules, describe_commitment(*self._commitment)), strict=True))

    def check(self, state: State) -> None:
        super().check(state)
        if self._by_blocks:
            check_blocks(state, self.block_length, even=True)

    def model_input(self, traj: Trajectory) -> ModelInput:
        return super().model_input(traj) if self.base is None else self.base.model_input(traj)

    def done(self, traj: Trajectory) -> Tensor:
        done_B = super().done(traj) if self.base is None else self.base.done(traj)
        return done_B if self._operator is None else done_B & (traj.state.step_B >= traj.state.horizon_B)

    def bounded(self, length: int) -> Policy:
        return self if self.base is None else replace(self, base=self.base.bounded(length))

    # --- the decision

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        action = None if self.base is None else self.base.act(traj, look_ahead)
        if action is None or not (self.score is None and self.region is None and self.cardinality is None):
            alpha_BJ, rule = self._mixture(state, action)
            region_BL, kappa_B = self._where(traj, action, alpha_BJ, rule)
            if action is None:
                action = Action(alpha_BJ, region_BL, kappa_B, torch.ones_like(region_BL), rule=rule)
            else:
                action = replace(action, alpha_BJ=alpha_BJ, region_BL=region_BL, kappa_B=kappa_B, rule=rule)
        if self._commitment is not None:
            action = replace(action, commit_BL=self._commitment[0](state, traj.current_prediction))
        return action if self._operator is None else remask(traj, action, self._operator)

    def _mixture(self, state: State, action: Action | None) -> tuple[Tensor, str | None]:
        """The weights of the scoring rules, and the only rule among them if there is one."""
        if action is not None and self.score is None:
            return action.alpha_BJ, action.rule
        mixture = self._weights or "confidence"
        return score.rows(mixture, state), score.single_rule(mixture)

    def _where(
        self, traj: Trajectory, action: Action | None, alpha_BJ: Tensor, rule: str | None
    ) -> tuple[Tensor, Tensor]:
        """The region, and which share of it is revealed."""
        state, prediction = traj.state, traj.current_prediction
        if self._by_blocks:
            clock = block_clock(state, self.block_length)
            region_BL, kappa_B = clock.open_BL, cardinality.fraction(clock.quota_B, clock.open_BL.sum(-1))
        else:
            # A base such as Dream, whose region is the very set that it reveals, gets the full answer.
            region = self._region or Region.parse("full")
            region_BL = region(state, cardinality.k_min(state) if self._bounded else 1)
            if self._cardinality is None:
                assert action is not None
                return region_BL, self._held(state, action, region_BL)
            count = self._cardinality
            order_BL = self._order(traj, alpha_BJ, rule) if count.needs_order else None
            counted = count.within_steps if self._bounded else count
            kappa_B = counted(state, prediction, region_BL, order_BL)
        if self.score in ORDERS and not (self.floor or self.base):
            # The order is no mixture that `apply` knows, so the very set is named.
            k_B = cardinality.reveal_count(kappa_B, region_BL.sum(-1))
            chosen_BL = score.best(self._order(traj, alpha_BJ, rule), region_BL, k_B)
            return cardinality.reveal_set(chosen_BL, region_BL)
        return region_BL, kappa_B

    def _held(self, state: State, action: Action, region_BL: Tensor) -> Tensor:
        """kappa over a changed region that keeps the base's count, or its share."""
        k_B = cardinality.reveal_count(action.kappa_B, (action.region_BL & state.masked_BL).sum(-1))
        of_BL = region_BL if self.holds == "count" else state.masked_BL
        return cardinality.fraction(k_B, of_BL.sum(-1))

    def _order(self, traj: Trajectory, alpha_BJ: Tensor, rule: str | None) -> Tensor:
        """What positions are revealed by, best first."""
        if self.score == "random":
            return traj.uniform("order")
        if self.score == "entropy":
            return -traj.entropy_BL
        return score.order(alpha_BJ, traj.current_prediction, traj.state.tokens_BL.shape[1], rule)

    @property
    def _bounded(self) -> bool:
        """Whether the steps bound the count."""
        return self.floor or self.base is not None or (self._cardinality is not None and self._cardinality.by_steps)

    @property
    def _by_blocks(self) -> bool:
        """LLaDA's schedule, which has a clock for every block."""
        if self.base is not None or self.floor or self._cardinality is None or self._cardinality.rule != "quota":
            return False
        return self._region is not None and self._region.rule in ("full", "block")

    # --- the rules, read once

    @cached_property
    def _weights(self) -> list[float] | None:
        """Weights of the scoring rules; None for the base's own, and for an order that is no mixture of them."""
        alone = self.base is None and not self.floor
        if self.score is None or (alone and isinstance(self.score, str) and self.score in ORDERS):
            return None
        try:
            return score.weights(self.score)
        except UnknownName:
            if alone and isinstance(self.score, str) and not {"+", "*"} & set(self.score):
                raise UnknownName("scoring rule", self.score, (*RULES, "uniform", *ORDERS)) from None
            raise

    @cached_property
    def _region(self) -> Region | None:
        return None if self.region is None else Region.parse(self.region)

    @cached_property
    def _cardinality(self) -> Cardinality | None:
        if self.cardinality is None:
            return None
        return Cardinality.parse(self.cardinality, CARDINALITY.name if self.name == "composed" else CARDINALITY.setting)

    @cached_property
    def _commitment(self) -> tuple[Commitment, ReMDM | None] | None:
        if self.commitment is None:
            return None
        if self.base is None and not self.floor:
            return parse_commitment(self.commitment)
        return Commitment.parse(self.commitment), None

    @property
    def _operator(self) -> ReMDM | None:
        return self.operator or (None if self._commitment is None else self._commitment[1])


def compose(
    score: Mixture = "confidence",
    region: str = "full",
    cardinality: str | float = "schedule",
    commitment: str = "all",
) -> Composed:
    """A policy out of one rule per axis: `compose(score="margin", region="block:32", cardinality="eb:0.1")`."""
    return Composed(score=score, region=region, cardinality=cardinality, commitment=commitment)


def fixed_action(
    score: Mixture = "confidence",
    region: str = "full",
    cardinality: str | float = "schedule",
    commitment: str = "all",
) -> Composed:
    """The same named choice on each axis at every state.

    This is the paper's a_fix and every candidate of the laboratory. No count falls below k_min unless it says so: a run
    that reveals less early has to reveal the rest at once.
    """
    return Composed(score=score, region=region, cardinality=cardinality, commitment=commitment, floor=True)


def with_remasking(base: Policy | None = None, operator: ReMDM | None = None) -> Composed:
    """Let the base act, then re-open revisable positions at ReMDM's rate until the last step.

    What the base commits is out of reach. By default the base is LLaDA's decoder committing nothing.
    """
    return Composed(base or fixed_action(commitment="none"), operator=operator or ReMDM("conf"))


def remask(traj: Trajectory, action: Action, operator: ReMDM) -> Action:
    """The action, and what the operator re-opens."""
    state = traj.state
    psi_BL = confidence_when_revealed(traj)
    remask_BL = operator.remask(state, psi_BL, traj.uniform("remask"))
    # A row with no masks of its own reveals nothing: the region it must still name is what it re-opens.
    full_B = ~state.masked_BL.any(-1)
    if action.remask_BL is not None:
        full_B = full_B & ~action.remask_BL.any(-1)
    return replace(
        action,
        region_BL=torch.where(full_B[:, None], remask_BL, action.region_BL),
        kappa_B=torch.where(full_B, 0.0, action.kappa_B),
        remask_BL=remask_BL if action.remask_BL is None else remask_BL | action.remask_BL,
        notes={**action.notes, "psi_BL": psi_BL},
    )


def confidence_when_revealed(traj: Trajectory) -> Tensor:
    """psi: the probability each token had when it was last revealed; +inf where nothing stands."""
    never_BL = torch.full_like(traj.state.tokens_BL, float("inf"), dtype=torch.float64)
    if traj.last is None:
        return never_BL
    revealed_BL = traj.last.revealed_BL
    kept_BL = traj.notes.get("psi_BL", never_BL)
    psi_BL = torch.where(revealed_BL, traj.last.confidence_BL.double().nan_to_num(0.0), kept_BL)
    return torch.where(traj.state.revealed_BL, psi_BL, never_BL)


def has_own_input(policy: Policy) -> bool:
    """Whether a policy reads anything but the canvas as it is."""
    if isinstance(policy, Composed):
        return policy.base is not None and has_own_input(policy.base)
    return type(policy).model_input is not Policy.model_input
