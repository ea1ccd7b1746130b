"""Adaptive policies: Algorithm 1 of the paper, the rules that open its gate, and the record of what they did.

`Adaptive` takes a fixed action and deviates from it, on one axis or several, at the states where a rule says so. The
rule makes the arm of a comparison: `AlwaysRule` always-diagnostic adaptation, `DetectorRule` selective adaptation, and
`RandomRule` its control, which deviates as often at random states. `Staged` is the schedule that looks at nothing but
how much is still masked.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_
from typing import ClassVar

import torch
from torch import Tensor

from unmask.adapt.diagnostics import Diagnostic, Reading, read_all
from unmask.axes import AXES
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.core import ALL, NO_LOOK_AHEAD, Action, LookAhead, Needs, Policy, State, Trajectory
from unmask.engine import apply
from unmask.methods import CombinedPolicy, has_own_input, with_explicit_order
from unmask.stats import Calibration

# --- gate rules: at which states an axis deviates


class GateRule(ABC):
    """Decides at which states an axis deviates from the fixed action. A rule is a frozen dataclass."""

    random: ClassVar[bool] = False
    """Whether it draws random numbers."""

    @abstractmethod
    def opens(self, signal_B: Tensor, traj: Trajectory) -> Tensor:
        """Return a mask of rows that take the proposal. Where the diagnostic abstains its value does not matter."""


@dataclass(frozen=True)
class AlwaysRule(GateRule):
    """Deviate at every state that has a proposal."""

    def opens(self, signal_B: Tensor, traj: Trajectory) -> Tensor:
        return torch.ones_like(signal_B, dtype=torch.bool)


@dataclass(frozen=True)
class DetectorRule(GateRule):
    """Deviate where the opportunity that validation states lead to expect is tau or more. `eq:opportunity_detector`"""

    starts: tuple[float, ...]
    """Signals at which the bins after the first start; a bin holds its start and ends before the next."""
    expected: tuple[float | None, ...]
    """Mean validation opportunity of each bin; None for a bin without a state, which stays shut."""
    tau: float | None
    """Least expected opportunity at which to deviate. None never opens; -inf opens every bin that has states."""

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in pairwise(self.starts))
        require(rising, "starts of the bins", self.starts, "rising numbers", "calibrate again")
        bins = len(self.starts) + 1
        ok = len(self.expected) == bins
        require(ok, "expected opportunities", self.expected, f"one for each of {bins} bins", "calibrate again")

    @classmethod
    def of(cls, calibration: Calibration) -> "DetectorRule":
        """Make the rule of a calibration's detector and threshold."""
        expected = tuple(None if g != g else g for g in calibration.detector.g_B.tolist())
        return cls(tuple(calibration.detector.start_E.tolist()), expected, calibration.tau.value)

    def opens(self, signal_B: Tensor, traj: Trajectory) -> Tensor:
        # Compared with plain numbers: a table of bins would have to be copied to the device in every step.
        open_B = torch.zeros_like(signal_B, dtype=torch.bool)
        for start, end in self.open_stretches:
            inside_B = signal_B >= start
            open_B = open_B | (inside_B if end is None else inside_B & (signal_B < end))
        return open_B

    @cached_property
    def open_stretches(self) -> tuple[tuple[float, float | None], ...]:
        """Stretches of the signal in which the gate is open, neighbouring bins joined; None ends an unbounded one."""
        edges = [float("-inf"), *self.starts, None]
        stretches: list[tuple[float, float | None]] = []
        for (start, end), expected in zip(pairwise(edges), self.expected, strict=True):
            if start is None or self.tau is None or expected is None or expected < self.tau:
                continue
            if stretches and stretches[-1][1] == start:
                start = stretches.pop()[0]
            stretches.append((start, end))
        return tuple(stretches)


@dataclass(frozen=True)
class RandomRule(GateRule):
    """Deviate with probability `coverage` at every state that has a proposal. All axes of a policy share the draw."""

    random: ClassVar[bool] = True
    coverage: float

    def __post_init__(self) -> None:
        require(0 <= self.coverage <= 1, "coverage", self.coverage, "0 to 1", "take that of the selective run")

    def opens(self, signal_B: Tensor, traj: Trajectory) -> Tensor:
        step_B = traj.state.step_B
        return traj.noise.uniform(step_B, torch.zeros_like(step_B)[:, None], "random gate")[:, 0] < self.coverage


# --- Algorithm 1


