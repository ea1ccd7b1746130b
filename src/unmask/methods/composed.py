"""Any score with any region, cardinality and commitment, alone or around another policy.

One class has four registered names. `composed` has one rule per axis, as the published methods do. `fixed` is the same
with at least k_min positions a step, as in the paper's fixed action a_fix. `instead` replaces axes of another policy's
action. `revised` adds ReMDM's remasking (Wang et al.) to a policy. Results record each name with its own spelling of
the settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

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


def _trait_of_any_part(trait: str) -> property:
    """Return a property that is true where a part of the policy has the trait."""
    return property(lambda self: any(getattr(part, trait) for part in self.parts))


class CombinedPolicy(Policy):
    """A policy that decides with other policies, its parts, and has the traits of its parts."""

    random = _trait_of_any_part("random")
    looks_ahead = _trait_of_any_part("looks_ahead")
    remasks = _trait_of_any_part("remasks")
    extra_steps = _trait_of_any_part("extra_steps")
    own_end = _trait_of_any_part("own_end")

    @property
    def parts(self) -> tuple[Policy, ...]:
        """Policies whose actions this policy combines or changes."""
        raise NotImplementedError

    @property
    def needs(self) -> Needs:
        return reduce(or_, (part.needs for part in self.parts), Needs())

    @property
    def past_steps(self) -> int:
        steps = [part.past_steps for part in self.parts]
        return ALL if ALL in steps else max(steps, default=0)

    @property
    def cuda_graph(self) -> bool:
        return all(part.cuda_graph for part in self.parts)

    def check(self, state: State) -> None:
        for part in self.parts:
            part.check(state)


class _Rules(NamedTuple):
    """Parsed rules of a composition, one for each axis; None on axes that the base decides."""

    weights: list[float] | None
    """Weights of the scoring rules; None also for the orders "entropy" and "random", which are no mixture."""
    region: Region | None
    cardinality: Cardinality | None
    commitment: Commitment | None
    operator: ReMDM | None
    within_steps: bool
    """Whether every step reveals enough positions to finish within the planned steps."""
    by_blocks: bool
    """Whether the count is LLaDA's schedule, which starts anew in every block."""


