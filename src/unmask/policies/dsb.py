"""DSB (Luo et al.). Taxonomy: state-dependent | dynamic block size | sliding block | irreversible | none."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from unmask.axes import cardinality, commitment, region, score
from unmask.core import Action, LookAhead, Policy, Trajectory
from unmask.core.card import Card
from unmask.errors import require
from unmask.policies.fast_dllm import FastDLLM


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
    base: FastDLLM = field(default_factory=FastDLLM)
    """What reveals within the block: its threshold or its factor rule; its own blocks are not used."""
    block_length: int = 32
    """Width at the start."""
    max_block: int | None = 32
    """Most positions from the first mask on; None is the authors' greedy variant."""

    def __post_init__(self) -> None:
        ok = 1 <= self.block_length <= 1_000_000
        require(ok, "block_length", self.block_length, "1 to 1000000", "published: 32")
        sane = self.max_block is None or 1 <= self.max_block <= 1_000_000
        require(sane, "max_block", self.max_block, "1 to 1000000, or None", "published: 32, or None (greedy)")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        first_B = region.first_mask(state)
        end_B = self.block_length + state.revealed_BL.sum(-1)
        if self.max_block is not None:
            end_B = torch.minimum(end_B, first_B + self.max_block)
        open_BL = state.masked_BL & (state.rank_BL < end_B[:, None])
        chosen_BL = self.base.accept(traj.seen.confidence_BN[:, : open_BL.shape[1]], open_BL)
        return Action(
            score.pure("confidence", state),
            *cardinality.reveal_set(chosen_BL, open_BL),
            commitment.everything(state),
        )
