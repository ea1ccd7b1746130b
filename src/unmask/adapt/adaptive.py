"""Adaptive policies: Algorithm 1 of the paper, its gate rules, and the coverage of a run.

`Adaptive` takes a fixed action and deviates from it, on one axis or several, where a gate rule opens. The rule makes
the arm of a comparison: `AlwaysRule` for always-diagnostic adaptation, `DetectorRule` for selective adaptation, and
`RandomRule` for its control, which deviates as often at random states. `Staged` is the schedule that depends only on
the share of the answer that is still masked.
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

# --- gate rules


class GateRule(ABC):
    """Rule that says at which states an axis deviates from the fixed action. A rule is a frozen dataclass."""

    random: ClassVar[bool] = False
    """Whether the rule draws random numbers."""

    @abstractmethod
    def opens(self, signal_B: Tensor, traj: Trajectory) -> Tensor:
        """Return a mask of the rows that take the proposal; ignored on rows where the diagnostic abstains."""


@dataclass(frozen=True)
class AlwaysRule(GateRule):
    """Deviate at every state that has a proposal."""

    def opens(self, signal_B: Tensor, traj: Trajectory) -> Tensor:
        return torch.ones_like(signal_B, dtype=torch.bool)


@dataclass(frozen=True)
class DetectorRule(GateRule):
    """Deviate where the expected opportunity of the signal's bin is tau or more. `eq:opportunity_detector`"""

    starts: tuple[float, ...]
    """Signals at which the second and later bins start. A bin includes its start and excludes the next one's."""
    expected: tuple[float | None, ...]
    """Mean opportunity of the validation states in each bin; None for a bin without states, which stays shut."""
    tau: float | None
    """Smallest expected opportunity at which to deviate. None never opens; -inf opens every bin that has states."""

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
        for start, end in self.open_intervals:
            inside_B = signal_B >= start
            open_B = open_B | (inside_B if end is None else inside_B & (signal_B < end))
        return open_B

    @cached_property
    def open_intervals(self) -> tuple[tuple[float, float | None], ...]:
        """Intervals of the signal in which the gate is open, with neighbouring bins joined; None for no upper end."""
        bins = zip((float("-inf"), *self.starts), (*self.starts, None), self.expected, strict=True)
        intervals: list[tuple[float, float | None]] = []
        for start, end, expected in bins:
            if self.tau is None or expected is None or expected < self.tau:
                continue
            if intervals and intervals[-1][1] == start:
                start, _ = intervals.pop()
            intervals.append((start, end))
        return tuple(intervals)


