"""DUS (Luxembourg et al.). Taxonomy: joint-entropy criterion | group-based | dilated groups | irreversible | none."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, region, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Policy, Trajectory
from unmask.methods.blocks import check_block_length
from unmask.methods.card import Card

_NEVER = torch.iinfo(torch.long).max


@dataclass(frozen=True)
class DUS(Policy):
    """Reveal a block in equally spaced groups, coarse to fine, whatever the model says; about log_a(B) steps a block.

    Spacing keeps what is revealed together nearly independent. `steps` bounds nothing here.
    """

    name: ClassVar[str] = "dus"
    card: ClassVar[Card] = Card(
        "Luxembourg, Permuter and Nachmani 2026, Plan for Speed (arXiv 2506.19037)",
        "joint-entropy criterion",
        "group-based",
        "dilated groups",
        "irreversible",
        differs=(
            "a position that is skipped waits for the next group, as the paper says; the authors' code leaves it "
            "masked for ever (leave_skipped)",
            "above temperature 0 a skip reads the clean probability of the best token (theirs a softmax of exp(z) over "
            "the Gumbel noise); without skipping the tokens are the same",
        ),
        presets={"command": {"block_length": 32, "skip": 0.3}},
    )
    steps = "ignore"
    cuda_graph = True
    block_cache = True
    block_length: int = 32
    base: int = 2
    """Each group's stride is the last one's divided by this."""
    base_skip: int = 1
    """The first stride is block_length / base^base_skip."""
    skip: float = 0.0
    """Least probability of a scheduled position, but for a block's last group; 0 never skips. Their command has 0.3."""
    leave_skipped: bool = False
    """Leave skipped positions masked at the end, as the authors' code does."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "published: 8, 16, 32 and 64", optional=False)
        require(1 <= self.base <= 1_000_000, "base", self.base, "1 or more", "published: 2")
        require(1 <= self.base_skip <= 64, "base_skip", self.base_skip, "1 to 64", "published: 1")
        require(0 <= self.skip <= 1, "skip", self.skip, "0 to 1", "it is a probability; 0 never skips")

    @property
    def own_end(self) -> bool:
        return self.leave_skipped

    def done(self, traj: Trajectory) -> Tensor:
        full_B = super().done(traj)
        blocks_B = -(-traj.state.answer_BL.sum(-1) // self.block_length)
        return full_B | (traj.state.step_B >= blocks_B * self._levels) if self.leave_skipped else full_B

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        level_L = region.on_device(tuple(self._level_of), state.tokens_BL.device)
        group_BL = state.rank_BL // self.block_length * self._levels + level_L[state.rank_BL % self.block_length]
        lowest_B = torch.where(state.masked_BL, group_BL, _NEVER).amin(-1)
        # A row that has nothing left in its group (given tokens, an earlier deviation) goes on to the next one.
        now_B1 = torch.maximum(state.step_B, lowest_B)[:, None] if not self.leave_skipped else state.step_B[:, None]
        due_BL = state.masked_BL & (group_BL == now_B1 if self.leave_skipped else group_BL <= now_B1)
        sure_BL = traj.current_prediction.clean.p_BNK[:, : due_BL.shape[1], 0] >= self.skip
        last_B1 = now_B1 % self._levels == self._levels - 1
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(due_BL & (sure_BL | last_B1), state.masked_BL),
            commitment.commit_all(state),
            rule="confidence",
        )

    @cached_property
    def _level_of(self) -> list[int]:
        """Group of each offset of a block."""
        return region.dilated_levels(self.block_length, self.base, self.base_skip)

    @property
    def _levels(self) -> int:
        return max(self._level_of) + 1