@dataclass(frozen=True)
class Adaptive(CombinedPolicy):
    """Take the diagnostic's proposal where the gate rule opens, else the fixed action. `eq:selective_policy`

    With several axes every axis whose gate opens is replaced, in the order score, region, cardinality, commitment; this
    goes beyond the paper. Each diagnostic reads the action as assembled so far, so the diagnosed mixture is used inside
    the region and cardinality diagnostics, and counts are taken within the proposed region.
    """

    fixed: Policy
    """The fixed action a_fix, which is taken where no gate opens."""
    axes: Sequence[tuple[Diagnostic, GateRule]]
    """One diagnostic and its gate rule for each axis that adapts, in the order of the axes."""
    base: Policy | None = None
    """The reference, whose action the diagnostics read and change on their axis; None for the fixed action."""
    snap_to: tuple[Policy, ...] = ()
    """Candidates of the axis, of which the nearest to a proposal is taken in its place; empty for proposals as they
    are. Only with one axis."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        names = [diagnostic.axis for diagnostic in self.diagnostics]
        ordered = len(names) > 0 and names == [axis for axis in AXES if axis in names]
        require(ordered, "axes of the diagnostics", names, f"some of {', '.join(AXES)}, in this order", "sort them")
        ok = not self.snap_to or len(names) == 1
        require(ok, "axes with snap_to", names, "one", "drop the candidates, or adapt one axis")
        check_plain_policy(*self.parts)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        """One pass through the loop of Algorithm 1, between the forward and the transition."""
        action = self.readable_base.act(traj, NO_LOOK_AHEAD)
        deviates_B = torch.zeros_like(traj.state.step_B, dtype=torch.bool)
        notes: dict[str, Tensor] = {}
        for diagnostic, rule in self.axes:
            # Signal d_j(z) and proposal D_j(z). A diagnostic without history abstains, as at the first step.
            (reading,) = read_all([diagnostic], traj, action)
            proposed = self._snap(traj, reading.action) if self.snap_to else reading.action
            open_B = rule.opens(reading.signal_B, traj) & ~reading.abstains_B
            action = combine_actions(open_B, proposed, action)
            deviates_B = deviates_B | open_B
            notes |= deviation_notes(diagnostic.name, reading, open_B)
        action = combine_actions(deviates_B, action, self.fixed.act(traj, look_ahead))
        return replace(action, notes={**action.notes, **notes})

    @cached_property
    def readable_base(self) -> Policy:
        """The policy whose action the diagnostics read. Its order is written out where one of them reads the order."""
        ordered = any(diagnostic.ordered for diagnostic in self.diagnostics)
        return with_explicit_order(self.fixed if self.base is None else self.base, ordered)

    def _snap(self, traj: Trajectory, proposed: Action) -> Action:
        actions = [policy.act(traj, NO_LOOK_AHEAD) for policy in self.snap_to]
        revealed_BL = apply(traj.state, traj.current_prediction, proposed).revealed_BL
        at_B = nearest_candidate(self.diagnostic.axis, traj.state, proposed, revealed_BL, actions)
        return reduce(lambda kept, at: combine_actions(at_B == at[0], at[1], kept), enumerate(actions), actions[0])

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The diagnostic of each axis."""
        return tuple(diagnostic for diagnostic, _ in self.axes)

    @property
    def rules(self) -> tuple[GateRule, ...]:
        """The gate rule of each axis."""
        return tuple(rule for _, rule in self.axes)

    # --- what results record

    @property
    def name(self) -> str:  # type: ignore[override]
        """The registered name that results record; "adaptive" for combinations that have none."""
        if len(self.axes) > 1:
            usual = self.base is None and all(type(rule) is DetectorRule for rule in self.rules)
            return "joint" if usual else "adaptive"
        return _NAMES.get((type(self.rule), bool(self.snap_to)), "adaptive")

    @property
    def setting_fields(self) -> Mapping[str, str]:
        return _STORED[self.name]

    @property
    def diagnostic(self) -> Diagnostic:
        """The diagnostic of the only axis, or of the first."""
        return self.axes[0][0]

    @property
    def rule(self) -> GateRule:
        """The gate rule of the only axis, or of the first."""
        return self.axes[0][1]

    @property
    def coverage(self) -> float | None:
        """The share of steps at which a random rule deviates; None for other rules."""
        return self.rule.coverage if isinstance(self.rule, RandomRule) else None

    # --- traits

    @property
    def parts(self) -> tuple[Policy, ...]:
        return self.fixed, self.readable_base, *self.snap_to

    @property
    def needs(self) -> Needs:
        return super().needs | needs_of(self.diagnostics)

    @property
    def past_steps(self) -> int:
        steps = [super().past_steps, *(diagnostic.past_steps for diagnostic in self.diagnostics)]
        return ALL if ALL in steps else max(steps)

    @property
    def random(self) -> bool:
        return super().random or any(rule.random for rule in self.rules)

    @property
    def steps(self) -> str:
        # Counts and regions are proposed for the steps that are left, whatever the fixed action does with them.
        steps = common_steps(self.parts)
        return "pace" if steps == "ignore" else steps

    @property
    def cuda_graph(self) -> bool:
        return super().cuda_graph and all(diagnostic.cuda_graph for diagnostic in self.diagnostics)

    def bounded(self, length: int) -> Policy:
        base = None if self.base is None else self.base.bounded(length)
        near = tuple(policy.bounded(length) for policy in self.snap_to)
        return replace(self, fixed=self.fixed.bounded(length), base=base, snap_to=near)