@dataclass(frozen=True)
class RandomRule(GateRule):
    """Deviate with probability `coverage` at every state that has a proposal. All axes of a policy share one draw."""

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

    Several axes may adapt at once, which goes beyond the paper. They are decided in the order score, region,
    cardinality, commitment, and each diagnostic reads the action as changed by the axes before it: a proposed mixture
    orders the region and cardinality diagnostics, and counts are taken within a proposed region.
    """

    fixed: Policy
    """The fixed action a_fix, taken where no gate opens."""
    axes: Sequence[tuple[Diagnostic, GateRule]]
    """A diagnostic and its gate rule for each axis that adapts, in the order of the axes."""
    base: Policy | None = None
    """The reference, whose action the diagnostics read and change on their axis; None for the fixed action."""
    snap_to: tuple[Policy, ...] = ()
    """Candidates of the only axis: the nearest one replaces each proposal. Empty to take proposals unchanged."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        names = [diagnostic.axis for diagnostic in self.diagnostics]
        ordered = len(names) > 0 and names == [axis for axis in AXES if axis in names]
        require(ordered, "axes of the diagnostics", names, f"some of {', '.join(AXES)}, in this order", "sort them")
        ok = not self.snap_to or len(names) == 1
        require(ok, "axes with snap_to", names, "one", "drop the candidates, or adapt one axis")
        check_plain_policy(*self.parts)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        """Run the body of Algorithm 1's loop, between the forward and the transition."""
        action = self.readable_base.act(traj, NO_LOOK_AHEAD)
        deviates_B = torch.zeros_like(traj.state.step_B, dtype=torch.bool)
        notes: dict[str, Tensor] = {}
        for diagnostic, rule in self.axes:
            # Signal d_j(z) and proposal D_j(z). Without history, as at the first step, a diagnostic abstains.
            (reading,) = read_all([diagnostic], traj, action)
            # A proposal may be any action; snapped, it is one that validation has measured.
            proposed = self._snap_to_candidate(traj, reading.action) if self.snap_to else reading.action
            open_B = rule.opens(reading.signal_B, traj) & ~reading.abstains_B
            action = combine_actions(open_B, proposed, action)
            deviates_B = deviates_B | open_B
            notes |= deviation_notes(diagnostic.name, reading, open_B)
        # A row that deviates on no axis takes the fixed action, not the reference's that was read.
        action = combine_actions(deviates_B, action, self.fixed.act(traj, look_ahead))
        return replace(action, notes={**action.notes, **notes})

    @cached_property
    def readable_base(self) -> Policy:
        """The policy whose action the diagnostics read, with an explicit order of positions if one of them reads it."""
        ordered = any(diagnostic.ordered for diagnostic in self.diagnostics)
        return with_explicit_order(self.fixed if self.base is None else self.base, ordered)

    def _snap_to_candidate(self, traj: Trajectory, proposed: Action) -> Action:
        """Return for each row the action of the candidate that is nearest to its proposal."""
        actions = [policy.act(traj, NO_LOOK_AHEAD) for policy in self.snap_to]
        revealed_BL = apply(traj.state, traj.current_prediction, proposed).revealed_BL
        at_B = nearest_candidate(self.diagnostic.axis, traj.state, proposed, revealed_BL, actions)
        return reduce(lambda kept, at: combine_actions(at_B == at[0], at[1], kept), enumerate(actions), actions[0])

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
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The diagnostic of each axis."""
        return tuple(diagnostic for diagnostic, _ in self.axes)

    @property
    def rules(self) -> tuple[GateRule, ...]:
        """The gate rule of each axis."""
        return tuple(rule for _, rule in self.axes)

    @property
    def diagnostic(self) -> Diagnostic:
        """The diagnostic of the first or only axis."""
        return self.axes[0][0]

    @property
    def rule(self) -> GateRule:
        """The gate rule of the first or only axis."""
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
        # Counts and regions are proposed for the steps that are left, even if the fixed action ignores the steps.
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
"""Recorded settings of each registered name, and the attribute of `Adaptive` that holds each."""  # stored names


def combine_actions(first_B: Tensor, first: Action, second: Action) -> Action:
    """Return one action that is the first on the rows of the mask, and the second on all others."""

    def choose(one: Tensor, other: Tensor) -> Tensor:
        # A proposal shares the tensors of the axes that it does not change: nothing to choose there.
        return one if one is other else torch.where(first_B.view(-1, *[1] * (one.dim() - 1)), one, other)

    def choose_optional(one: Tensor | None, other: Tensor | None, blank: int) -> Tensor | None:
        if one is None and other is None:
            return None
        return torch.where(first_B[:, None], blank if one is None else one, blank if other is None else other)

    notes = {**first.notes, **second.notes}
    for name in first.notes.keys() & second.notes.keys():
        notes[name] = choose(first.notes[name], second.notes[name])
    return Action(
        alpha_BJ=choose(first.alpha_BJ, second.alpha_BJ),
        region_BL=choose(first.region_BL, second.region_BL),
        kappa_B=choose(first.kappa_B, second.kappa_B),
        commit_BL=choose(first.commit_BL, second.commit_BL),
        remask_BL=choose_optional(first.remask_BL, second.remask_BL, False),
        tokens_BL=choose_optional(first.tokens_BL, second.tokens_BL, -1),
        notes=notes,
    )


def nearest_candidate(
    axis: str, state: State, proposed: Action, revealed_BL: Tensor, candidates: Sequence[Action]
) -> Tensor:
    """Return the index of the candidate action nearest to a proposal on its axis, for each row.

    Of equally near candidates it is the first. `revealed_BL` are the positions that the proposal reveals.
    """
    if axis not in AXES:
        raise UnknownName("axis", axis, AXES)
    distance_AB = torch.stack([AXES[axis].distance(state, proposed, other, revealed_BL) for other in candidates])
    # Not argmin: it may return any of several equal minima, and another one on a GPU.
    least_B = distance_AB.min(0).values
    return (distance_AB == least_B).to(torch.int8).argmax(0)


def read_policy_diagnostics(policies: Mapping[str, Adaptive], traj: Trajectory) -> dict[str, Reading]:
    """Read the diagnostics of several one-axis policies at one state; on a GPU they run side by side.

    Diagnostics that read the same action are read in one call, so that they share its CUDA graph.
    """
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
    """Decode with another policy at each stage of the answer; stages go by the share that is still masked."""

    name: ClassVar[str] = "stage"
    policies: tuple[Policy, ...]
    """One policy for each stage, that of the most masked answers first."""

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
        stage_B = stage_of(traj.state, len(self.policies))
        first, *later = (policy.act(traj, look_ahead) for policy in self.policies)
        return reduce(lambda kept, at: combine_actions(stage_B == at[0], at[1], kept), enumerate(later, 1), first)


def stage_of(state: State, count: int) -> Tensor:
    """Return the stage of each row. Of four stages, 0 is for answers of which more than 3/4 is masked, and so on.

    `stats.stage_numbers` assigns stored states by the same division: another one could round to another stage.
    """
    masked_B = state.masked_BL.sum(-1).double() / state.answer_BL.sum(-1).double()
    return (count * (1 - masked_B)).floor().long().clamp(max=count - 1)


# --- coverage of a run


@dataclass(frozen=True)
class Coverage:
    """Number of steps at which each row of a run deviated from the fixed action because of one diagnostic."""

    steps_B: Tensor
    evaluated_B: Tensor
    """Steps with a signal, at which the gate could have opened; never a row's first step."""
    deviated_B: Tensor

    @property
    def share(self) -> float:
        """Deviations divided by evaluated steps, over all rows; NaN if no step was evaluated."""
        evaluated = int(self.evaluated_B.sum())
        return int(self.deviated_B.sum()) / evaluated if evaluated else float("nan")


