"""DSB (Luo et al. 2026): a threshold in a block that slides and grows."""

from dataclasses import dataclass, field
from typing import ClassVar

from unmask.axes import region
from unmask.core import Action, BlockLength, LookAhead, Policy, Trajectory
from unmask.methods.fast_dllm import FastDLLM


@dataclass(frozen=True)
class DSB(Policy):
    """Reveal by Fast-dLLM's rule in a block that starts at the first mask and grows by each revealed position.

    With `max_block` equal to `block_length` the block slides; without a maximum it always holds as many masks.
    """

    name: ClassVar[str] = "dsb"
    steps = "ignore"
    base: FastDLLM = field(default_factory=FastDLLM)
    """Rule and spacing within the block; the blocks of this method are not used."""
    block_length: BlockLength = 32
    """Width of the block at the start."""
    max_block: BlockLength | None = 32
    """Largest width of the block; None for the authors' greedy variant."""

    @property
    def cuda_graph(self) -> bool:
        return self.base.cuda_graph

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        open_BL = region.open_sliding_window(traj.state, self.block_length, self.max_block)
        return Action.reveal(self.base.accepted_positions(traj, open_BL, self.block_length), of=open_BL)
