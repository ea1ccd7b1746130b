"""The arms of an end-to-end comparison, built from what validation prompts chose for one model, task and axis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from unmask.adapt.detector import Lookup
from unmask.adapt.diagnostics import Diagnostic
from unmask.adapt.joint import JointPolicy
from unmask.adapt.proposed import Proposed
from unmask.adapt.random_gate import RandomGate
from unmask.adapt.selective import Selective
from unmask.adapt.snapped import RandomSnapped, Snapped
from unmask.adapt.staged import Staged
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
    """One axis around one reference, and what was calibrated for it.

    On the commitment axis ReMDM's operator stands around every arm that may leave positions revisable: without it they
    would never be re-opened, and the axis would do nothing. It was part of every branch that the calibration saw.
    """

    axis: str
    reference_kind: str
    """Whose candidates these are: "llada" or "dream"."""
    calibration: Calibration
    diagnostic: Diagnostic
    operator: ReMDM | None = None
    """For the commitment axis, and for no other."""
    snaps_to: tuple[str, ...] = ()
    """Candidates, where the nearest of them stands in for a proposal; the first of equally near ones."""

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            raise UnknownName("axis", self.axis, AXES)
        read = self.diagnostic.axis
        require(read == self.axis, "axis of the diagnostic", read, repr(self.axis), "take a diagnostic of the axis")
        kind = self.calibration.settings.proposal
        ok, allowed = (kind == "snapped") == bool(self.snaps_to), "'snapped' with snaps_to, 'raw' without"
        require(ok, "proposal of the calibration", kind, allowed, "calibrate for what the decoder will run")
        fits = (self.operator is not None) == AXES[self.axis].revises
        allowed = "one where the axis revises, None elsewhere"
        require(fits, f"operator of {self.axis}", self.operator, allowed, "it re-opens what is left revisable")
        first = self._candidates[self.calibration.reference]
        name = self.calibration.candidates[self.calibration.reference]
        ok = first == self.reference
        require(ok, "reference of the calibration", name, f"that of {self.reference_kind}", "name the other kind")

    @property
    def reference(self) -> Policy:
        """The model's own decoder."""
        return reference_of(candidates(self.reference_kind))

    @property
    def fixed(self) -> Policy:
        """The action that is best on validation states, at every state."""
        return self._candidates[self.calibration.fixed.action]

    @property
    def stage(self) -> Policy:
        """The best action of each stage."""
        return self._revised(Staged(tuple(_inner(self._candidates[a]) for a in self.calibration.schedule.action_K)))

    @property
    def always(self) -> Policy:
        """The diagnostic's action wherever it proposes one."""
        return self._revised(Proposed(_inner(self.fixed), self.diagnostic, base=self._base))

    @property
    def selective(self) -> Policy:
        """The diagnostic's action where the detector expects an opportunity."""
        inner, lookup = _inner(self.fixed), Lookup.of(self.calibration)
        if self.snaps_to:
            return self._revised(Snapped(inner, self.diagnostic, lookup, self._near, base=self._base))
        return self._revised(Selective(inner, self.diagnostic, lookup, base=self._base))

    def random_gate(self, coverage: float) -> Policy:
        """The diagnostic's action at a random share of its steps."""
        inner = _inner(self.fixed)
        if self.snaps_to:
            return self._revised(RandomSnapped(inner, self.diagnostic, coverage, self._near, base=self._base))
        return self._revised(RandomGate(inner, self.diagnostic, coverage, base=self._base))

    def under(self, gate: Calibration, candidates: Sequence[str]) -> "Arms":
        """The same under another calibration; one of snapped proposals takes the nearest of the candidates."""
        snaps = gate.settings.proposal == "snapped"
        return replace(self, calibration=gate, snaps_to=tuple(candidates) if snaps else ())

    @property
    def _near(self) -> tuple[Policy, ...]:
        names = self.snaps_to
        return tuple(_inner(candidate(self.reference_kind, self.axis, name, self.operator)) for name in names)

    @cached_property
    def _candidates(self) -> tuple[Policy, ...]:
        names = self.calibration.candidates
        return tuple(candidate(self.reference_kind, self.axis, name, self.operator) for name in names)

    @property
    def _base(self) -> Policy:
        """All but the axis is the reference's. The score signal compares with the fixed mixture, so that is read."""
        policy = _inner(self.fixed) if AXES[self.axis].mixes else self.reference
        return with_explicit_order(policy, self.diagnostic.ordered)

    def _revised(self, policy: Policy) -> Policy:
        return policy if self.operator is None else with_remasking(policy, self.operator)


def joint_arm(arms: Sequence[Arms]) -> Policy:
    """Several axes adapted together: the fixed actions of all of them, and a gate for each."""
    kinds = {one.reference_kind for one in arms}
    require(len(kinds) == 1, "references of the arms", sorted(kinds), "one", "combine axes of one model")
    ordered = sorted(arms, key=lambda one: list(AXES).index(one.axis))
    names = {one.axis: one.calibration.candidates[one.calibration.fixed.action] for one in ordered}
    require(len(names) == len(arms), "axes", [one.axis for one in arms], "no axis twice", "drop one")
    policy = JointPolicy(
        combine_candidates(kinds.pop(), names),
        tuple(one.diagnostic for one in ordered),
        tuple(Lookup.of(one.calibration) for one in ordered),
    )
    operator = next((one.operator for one in ordered if one.operator is not None), None)
    return policy if operator is None else with_remasking(policy, operator)


def _inner(policy: Policy) -> Policy:
    """Without the operator, which goes around the arm."""
    if isinstance(policy, Composed) and policy.operator is not None and policy.base is not None:
        return policy.base
    return policy
