"""EB-Sampler (Ben-Hamu et al. 2025): the longest prefix within a budget of entropy."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unmask.axes import cardinality, score
from unmask.core import Action, BlockLength, LookAhead, Natural, NonNegative, Policy, Trajectory
from unmask.methods.blocks import open_block
from unmask.methods.fast_dllm import drop_near_positions


@dataclass(frozen=True)
class EBSampler(Policy):
    """Reveal the most positions, easiest first, whose joint dependence is bounded by a budget of entropy."""

    name: ClassVar[str] = "eb-sampler"
    steps = "ignore"
    block_cache = True
    gamma: NonNegative = 0.1
    """Budget in nats; 0 reveals one position per step and those that are certain, infinity all at once."""
    proxy: Literal["entropy", "confidence", "margin"] = "entropy"
    """Quantity that orders positions."""
    block_length: BlockLength | None = None
    spacing: Natural = 0
    """Distance between positions revealed together, as in `fast-dllm`; 0 for none."""

    @property
    def cuda_graph(self) -> bool:
        return not self.spacing  # the length of its loop depends on the number of chosen positions

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        open_BL = open_block(traj.state, self.block_length)
        order_BL = {
            "entropy": -traj.entropy_BL,
            "confidence": traj.top_p_BL,
            "margin": traj.current_prediction.clean.margin_BN[:, : open_BL.shape[1]],
        }[self.proxy]
        # The budget counts entropies, whichever quantity orders the positions.
        k_B = cardinality.entropy_budget(order_BL, traj.entropy_BL, open_BL, self.gamma)
        chosen_BL = score.best(order_BL, open_BL, k_B)
        if self.spacing:
            chosen_BL = drop_near_positions(traj.state, chosen_BL, order_BL, open_BL, self.spacing, self.block_length)
        return Action.reveal(chosen_BL, of=open_BL)
