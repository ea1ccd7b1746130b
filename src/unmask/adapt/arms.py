"""The arms of an end-to-end comparison, built from the calibration of one model, task and axis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from unmask.adapt.adaptive import Adaptive, AlwaysRule, DetectorRule, GateRule, RandomRule, Staged
from unmask.adapt.diagnostics import Diagnostic
from unmask.axes import AXES, ReMDM
from unmask.base.errors import UnknownName, require
from unmask.core import Policy
from unmask.methods import (
    Composed,
    candidate,
    candidates,
    combine_candidates,
    reference_of,
    with_explicit_order,
    with_remasking,
)
from unmask.stats import Calibration


@dataclass(frozen=True, eq=False)
class Arms:
    """The decoders that are compared on one axis around one reference, according to a calibration.

    On the commitment axis every arm that may leave positions revisable is wrapped in ReMDM's operator, as were the
    branches of the calibration. Without it no position would be masked again, and the axis would change nothing.
    """

    axis: str
    reference_kind: str
    """Name of the reference whose candidates these are: "llada", "dream", or a registered one."""
    calibration: Calibration
    diagnostic: Diagnostic
    operator: ReMDM | None = None
    """The remasking operator of the commitment axis; None on every other axis."""
    snap_to: tuple[str, ...] = ()
    """Names of candidates, of which the nearest one replaces a proposal; empty to take proposals unchanged."""

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            raise UnknownName("axis", self.axis, AXES)
        read = self.diagnostic.axis
        require(read == self.axis, "axis of the diagnostic", read, repr(self.axis), "take a diagnostic of the axis")
        kind = self.calibration.settings.proposal
        ok, allowed = (kind == "snapped") == bool(self.snap_to), "'snapped' with snap_to, 'raw' without"
        require(ok, "proposal of the calibration", kind, allowed, "calibrate for what the decoder will run")
        fits = (self.operator is not None) == AXES[self.axis].revises
        allowed = "one where the axis revises, None elsewhere"
        require(fits, f"operator of {self.axis}", self.operator, allowed, "it re-opens what is left revisable")
        first = self._candidate_policies[self.calibration.reference]
        name = self.calibration.candidates[self.calibration.reference]
        ok = first == self.reference
        require(ok, "reference of the calibration", name, f"that of {self.reference_kind}", "name the other kind")

    @property
    def reference(self) -> Policy:
        """The model's own decoder."""
        return reference_of(candidates(self.reference_kind))

    @property
    def fixed(self) -> Policy:
        """The candidate that is best on validation states, taken at every state."""
        return self._candidate_policies[self.calibration.fixed.action]

    @property
    def stage(self) -> Policy:
        """The best candidate of each stage of the masked share."""
        chosen = (self._candidate_policies[action] for action in self.calibration.schedule.action_K)
        return self._add_operator(Staged(tuple(map(_without_operator, chosen))))

    @property
    def always(self) -> Policy:
        """The diagnostic's proposal at every state that has one."""
        return self._build_adaptive(AlwaysRule())

    @property
    def selective(self) -> Policy:
        """The diagnostic's proposal where the detector expects an opportunity."""
        return self._build_adaptive(DetectorRule.of(self.calibration), self.snap_to)

    def random_gate(self, coverage: float) -> Policy:
        """Return the control that takes proposals at a random share of the steps that have one."""
        return self._build_adaptive(RandomRule(coverage), self.snap_to)

    def with_calibration(self, calibration: Calibration, candidates: Sequence[str]) -> "Arms":
        """Return the arms of another calibration, with the candidates if it is one for snapped proposals."""
        snapped = calibration.settings.proposal == "snapped"
        return replace(self, calibration=calibration, snap_to=tuple(candidates) if snapped else ())

    def _build_adaptive(self, rule: GateRule, snap_to: Sequence[str] = ()) -> Policy:
        """Make the arm that takes proposals where the gate rule opens."""
        fixed = _without_operator(self.fixed)
        # Diagnostics read the reference's action, but the score signal compares with the mixture of the fixed action.
        base = with_explicit_order(fixed if AXES[self.axis].mixes else self.reference, self.diagnostic.ordered)
        near = tuple(_without_operator(self._build_candidate(name)) for name in snap_to)
        return self._add_operator(Adaptive(fixed, [(self.diagnostic, rule)], base, near))

    def _build_candidate(self, name: str) -> Policy:
        return candidate(self.reference_kind, self.axis, name, self.operator)

    @cached_property
    def _candidate_policies(self) -> tuple[Policy, ...]:
        return tuple(map(self._build_candidate, self.calibration.candidates))

    def _add_operator(self, policy: Policy) -> Policy:
        return policy if self.operator is None else with_remasking(policy, self.operator)


def joint_arm(arms: Sequence[Arms]) -> Policy:
    """Return a policy that adapts several axes together, from the fixed actions of all and a gate for each."""
    kinds = {one.reference_kind for one in arms}
    require(len(kinds) == 1, "references of the arms", sorted(kinds), "one", "combine axes of one model")
    ordered = sorted(arms, key=lambda one: list(AXES).index(one.axis))
    names = {one.axis: one.calibration.candidates[one.calibration.fixed.action] for one in ordered}
    require(len(names) == len(arms), "axes", [one.axis for one in arms], "no axis twice", "drop one")
    axes = [(one.diagnostic, DetectorRule.of(one.calibration)) for one in ordered]
    policy = Adaptive(combine_candidates(kinds.pop(), names), axes)
    operator = next((one.operator for one in ordered if one.operator is not None), None)
    return policy if operator is None else with_remasking(policy, operator)


def _without_operator(policy: Policy) -> Policy:
    """Return a policy without its remasking operator, which is put around the whole arm instead."""
    if isinstance(policy, Composed) and policy.operator is not None and policy.base is not None:
        return policy.base
    return policy