_NAMES = {
    (AlwaysRule, False): "always",
    (DetectorRule, False): "selective",
    (DetectorRule, True): "snapped",
    (RandomRule, False): "random-gate",
    (RandomRule, True): "random-snapped",
}
_ONE_AXIS = {"fixed": "fixed", "diagnostic": "diagnostic", "base": "base"}
_STORED: Mapping[str, Mapping[str, str]] = {
    "always": _ONE_AXIS,
    "selective": _ONE_AXIS | {"detector": "rule"},
    "snapped": _ONE_AXIS | {"detector": "rule", "candidates": "snap_to"},
    "random-gate": _ONE_AXIS | {"coverage": "coverage"},
    "random-snapped": _ONE_AXIS | {"coverage": "coverage", "candidates": "snap_to"},
    "joint": {"fixed": "fixed", "diagnostics": "diagnostics", "detectors": "rules"},
    "adaptive": {name: name for name in ("fixed", "axes", "base", "snap_to")},
}
"""Recorded settings of each registered name, and the attribute that holds each."""  # stored names


def combine_actions(first_B: Tensor, first: Action, second: Action) -> Action:
    """Return the first action on the rows of the mask, and the second on the others."""

    def rows(one: Tensor, other: Tensor) -> Tensor:
        # A proposal keeps the tensors of the axes that it does not change.
        return one if one is other else torch.where(first_B.view(-1, *[1] * (one.dim() - 1)), one, other)

    def optional(one: Tensor | None, other: Tensor | None, blank: int) -> Tensor | None:
        if one is None and other is None:
            return None
        return torch.where(first_B[:, None], blank if one is None else one, blank if other is None else other)

    shared = first.notes.keys() & second.notes.keys()
    return Action(
        alpha_BJ=rows(first.alpha_BJ, second.alpha_BJ),
        region_BL=rows(first.region_BL, second.region_BL),
        kappa_B=rows(first.kappa_B, second.kappa_B),
        commit_BL=rows(first.commit_BL, second.commit_BL),
        remask_BL=optional(first.remask_BL, second.remask_BL, False),
        tokens_BL=optional(first.tokens_BL, second.tokens_BL, -1),
        notes={**first.notes, **second.notes, **{name: rows(first.notes[name], second.notes[name]) for name in shared}},
    )


def nearest_candidate(
    axis: str, state: State, proposed: Action, revealed_BL: Tensor, candidates: Sequence[Action]
) -> Tensor:
    """Index of the candidate nearest to a proposal on its axis, row by row; the first of equally near ones.

    `revealed_BL` are the positions that the proposal reveals.
    """
    if axis not in AXES:
        raise UnknownName("axis", axis, AXES)
    distance_AB = torch.stack([AXES[axis].distance(state, proposed, other, revealed_BL) for other in candidates])
    # Not argmin, which promises no order among ties.
    least_B = distance_AB.min(0).values
    return (distance_AB == least_B).to(torch.int8).argmax(0)


def read_together(policies: Mapping[str, Adaptive], traj: Trajectory) -> dict[str, Reading]:
    """Readings of one-axis policies at one state, by name; diagnostics that read the same action run side by side."""
    groups: dict[Policy, list[str]] = {}
    for name, policy in policies.items():
        groups.setdefault(policy.readable_base, []).append(name)
    readings: dict[str, Reading] = {}
    for base, names in groups.items():
        diagnostics = [policies[name].diagnostic for name in names]
        readings |= zip(names, read_all(diagnostics, traj, base.act(traj, NO_LOOK_AHEAD)), strict=True)
    return {name: readings[name] for name in policies}


# --- the stage-only schedule