@dataclass(frozen=True)
class Composed(CombinedPolicy):
    """Decide by one named rule on each axis, alone or in place of axes of another policy's action.

    The cardinalities schedule, quota, count and share finish within the planned steps; a region smaller than k_min then
    grows by its own rule. The others (above, factor, eb, all) go on until nothing is masked, as their methods do.

    With a `base`, axes without a rule stay as the base's action has them. If only the region changes, the number of
    revealed positions stays the base's: kappa = min(1, k / |region|).
    """

    base: Policy | None = None
    score: Mixture | None = None
    """confidence, margin, certainty, stability, dependency, uniform, rules with a plus, or weights; without a floor or
    a base also entropy or random."""
    region: str | None = None
    """full, block:N, last-block:N, window:N, dilated:N, near:N, groups:N, sliding:N[:LONGEST] or masks:N[:LONGEST]."""
    cardinality: str | float | None = None
    """schedule (k_min), quota, count:K, share:X or a number (kappa itself); above:X (confidence threshold), factor:F,
    eb:GAMMA or all, which ignore the steps; count:K:below may reveal fewer than k_min, until the last step."""
    commitment: str | None = None
    """all, none, confidence:X, margin:X; without a floor or a base also remdm-cap, remdm-rescale, remdm-conf,
    remdm-loop (each with :ETA), or both with a plus: confidence:0.9+remdm-conf."""
    holds: Literal["count", "share"] = "count"
    """With a changed region: keep the base's `count` of revealed positions, or their `share` of the masked ones."""
    operator: ReMDM | None = None
    """Remasking operator that masks revisable positions again until the last step. A full canvas may still change, so
    a row is done only after all its steps."""
    floor: bool = False
    """Whether every cardinality reveals at least k_min, so that the steps end the run. Always true with a base."""

    def __post_init__(self) -> None:
        for axis, rule in _RULES.items():
            if self.base is None and getattr(self, axis) is None:
                object.__setattr__(self, axis, rule)
        super().__post_init__()
        _ = self._rules  # parsed here, so that an unknown rule is refused before the first step

    @property
    def name(self) -> str:  # type: ignore[override]
        """The registered name that results record."""
        if self.base is None:
            return "fixed" if self.floor else "composed"
        return "instead" if self.operator is None else "revised"

    @property
    def setting_fields(self) -> Mapping[str, str]:
        return _STORED[self.name] if type(self) is Composed else super().setting_fields

    @cached_property
    def _rules(self) -> _Rules:
        """The parsed rules. Without a base or a floor there are more of them to choose from."""
        alone = self.name == "composed"
        weights = None
        if self.score is not None and not (alone and self.score in ORDERS):
            try:
                weights = score.weights(self.score)
            except UnknownName:
                if alone and isinstance(self.score, str) and not {"+", "*"} & set(self.score):
                    raise UnknownName("scoring rule", self.score, (*RULES, "uniform", *ORDERS)) from None
                raise
        region = None if self.region is None else Region.parse(self.region)
        setting = CARDINALITY.name if alone else CARDINALITY.setting
        count = None if self.cardinality is None else Cardinality.parse(self.cardinality, setting)
        commitment, operator = None, self.operator
        if self.commitment is not None and alone:
            commitment, operator = parse_commitment(self.commitment)
        elif self.commitment is not None:
            commitment = Commitment.parse(self.commitment)
        within_steps, by_blocks = True, False
        if alone and region and count:
            within_steps = count.follows_steps
            by_blocks = count.rule == "quota" and region.rule in ("full", "block")
        return _Rules(weights, region, count, commitment, operator, within_steps, by_blocks)

    @property
    def rules(self) -> dict[str, dict[str, Any]]:
        """The rule and the parameters of each axis, for a composition without a base."""
        _, region, count, commitment, operator, *_ = self._rules
        assert self.score is not None
        assert region is not None
        assert count is not None
        assert commitment is not None
        described = (score.describe_mixture(self.score), region.describe(), count.describe())
        return dict(zip(AXES, (*described, describe_commitment(commitment, operator)), strict=True))

    # --- traits

    @property
    def parts(self) -> tuple[Policy, ...]:
        return () if self.base is None else (self.base,)

    @property
    def needs(self) -> Needs:
        weights = self._rules.weights
        return super().needs if weights is None else super().needs | score.needs(weights)

    @property
    def past_steps(self) -> int:
        past = super().past_steps
        own = int(self.needs.divergence or self._rules.operator is not None)
        return past if past == ALL else max(past, own)

    @property
    def random(self) -> bool:
        return super().random or self.score == "random" or self._rules.operator is not None

    @property
    def remasks(self) -> bool:
        return super().remasks or self._rules.operator is not None

    @property
    def own_end(self) -> bool:
        return super().own_end or self._rules.operator is not None

    @property
    def steps(self) -> str:
        if self.base is not None and self.cardinality is None:
            steps = self.base.steps
        else:
            steps = "end" if self._rules.within_steps else "ignore"
        # A changed region grows with k_min, and remasking goes on until the last step: both read the number of steps.
        reads_steps = self._rules.operator is not None or (self.base is not None and self.region is not None)
        return "pace" if steps == "ignore" and reads_steps else steps

    @property
    def block_cache(self) -> bool:
        region = self._rules.region
        if self.name != "composed" or self._rules.operator is not None or region is None:
            return False
        return region.rule in ("full", "block")

    @property
    def block_length(self) -> int | None:
        """Length of the blocks that are filled one after the other; None for one block."""
        region = self._rules.region
        return region.size if region is not None and region.rule == "block" else None

    def check(self, state: State) -> None:
        super().check(state)
        if self._rules.by_blocks:
            check_blocks(state, self.block_length, even=True)

    def model_input(self, traj: Trajectory) -> ModelInput:
        return super().model_input(traj) if self.base is None else self.base.model_input(traj)

    def done(self, traj: Trajectory) -> Tensor:
        done_B = super().done(traj) if self.base is None else self.base.done(traj)
        return done_B if self._rules.operator is None else done_B & (traj.state.step_B >= traj.state.horizon_B)

    def bounded(self, length: int) -> Policy:
        return self if self.base is None else replace(self, base=self.base.bounded(length))

    # --- the decision

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        rules = self._rules
        action = None if self.base is None else self.base.act(traj, look_ahead)
        if action is None or not (self.score is None and self.region is None and self.cardinality is None):
            action = self._choose(traj, action)
        if rules.commitment is not None:
            action = replace(action, commit_BL=rules.commitment(traj.state, traj.current_prediction))
        return action if rules.operator is None else remask(traj, action, rules.operator)

    def _choose(self, traj: Trajectory, base: Action | None) -> Action:
        """Apply the rules of score, region and cardinality, to the base's action where there is a base."""
        state, prediction, rules = traj.state, traj.current_prediction, self._rules
        if base is not None and self.score is None:
            alpha_BJ, only_rule = base.alpha_BJ, base.rule
        else:
            mixture = rules.weights or "confidence"
            alpha_BJ, only_rule = score.alpha_rows(mixture, state), score.only_weighted_rule(mixture)

        def order() -> Tensor:
            """Return the score of each position; the largest scores are revealed first."""
            if self.score == "random":
                return traj.uniform("order")
            if self.score == "entropy":
                return -traj.entropy_BL
            return score.order(alpha_BJ, prediction, state.tokens_BL.shape[1], only_rule)

        if rules.by_blocks:
            clock = block_clock(state, self.block_length)
            region_BL, kappa_B = clock.open_BL, cardinality.reveal_fraction(clock.quota_B, clock.open_BL.sum(-1))
        else:
            # The region of a base such as Dream is the set that it reveals, so without a region of its own a changed
            # score or count works on the whole answer.
            region = rules.region or Region.parse("full")
            region_BL = region(state, cardinality.k_min(state) if rules.within_steps else 1)
            if rules.cardinality is not None:
                count = rules.cardinality.within_steps if rules.within_steps else rules.cardinality
                kappa_B = count(state, prediction, region_BL, order() if rules.cardinality.uses_order else None)
            else:
                assert base is not None
                k_B = cardinality.reveal_count(base.kappa_B, (base.region_BL & state.masked_BL).sum(-1))
                held_BL = region_BL if self.holds == "count" else state.masked_BL
                kappa_B = cardinality.reveal_fraction(k_B, held_BL.sum(-1))
        if self.name == "composed" and self.score in ORDERS:
            # These orders are no mixture of scoring rules, so the action names its set of positions.
            k_B = cardinality.reveal_count(kappa_B, region_BL.sum(-1))
            region_BL, kappa_B = cardinality.reveal_set(score.best(order(), region_BL, k_B), region_BL)
        if base is None:
            return Action(alpha_BJ, region_BL, kappa_B, torch.ones_like(region_BL), rule=only_rule)
        return replace(base, alpha_BJ=alpha_BJ, region_BL=region_BL, kappa_B=kappa_B, rule=only_rule)


