"""What the arms share that may leave the fixed action: who acts, when, and the record of it."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_

import torch
from torch import Tensor

from unmask.adapt.diagnostics import Diagnostic, Reading, read_all
from unmask.adapt.notes import noted
from unmask.base.errors import ConfigError
from unmask.core import ALL, NO_LOOK_AHEAD, Action, LookAhead, Needs, Policy, State, Trajectory
from unmask.methods import has_own_input, with_explicit_order


@dataclass(frozen=True)
class Gated(Policy):
    """Eq. (9) with its condition left open: the diagnostic's proposal on some rows, the fixed action on the others."""

    fixed: Policy
    """Who acts where the gate is shut."""
    diagnostic: Diagnostic
    base: Policy | None = field(default=None, kw_only=True)
    """Whose action the diagnostic reads and changes on its axis; None for the fixed one's."""

    def __post_init__(self) -> None:
        plain(self.fixed, self._base)

    @abstractmethod
    def opens(self, traj: Trajectory, reading: Reading) -> Tensor:
        """On which rows to take the proposal; asked about all, heard where there is one."""

    @property
    def needs(self) -> Needs:
        return needs_of([self.fixed, self._base], [self.diagnostic])

    @property
    def past_steps(self) -> int:
        return memory_of([self.fixed, self._base], [self.diagnostic])

    @property
    def random(self) -> bool:
        return self.fixed.random or self._base.random

    def check(self, state: State) -> None:
        self.fixed.check(state)
        self._base.check(state)

    @property
    def cuda_graph(self) -> bool:
        return self.fixed.cuda_graph and self._base.cuda_graph and self.diagnostic.cuda_graph

    def bounded(self, length: int) -> Policy:
        base = None if self.base is None else self.base.bounded(length)
        return replace(self, fixed=self.fixed.bounded(length), base=base)

    def read(self, traj: Trajectory) -> Reading:
        """Signal and proposal, whatever the gate says."""
        return read_all([self.diagnostic], traj, self._base.act(traj, NO_LOOK_AHEAD))[0]

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        reading = self.read(traj)
        open_B = self.opens(traj, reading) & ~reading.abstains_B
        action = choose(open_B, reading.action, self.fixed.act(traj, look_ahead))
        return replace(action, notes={**action.notes, **noted(self.diagnostic.name, reading, open_B)})

    @cached_property
    def _base(self) -> Policy:
        return with_explicit_order(self.fixed if self.base is None else self.base, self.diagnostic.ordered)


def read_together(policies: Mapping[str, Gated], traj: Trajectory) -> dict[str, Reading]:
    """What each policy reads at one state; those that read the same action do so side by side."""
    groups: dict[Policy, list[str]] = {}
    for name, policy in policies.items():
        groups.setdefault(policy._base, []).append(name)
    readings: dict[str, Reading] = {}
    for base, names in groups.items():
        diagnostics = [policies[name].diagnostic for name in names]
        readings |= zip(names, read_all(diagnostics, traj, base.act(traj, NO_LOOK_AHEAD)), strict=True)
    return {name: readings[name] for name in policies}


def choose(open_B: Tensor, proposed: Action, kept: Action) -> Action:
    """Row by row the one action or the other."""
    shared = proposed.notes.keys() & kept.notes.keys()
    return Action(
        alpha_BJ=_rows(open_B, proposed.alpha_BJ, kept.alpha_BJ),
        region_BL=_rows(open_B, proposed.region_BL, kept.region_BL),
        kappa_B=_rows(open_B, proposed.kappa_B, kept.kappa_B),
        commit_BL=_rows(open_B, proposed.commit_BL, kept.commit_BL),
        remask_BL=_optional(open_B, proposed.remask_BL, kept.remask_BL, False),
        tokens_BL=_optional(open_B, proposed.tokens_BL, kept.tokens_BL, -1),
        notes={
            **proposed.notes,
            **kept.notes,
            **{name: _rows(open_B, proposed.notes[name], kept.notes[name]) for name in shared},
        },
    )


def _rows(open_B: Tensor, one: Tensor, other: Tensor) -> Tensor:
    # A proposal keeps the tensors of the axes that it does not change.
    return one if one is other else torch.where(open_B.view(-1, *[1] * (one.dim() - 1)), one, other)


def _optional(open_B: Tensor, one: Tensor | None, other: Tensor | None, blank: int) -> Tensor | None:
    """`blank` stands for a part that one of the two does without."""
    if one is None:
        return None if other is None else torch.where(open_B[:, None], blank, other)
    return torch.where(open_B[:, None], one, blank) if other is None else _rows(open_B, one, other)


def plain(*policies: Policy) -> None:
    """Refuse policies whose own view, end or looks ahead would be lost inside another."""
    for policy in policies:
        for method in ("view", "done", "look-ahead"):
            if _overrides(policy, method):
                raise ConfigError(
                    f"{policy.name} has a {method} of its own; allowed here: policies that only act, such as fixed; "
                    "put revised around the adaptive policy, not inside"
                )


def _overrides(policy: Policy, method: str) -> bool:
    if method == "look-ahead":
        return policy.looks_ahead
    return policy.own_end if method == "done" else has_own_input(policy)


def needs_of(policies: Sequence[Policy], diagnostics: Sequence[Diagnostic] = ()) -> Needs:
    """Enough for all of them."""
    return reduce(or_, [*(policy.needs for policy in policies), *(diagnostic.needs for diagnostic in diagnostics)])


def memory_of(policies: Sequence[Policy], diagnostics: Sequence[Diagnostic] = ()) -> int:
    """As many past steps as the one that reads most."""
    read = [*(policy.past_steps for policy in policies), *(diagnostic.past_steps for diagnostic in diagnostics)]
    return ALL if ALL in read else max(read)