@dataclass(frozen=True)
class Staged(CombinedPolicy):
    """One policy for each stage of the masked share, the stage of the most masked answers first."""

    name: ClassVar[str] = "stage"
    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        require(len(self.policies) > 0, "policies", self.policies, "one or more", "name one for each stage")
        check_plain_policy(*self.policies)

    @property
    def parts(self) -> tuple[Policy, ...]:
        return self.policies

    @property
    def steps(self) -> str:
        return common_steps(self.policies)

    def bounded(self, length: int) -> Policy:
        return replace(self, policies=tuple(policy.bounded(length) for policy in self.policies))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        stage_B = stage(traj.state, len(self.policies))
        first, *later = (policy.act(traj, look_ahead) for policy in self.policies)
        return reduce(lambda kept, at: combine_actions(stage_B == at[0], at[1], kept), enumerate(later, 1), first)


def stage(state: State, count: int) -> Tensor:
    """Stage of each row: with four, 0 where more than 3/4 of the answer is masked, 3 where at most 1/4 is.

    Computed as `stats.stages`, which assigns stored states: the same division rounds the same way.
    """
    masked_B = state.masked_BL.sum(-1).double() / state.answer_BL.sum(-1).double()
    return (count * (1 - masked_B)).floor().long().clamp(max=count - 1)


# --- the record of a run


@dataclass(frozen=True)
class Coverage:
    """How often each row of a run deviated from the fixed action, by one diagnostic."""

    steps_B: Tensor
    evaluated_B: Tensor
    """Steps at which there was a signal, so that the gate could have opened; never a row's first."""
    deviated_B: Tensor

    @property
    def share(self) -> float:
        """Deviations by evaluated steps, all rows together; NaN without any."""
        evaluated = int(self.evaluated_B.sum())
        return int(self.deviated_B.sum()) / evaluated if evaluated else float("nan")


def coverage(run: Trajectory) -> dict[str, Coverage]:
    """Count per diagnostic how often a recorded run deviated from the fixed action; empty if no step was adaptive."""
    require(bool(run.steps), "steps of the run", 0, "one or more", "decode with record=True")
    zero_B = torch.zeros_like(run.forwards_B)
    counts: dict[str, Coverage] = {}
    for step in run.steps:
        notes = step.action.notes
        for name in noted_diagnostics(notes):
            so_far = counts.get(name, Coverage(zero_B, zero_B, zero_B))
            counts[name] = Coverage(
                so_far.steps_B.index_add(0, step.rows_B, torch.ones_like(step.rows_B)),
                so_far.evaluated_B.index_add(0, step.rows_B, notes[name + _EVALUATED].long()),
                so_far.deviated_B.index_add(0, step.rows_B, notes[name + _DEVIATED].long()),
            )
    return counts


# Notes are the one channel from a policy into a recorded run; nothing is decided by these.
_SIGNAL, _EVALUATED, _DEVIATED = "/signal_B", "/evaluated_B", "/deviated_B"  # stored names


def deviation_notes(diagnostic: str, reading: Reading, open_B: Tensor) -> dict[str, Tensor]:
    """Notes of one step under the diagnostic's name, so that several diagnostics of one axis do not mix."""
    return {
        diagnostic + _SIGNAL: reading.signal_B,
        diagnostic + _EVALUATED: ~reading.abstains_B,
        diagnostic + _DEVIATED: open_B,
    }


def noted_diagnostics(notes: Mapping[str, Tensor]) -> list[str]:
    """Names of the diagnostics whose deviations are among the notes of a step."""
    return [name.removesuffix(_DEVIATED) for name in notes if name.endswith(_DEVIATED)]


def without_deviation_notes(notes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return all notes but those of adaptive policies."""
    ours = tuple(f"{diagnostic}/" for diagnostic in noted_diagnostics(notes))
    return {name: note for name, note in notes.items() if not name.startswith(ours)}


# --- policies as parts


def needs_of(readers: Sequence[Policy | Diagnostic]) -> Needs:
    """Return the parts of a prediction that at least one of these policies and diagnostics reads."""
    return reduce(or_, (reader.needs for reader in readers), Needs())


def common_steps(policies: Sequence[Policy]) -> str:
    """Return the trait `steps` of these policies if all agree, else "pace": a schedule that ends nothing."""
    meanings = {policy.steps for policy in policies}
    return meanings.pop() if len(meanings) == 1 else "pace"


def check_plain_policy(*policies: Policy) -> None:
    """Refuse policies with their own model input, end rule or look-ahead, which a policy around them would ignore."""
    for policy in policies:
        lost = {"view": has_own_input(policy), "done": policy.own_end, "look-ahead": policy.looks_ahead}
        for part in (part for part, has in lost.items() if has):
            raise ConfigError(
                f"{policy.name} has a {part} of its own; allowed here: policies that only act, such as fixed; "
                "put revised around the adaptive policy, not inside"
            )