def compose(
    score: Mixture = "confidence",
    region: str = "full",
    cardinality: str | float = "schedule",
    commitment: str = "all",
) -> Composed:
    """Make a policy from one rule per axis: `compose(score="margin", region="block:32", cardinality="eb:0.1")`."""
    return Composed(score=score, region=region, cardinality=cardinality, commitment=commitment)


def fixed_action(
    score: Mixture = "confidence",
    region: str = "full",
    cardinality: str | float = "schedule",
    commitment: str = "all",
) -> Composed:
    """Make a fixed action a_fix: the same rule on each axis at every state, with at least k_min positions per step.

    Only a count such as "count:1:below" may stay under k_min; its run has to reveal all the rest at the last step.
    """
    return Composed(score=score, region=region, cardinality=cardinality, commitment=commitment, floor=True)


def with_remasking(base: Policy | None = None, operator: ReMDM | None = None) -> Composed:
    """Let a base policy act, then mask revisable positions again at ReMDM's rate, until the last step.

    Positions that the base commits are never masked again. The default base is LLaDA's decoder, committing nothing.
    """
    return Composed(base or fixed_action(commitment="none"), operator=operator or ReMDM("conf"))


def remask(traj: Trajectory, action: Action, operator: ReMDM) -> Action:
    """Add to an action the positions that the operator masks again."""
    state = traj.state
    psi_BL = confidence_when_revealed(traj)
    remask_BL = operator.remask(state, psi_BL, traj.uniform("remask"))
    # A row without masks reveals nothing, but an action must name a region: it names what it masks again.
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
    """Return psi, the probability of each revealed token when it was revealed; +inf at other positions."""
    never_BL = torch.full_like(traj.state.tokens_BL, float("inf"), dtype=torch.float64)
    if traj.last is None:
        return never_BL
    revealed_BL = traj.last.revealed_BL
    kept_BL = traj.notes.get("psi_BL", never_BL)
    # NaN stands for a token that no model proposed; it counts as the least sure.
    psi_BL = torch.where(revealed_BL, traj.last.confidence_BL.double().nan_to_num(0.0), kept_BL)
    return torch.where(traj.state.revealed_BL, psi_BL, never_BL)


def has_own_input(policy: Policy) -> bool:
    """Return whether a policy gives the denoiser another input than the canvas as it is."""
    if isinstance(policy, Composed):
        return policy.base is not None and has_own_input(policy.base)
    return type(policy).model_input is not Policy.model_input
