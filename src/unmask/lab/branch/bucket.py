"""A plan laid out over the states of prompts whose canvases have one length: who acts where, and what follows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch

from unmask.adapt import needs_of
from unmask.api import Request
from unmask.core import Needs, Noise, Policy, row_key
from unmask.lab.branch.plan import Plan, stream
from unmask.lab.branch.states import ReferenceRun, Sampled
from unmask.methods import has_own_input

T = TypeVar("T")


class BranchPoint(NamedTuple):
    """A sampled state, and whose it is."""

    path: int
    """Index of the prompt's reference run in the bucket."""
    request: Request
    sampled: Sampled


class Actor(NamedTuple):
    """Who takes a step at a state."""

    policy: Policy
    guest: bool = False
    """A whole method on the policy axis: it acts once, on a past that is not its own, and may look ahead."""


class Bucket:
    """Prompts of one canvas length: their states, the alternatives tried at each, the continuation of each axis."""

    def __init__(self, plan: Plan, paths: Sequence[ReferenceRun]):
        self.plan, self.paths = plan, paths
        self.points = [BranchPoint(at, path.request, one) for at, path in enumerate(paths) for one in path.sampled]
        self.alternatives = plan.alternatives
        self.actors: list[Actor] = []
        """Those of the alternatives, each once: the reference is a candidate of every axis."""
        self.actor_of = [number_of(Actor(one.policy, plan.is_guest(one)), self.actors) for one in self.alternatives]
        """Index into `actors` of every alternative."""
        readers = [one.policy for one in self.actors if not (one.guest and has_own_input(one.policy))]
        needs = needs_of(readers)
        self.needs = replace(needs, shadows=False) if has_own_input(plan.reference) else needs
        """The first forward at a state serves every alternative that reads the canvas, and is what the record of a
        candidate's step shows the reference."""
        self.recalled = _recalled([one.policy for one in self.actors])
        """What is read of the step before."""
        self.continuations = {axis: plan.continuation(axis) for axis in plan.candidates}
        if any(bool(path.states.revisable_BL.any()) for path in paths):
            self.continuations = {axis: replace(after, settled=None) for axis, after in self.continuations.items()}

    @property
    def branches_per_state(self) -> int:
        return len(self.alternatives) * self.plan.rollouts

    def chunks(self, most: int) -> Iterator[list[int]]:
        """Indices of points that are expanded together: with pasts of one structure, `most` at a time."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for at, point in enumerate(self.points):
            alike.setdefault(point.sampled.batch.slots, []).append(at)
        for slots in sorted(alike, key=lambda slots: (len(slots), *slots)):
            yield from (alike[slots][at : at + most] for at in range(0, len(alike[slots]), most))

    def draws(self, policy: Policy) -> bool:
        """Whether random numbers decide what happens under a policy: its own, or those of the tokens."""
        return policy.random or self.plan.temperature > 0

    def noise(self, points: Sequence[int], rollouts: Sequence[int], device: torch.device) -> Noise:
        """The random numbers of branches: every candidate at a state has those of its rollout."""
        keys = []
        for at, rollout in zip(points, rollouts, strict=True):
            point = self.points[at]
            keys.append(row_key(self.plan.seed, point.request.key, stream(point.sampled.step, rollout)))
        return Noise.of(keys, device)


def _recalled(policies: Sequence[Policy]) -> Needs:
    """What policies read of the step before, which was asked about its masks unless one of its readers says otherwise.

    A re-masked position has a past for those alone who ask about revealed ones, whatever others there are.
    """
    readers = [policy.needs for policy in policies if policy.needs.divergence or policy.needs.posterior]
    return replace(needs_of(policies), shadows=False, revealed=any(needs.revealed for needs in readers))


def number_of(one: T, known: list[T]) -> int:
    """Place of a policy in the list, at its end if it is new. By equality: settings may not be hashable."""
    if one not in known:
        known.append(one)
    return known.index(one)
