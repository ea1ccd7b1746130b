"""DSB (Luo et al. 2026): a threshold in a block that slides and grows."""

from dataclasses import dataclass, field
from typing import ClassVar

from unmask.axes import region
from unmask.core import Action, BlockLength, LookAhead, Policy, Trajectory
from unmask.methods.fast_dllm import FastDLLM


@dataclass(frozen=True)
class DSB(Policy):
    """Fast-dLLM's threshold rule in a block that begins at the first mask and grows by what has been revealed.

    A fixed width (`max_block` = `block_length`) slides; without a maximum the block always holds as many masks.
    """

    name: ClassVar[str] = "dsb"
    steps = "ignore"
    base: FastDLLM = field(default_factory=FastDLLM)
    """What reveals within the block: its rule and its spacing; its own blocks are not used."""
    block_length: BlockLength = 32
    """Width at the start."""
    max_block: BlockLength | None = 32
    """Most positions from the first mask on; None is the authors' greedy variant."""

    @property
    def cuda_graph(self) -> bool:
        return self.base.cuda_graph

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        open_BL = region.sliding(traj.state, self.block_length, self.max_block)
        return Action.reveal(self.base.accepted_positions(traj, open_BL, self.block_length), of=open_BL)
