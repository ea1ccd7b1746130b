"""What the tests of the diagnostics share: a policy that reads them while a reference decodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import pytest

from unmask.adapt.diagnostics import DIAGNOSTICS, Diagnostic
from unmask.core import Action, LookAhead, Needs, Noise, Policy, State, Trajectory
from unmask.engine import decode
from unmask.methods import fixed_action
from unmask.models import ExactDenoiser, JointDistribution

NEEDS = Needs(divergence=True, attention=True)
MEMORY = 4


@dataclass(frozen=True)
class Watched(Policy):
    """A reference that keeps what the diagnostics need, and every trajectory and action it saw."""

    name: ClassVar[str] = "watched"
    needs = NEEDS
    past_steps = MEMORY
    base: Policy = field(default_factory=fixed_action)
    seen: list = field(default_factory=list, compare=False)

    @property
    def random(self) -> bool:
        return self.base.random

    def done(self, traj):
        return self.base.done(traj)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        action = self.base.act(traj, look_ahead)
        self.seen.append((traj, action))
        return action


def states_of(denoiser, state, base=None, *, keys=None, **options) -> list[tuple[Trajectory, Action]]:
    """The trajectory (with its prediction) and the reference's action at every step of a decode."""
    policy = Watched(base or fixed_action())
    keys = keys or list(range(state.batch))
    decode(denoiser, policy, state, noise=Noise.of(keys), **options)
    return policy.seen


def every_diagnostic() -> list[Diagnostic]:
    return list(DIAGNOSTICS.values())


def exact_problem(seed=0, n=8, vocab=3, rows: Sequence[int] = (0, 2, 1), steps=4, dependence=1.5):
    """An `exact` denoiser and a start with one row per prompt token."""
    denoiser = ExactDenoiser(JointDistribution.random(n, vocab, dependence=dependence, seed=seed))
    prompts = [[token] for token in rows]
    return denoiser, State.from_prompts(prompts, new_tokens=n - 1, steps=steps, mask_id=vocab)


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """The helpers of this file; test files cannot import each other."""
    return SimpleNamespace(
        Watched=Watched, states_of=states_of, every_diagnostic=every_diagnostic, exact_problem=exact_problem
    )
