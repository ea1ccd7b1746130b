"""KLASS (Kim et al. 2025): positions that are sure and whose predictions have been stable."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import cardinality, region, score
from unmask.core import Action, BlockLength, LookAhead, Needs, NonNegative, Policy, Probability, Trajectory
from unmask.methods.blocks import open_block


@dataclass(frozen=True)
class KLASS(Policy):
    """Reveal all positions that are sure and stable: KL(p_t || p_{t-1}) was small over a window of steps.

    If none is ready, a schedule reveals the surest ones, so that a run always ends.
    """

    name: ClassVar[str] = "klass"
    past_steps = 1
    steps = "pace"
    cuda_graph = True
    block_cache = True
    threshold: Probability = 0.9
    epsilon: NonNegative = 0.01
    """KL below which a position counts as stable, in nats."""
    window: Annotated[int, Field(ge=1, le=64)] = 2
    """Number of steps over which a position has to be stable."""
    block_length: BlockLength | None = None
    strategy: Literal["all", "max_conf", "min_kl", "random"] = "all"
    """Ready positions to reveal: all of them, or the surest, the most stable or a random one."""
    variant: Literal["llada", "dream"] = "llada"
    """The authors' loop for LLaDA (above the threshold, else a quota) or Dream (from the threshold on, else one)."""
    leave_unfinished: bool = False
    """End each block after its share of the steps, even with masks left, as the authors' code does."""

    @property
    def needs(self) -> Needs:
        return Needs(divergence=True, filtered=self.variant == "dream")

    @property
    def random(self) -> bool:
        return self.strategy == "random"

    @property
    def own_end(self) -> bool:
        return self.leave_unfinished

    def done(self, traj: Trajectory) -> Tensor:
        full_B = super().done(traj)
        if not self.leave_unfinished:
            return full_B
        block_B, _, size_B, _ = self._block_progress(traj)
        return full_B | (block_B >= -(-traj.state.answer_BL.sum(-1) // size_B))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, length = traj.state, traj.state.tokens_BL.shape[1]
        block_B, inner_B, size_B, steps_B = self._block_progress(traj)
        open_BL = open_block(state, self.block_length)
        if self.leave_unfinished:
            open_BL = state.masked_BL & (state.rank_BL // size_B[:, None] == block_B[:, None])

        # KLs of the last steps at each position, newest last; infinite without an earlier posterior to compare with.
        drift_BN = traj.current_prediction.drift_BN
        kl_BLW = state.tokens_BL.new_full((*state.tokens_BL.shape, self.window), float("inf"), dtype=torch.float64)
        if drift_BN is not None:
            newest_BL = drift_BN[:, :length].double().nan_to_num(float("inf"))
            kl_BLW = torch.cat((traj.notes.get("kl_BLW", kl_BLW)[..., 1:], newest_BL[..., None]), -1)
        # An infinite entry keeps a position waiting until a whole window of steps has been seen.
        ready_BL = open_BL & (kl_BLW < self.epsilon).all(-1)

        one_B = torch.ones_like(inner_B)
        if self.variant == "llada":
            ready_BL = ready_BL & (traj.top_p_BL > self.threshold) & (inner_B >= self.window - 1)[:, None]
            quota_B = cardinality.llada_quota(size_B, steps_B, torch.minimum(inner_B, steps_B - 1))
            fallback_BL = score.best(traj.top_p_BL, open_BL, quota_B.clamp(min=1))
            token_BL = traj.token_BL
        else:
            ready_BL = ready_BL & (traj.top_p_BL >= self.threshold)
            fallback_BL = score.best(traj.proposed_BL, open_BL, one_B)
            token_BL = traj.top_token_BL  # as their loop, even if another token was drawn
        if self.strategy == "random":
            ready_BL = score.best(traj.uniform("order"), ready_BL, one_B)
        elif self.strategy != "all":
            order_BL = traj.top_p_BL if self.strategy == "max_conf" else -kl_BLW[..., -1]
            ready_BL = score.best(order_BL, ready_BL, one_B)
        chosen_BL = torch.where(ready_BL.any(-1, keepdim=True), ready_BL, fallback_BL)
        return Action.reveal(
            chosen_BL,
            of=open_BL,
            tokens_BL=torch.where(chosen_BL & (token_BL != traj.token_BL), token_BL, -1),
            notes={"block_B": block_B, "inner_B": inner_B, "kl_BLW": kl_BLW},
        )

    def _block_progress(self, traj: Trajectory) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return each row's block, the steps it has taken in it, and the number of positions and steps per block."""
        state, notes = traj.state, traj.notes
        answer_B = state.answer_BL.sum(-1)
        size_B = answer_B if self.block_length is None else answer_B.clamp(max=self.block_length)
        steps_B = (state.horizon_B // -(-answer_B // size_B)).clamp(min=1)
        # A row is in the block of its first mask: given tokens or another policy may have filled earlier ones.
        block_B = region.first_mask_rank(state) // size_B
        # Steps in a block are counted in the notes, because a block may take more or fewer than its share.
        last_B = notes.get("block_B", torch.full_like(block_B, -1))
        inner_B = notes.get("inner_B", torch.zeros_like(block_B)) + 1
        if self.leave_unfinished:
            full_B = ~(state.masked_BL & (state.rank_BL // size_B[:, None] == last_B[:, None])).any(-1)
            block_B = torch.where(full_B | (inner_B >= steps_B), last_B + 1, last_B)
        return block_B, torch.where(last_B == block_B, inner_B, 0), size_B, steps_B
