"""LLaDA's decoder (Nie et al. 2025): a scheduled number of the surest positions at every step."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unmask.axes import score
from unmask.core import Action, BlockLength, LookAhead, Policy, State, Trajectory
from unmask.methods.blocks import block_clock, check_blocks


@dataclass(frozen=True)
class LLaDA(Policy):
    """Reveal a scheduled number of the surest, or of random, positions of a block per step."""

    name: ClassVar[str] = "llada"
    cuda_graph = True
    block_cache = True
    block_length: BlockLength | None = None
    """Answer positions per block; None is one block. It must divide the answer, and the blocks the steps."""
    remasking: Literal["low_confidence", "random"] = "low_confidence"
    """The authors' word for the choice of positions that stay masked."""

    @property
    def random(self) -> bool:
        return self.remasking == "random"

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=True)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        clock = block_clock(traj.state, self.block_length)
        # A random order is no mixture of scores, so the action names its set of positions.
        if self.remasking == "random":
            return Action.reveal(score.best(traj.uniform("order"), clock.open_BL, clock.quota_B), of=clock.open_BL)
        # By region and count, not as a set: diagnostics read region and kappa of this action.
        return Action.top(traj.state, clock.open_BL, clock.quota_B)