def coverage(run: Trajectory) -> dict[str, Coverage]:
    """Count the deviations of a recorded run for each diagnostic; empty if no step was adaptive."""
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


# A policy can only leave its signal and decision in a recorded run as notes. No decision reads them.
_SIGNAL, _EVALUATED, _DEVIATED = "/signal_B", "/evaluated_B", "/deviated_B"  # stored names


def deviation_notes(diagnostic: str, reading: Reading, open_B: Tensor) -> dict[str, Tensor]:
    """Return signal and decision of a step as notes under the diagnostic's name."""
    return {
        diagnostic + _SIGNAL: reading.signal_B,
        diagnostic + _EVALUATED: ~reading.abstains_B,
        diagnostic + _DEVIATED: open_B,
    }


def noted_diagnostics(notes: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the diagnostics whose decisions are among a step's notes."""
    return [name.removesuffix(_DEVIATED) for name in notes if name.endswith(_DEVIATED)]


def without_deviation_notes(notes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a step's notes without the notes about deviations that adaptive policies add."""
    prefixes = tuple(f"{diagnostic}/" for diagnostic in noted_diagnostics(notes))
    return {name: note for name, note in notes.items() if not name.startswith(prefixes)}


# --- traits of combined policies


def needs_of(readers: Sequence[Policy | Diagnostic]) -> Needs:
    """Return the parts of a prediction that at least one of these policies and diagnostics reads."""
    return reduce(or_, (reader.needs for reader in readers), Needs())


def common_steps(policies: Sequence[Policy]) -> str:
    """Return the trait `steps` of these policies if they agree, else "pace": steps set a schedule but end no run."""
    meanings = {policy.steps for policy in policies}
    return meanings.pop() if len(meanings) == 1 else "pace"


def check_plain_policy(*policies: Policy) -> None:
    """Refuse policies with their own model input, end rule or look-ahead, which a combined policy would ignore."""
    for policy in policies:
        ignored = {"model_input": has_own_input(policy), "done": policy.own_end, "look-ahead": policy.looks_ahead}
        for part in (part for part, has in ignored.items() if has):
            raise ConfigError(
                f"{policy.name} has a {part} of its own; allowed here: policies that only act, such as fixed; "
                "put revised around the adaptive policy, not inside"
            )
