"""What is tried at every state of the reference's run, what follows it, and how much is computed at once."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from unmask.adapt import Adaptive, AlwaysRule, Diagnostic
from unmask.axes import POLICY, ReMDM, revises
from unmask.base.errors import require
from unmask.core import Policy
from unmask.methods import CandidateSets, check_reference, with_remasking

PROPOSAL = "proposal"
"""Candidate name of a branch that takes a diagnostic's own action; its column `diagnostic` says whose."""


@dataclass(frozen=True)
class BatchSettings:
    """Sizes of what is computed at once. Tables depend on `rows` and `bucket` alone, and only through rounding."""

    rows: int
    """Canvases of one forward."""
    live: int = 64
    """Branches that take a step together, `rows` at a time through the denoiser; never fewer than `rows`."""
    bucket: int = 32
    """Canvases are padded to a multiple of this."""
    waiting: int = 4096
    """About how many branches are held at once. Bounds memory."""
    merge: bool = True
    """Do equal work once. False runs every branch by itself, with the same results."""

    def __post_init__(self) -> None:
        require(self.rows >= 1, "rows", self.rows, "1 or more", "a forward needs a row")
        require(self.live >= 1, "live", self.live, "1 or more", "a step needs a branch")
        ok = self.bucket >= 1 and self.bucket % 32 == 0
        require(ok, "bucket", self.bucket, "a multiple of 32", "networks pad to that anyway")
        require(self.waiting >= 1, "waiting", self.waiting, "1 or more", "a few thousand are few megabytes")


@dataclass(frozen=True)
class Continuation:
    """The policy that decodes to the end after a branch's own action."""

    policy: Policy
    settled: Policy | None = None
    """Cheaper policy with the same decisions once nothing is revisable; it must commit all that it reveals."""

    def __post_init__(self) -> None:
        short = self.policy.past_steps in (0, 1)
        require(short, f"memory of {self.policy.name}", self.policy.past_steps, "0 or 1", "take another continuation")


class Alternative(NamedTuple):
    """One action that is tried at every state: a candidate's, or the one that a diagnostic proposes."""

    axis: str
    candidate: str
    """`PROPOSAL` for a diagnostic's."""
    policy: Policy
    diagnostic: str = ""
    """Name of the diagnostic that proposes; empty for a candidate."""
    one_step: bool = False
    """A whole method on the policy axis: it acts once, on the reference's past, and may look ahead."""


@dataclass(frozen=True)
class BranchPlan:
    """The reference, the alternatives that are tried at its states, and how often each is continued."""

    reference: Policy
    candidates: CandidateSets
    """By axis and name; the first of every axis is the reference."""
    operator: ReMDM
    """Masks again what candidates of a revising axis leave revisable."""
    rollouts: int
    states: int
    """Number of sampled states of each prompt."""
    seed: int
    temperature: float = 0.0
    diagnostics: Mapping[str, Diagnostic] = field(default_factory=dict)
    """By name, any number per axis. Each is read at every state, and its proposal is branched, too."""
    summaries: bool = False
    """Keep with every reading how sure the prediction was at the state."""

    def __post_init__(self) -> None:
        for name, diagnostic in self.diagnostics.items():
            ok = name == diagnostic.name
            require(ok, "name of a diagnostic", name, f"'{diagnostic.name}', its own", "readings go by it")
            ok = diagnostic.axis in self.candidates and PROPOSAL not in self.candidates[diagnostic.axis]
            require(ok, "axis of a diagnostic", diagnostic.axis, ", ".join(self.candidates), "add its candidates")
        require(self.rollouts >= 1, "rollouts", self.rollouts, "1 or more", "continue each branch at least once")
        for axis, named in self.candidates.items():
            first = next(iter(named.values()), None)
            ok = first == self.reference
            require(ok, f"the first candidate of {axis}", first, "the reference", "put it first")
            for name, policy in named.items():
                ok = isinstance(policy, Policy)
                require(ok, f"candidate {name!r} of {axis}", policy, "a policy", "a search owns its loop: drop it")
        require(bool(self.candidates), "axes", [], "one or more", "name an axis")
        if self.whole_methods:
            check_reference(self.reference, whole=True)

    @property
    def whole_methods(self) -> bool:
        """True if only whole methods are tried, so that no rule of an axis is put into the reference's action."""
        return set(self.candidates) == {POLICY}

    def continuation(self, axis: str) -> Continuation:
        """Return the policy that continues branches of an axis: the reference, with the operator on a revising axis."""
        if not revises(axis):
            return Continuation(self.reference)
        settled = self.reference if self.reference.past_steps == 0 else None
        return Continuation(with_remasking(self.reference, self.operator), settled)

    def draws(self, policy: Policy) -> bool:
        """Tell whether steps of a policy depend on random numbers: its own, or those that sample tokens."""
        return policy.random or self.temperature > 0

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """All alternatives, axis by axis: candidates, then proposals of diagnostics."""
        alternatives = []
        for axis, named in self.candidates.items():
            for name, policy in named.items():
                one_step = axis == POLICY and policy != self.reference
                alternatives.append(Alternative(axis, name, policy, one_step=one_step))
            proposals = {name: policy for name, policy in self.proposals.items() if policy.diagnostic.axis == axis}
            alternatives += [Alternative(axis, PROPOSAL, policy, name) for name, policy in proposals.items()]
        return tuple(alternatives)

    @cached_property
    def proposals(self) -> Mapping[str, Adaptive]:
        """Policies that take a diagnostic's proposal, and the reference's action where it abstains, by diagnostic."""
        return {
            name: Adaptive(self.reference, [(diagnostic, AlwaysRule())])
            for axis in self.candidates
            for name, diagnostic in self.diagnostics.items()
            if diagnostic.axis == axis
        }


def random_stream(step: int, rollout: int) -> int:
    """Return the number of the random stream of a rollout at a step, which all candidates there share.

    Always odd, so it is never 0, the stream of the reference's own run.
    """
    digest = hashlib.blake2b(f"{step}/{rollout}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1
