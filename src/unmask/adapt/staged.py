"""The stage-only schedule: the action depends on how much is still masked, and on nothing else."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

from torch import Tensor

from unmask.adapt.gated import choose, memory_of, needs_of, plain
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Needs, Policy, State, Trajectory


@dataclass(frozen=True)
class Staged(Policy):
    """One policy for each stage, the stage of the most masked answers first."""

    name: ClassVar[str] = "stage"
    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        require(len(self.policies) > 0, "policies", self.policies, "one or more", "name one for each stage")
        plain(*self.policies)

    @property
    def needs(self) -> Needs:
        return needs_of(self.policies)

    @property
    def past_steps(self) -> int:
        return memory_of(self.policies)

    @property
    def random(self) -> bool:
        return any(policy.random for policy in self.policies)

    def check(self, state: State) -> None:
        for policy in self.policies:
            policy.check(state)

    @property
    def cuda_graph(self) -> bool:
        return all(policy.cuda_graph for policy in self.policies)

    def bounded(self, length: int) -> Policy:
        return replace(self, policies=tuple(policy.bounded(length) for policy in self.policies))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        stage_B = stage(traj.state, len(self.policies))
        first, *later = (policy.act(traj, look_ahead) for policy in self.policies)
        return reduce(lambda kept, at: choose(stage_B == at[0], at[1], kept), enumerate(later, 1), first)


def stage(state: State, count: int) -> Tensor:
    """Of four: 0 where more than 3/4 of the answer is masked, 3 where at most 1/4 is. Computed as `stats.stages`."""
    masked_B = state.masked_BL.sum(-1).double() / state.answer_BL.sum(-1).double()
    return (count * (1 - masked_B)).floor().long().clamp(max=count - 1)
