"""DSB (Luo et al.). Taxonomy: state-dependent | dynamic block size | sliding block | irreversible | none."""

from dataclasses import dataclass, field
from typing import ClassVar

from unmask.axes import cardinality, commitment, region, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Policy, Trajectory
from unmask.methods.blocks import check_block_length
from unmask.methods.card import Card
from unmask.methods.fast_dllm import FastDLLM


@dataclass(frozen=True)
class DSB(Policy):
    """Fast-dLLM's threshold rule in a block that begins at the first mask and grows by what has been revealed.

    A fixed width (`max_block` = `block_length`) slides; without a maximum the block always holds as many masks.
    """

    name: ClassVar[str] = "dsb"
    card: ClassVar[Card] = Card(
        "Luo et al. 2026, DSB (arXiv 2602.05992)",
        "state-dependent",
        "dynamic block size",
        "sliding block",
        "irreversible",
        differs=("their cache, and their fixed quotas without a threshold, are left out",),
        presets={"const": {"max_block": 32}, "greedy": {"max_block": None}},
    )
    steps = "ignore"
    cuda_graph = True
    base: FastDLLM = field(default_factory=FastDLLM)
    """What reveals within the block: its threshold or its factor rule; its own blocks are not used."""
    block_length: int = 32
    """Width at the start."""
    max_block: int | None = 32
    """Most positions from the first mask on; None is the authors' greedy variant."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "published: 32", optional=False)
        sane = self.max_block is None or 1 <= self.max_block <= 1_000_000
        require(sane, "max_block", self.max_block, "1 to 1000000, or None", "published: 32, or None (greedy)")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        open_BL = region.sliding(state, self.block_length, self.max_block)
        chosen_BL = self.base.accept(traj.current_prediction.confidence_BN[:, : open_BL.shape[1]], open_BL)
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(chosen_BL, open_BL),
            commitment.commit_all(state),
            rule="confidence",
        )
