"""KLASS (Kim et al. 2025): positions that are sure and whose predictions have been stable."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import cardinality, region, score
from unmask.core import Action, BlockLength, LookAhead, Needs, NonNegative, Policy, Probability, State, Trajectory
from unmask.methods.blocks import open_block


@dataclass(frozen=True)
class KLASS(Policy):
    """Reveal all positions that are sure and have been stable: KL(p_t || p_{t-1}) small over a window of steps.

    Where none is ready the schedule reveals its surest ones, so that a run always ends.
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
    """Steps that have to be stable."""
    block_length: BlockLength | None = None
    strategy: Literal["all", "max_conf", "min_kl", "random"] = "all"
    """Reveal all ready positions, or the surest, the most stable or a random one of them."""
    variant: Literal["llada", "dream"] = "llada"
    """"llada" (above the threshold; quota as fallback) or "dream" (at least the threshold; one as fallback)."""
    leave_unfinished: bool = False
    """End each block with its share of the steps, whatever is still masked there, as the authors' code does."""

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
        return full_B | (self._block(traj)[0] >= -(-traj.state.answer_BL.sum(-1) // self._shape(traj.state)[0]))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        block_B, inner_B = self._block(traj)
        open_BL = open_block(state, self.block_length)
        if self.leave_unfinished:
            open_BL = state.masked_BL & (state.rank_BL // self._shape(state)[0][:, None] == block_B[:, None])
        kl_BLW = self._past_kl(traj)
        ready_BL = open_BL & (kl_BLW < self.epsilon).all(-1)
        if self.variant == "llada":
            ready_BL = ready_BL & (traj.top_p_BL > self.threshold) & (inner_B >= self.window - 1)[:, None]
        else:
            ready_BL = ready_BL & (traj.top_p_BL >= self.threshold)
        picked_BL = self._pick(traj, ready_BL, kl_BLW[..., -1])
        chosen_BL = torch.where(picked_BL.any(-1, keepdim=True), picked_BL, self._fallback(traj, open_BL, inner_B))
        # Dream's loop writes the most probable token, whatever was drawn.
        token_BL = traj.top_token_BL if self.variant == "dream" else traj.token_BL
        return Action.reveal(
            chosen_BL,
            of=open_BL,
            tokens_BL=torch.where(chosen_BL & (token_BL != traj.token_BL), token_BL, -1),
            notes={"block_B": block_B, "inner_B": inner_B, "kl_BLW": kl_BLW},
        )

    def _block(self, traj: Trajectory) -> tuple[Tensor, Tensor]:
        """The block a row is in, and how many steps it has taken there."""
        state = traj.state
        size_B, steps_B = self._shape(state)
        block_B = region.first_mask(state) // size_B
        last_B = traj.notes.get("block_B", torch.full_like(block_B, -1))
        inner_B = traj.notes.get("inner_B", torch.zeros_like(block_B)) + 1
        if self.leave_unfinished:
            full_B = ~(state.masked_BL & (state.rank_BL // size_B[:, None] == last_B[:, None])).any(-1)
            block_B = torch.where(full_B | (inner_B >= steps_B), last_B + 1, last_B)
        return block_B, torch.where(last_B == block_B, inner_B, 0)

    def _past_kl(self, traj: Trajectory) -> Tensor:
        """The last KLs of each position, newest last; infinite where there was no posterior to compare with."""
        drift_BN, length = traj.current_prediction.drift_BN, traj.state.tokens_BL.shape[1]
        never_BLW = torch.full_like(traj.state.tokens_BL, float("inf"), dtype=torch.float64)
        never_BLW = never_BLW[..., None].repeat(1, 1, self.window)
        if drift_BN is None:
            return never_BLW
        now_BL1 = drift_BN[:, :length, None].double().nan_to_num(float("inf"))
        return torch.cat((traj.notes.get("kl_BLW", never_BLW)[..., 1:], now_BL1), -1)

    def _pick(self, traj: Trajectory, ready_BL: Tensor, kl_BL: Tensor) -> Tensor:
        if self.strategy == "all":
            return ready_BL
        if self.strategy == "random":
            order_BL = traj.uniform("order")
        else:
            order_BL = traj.top_p_BL if self.strategy == "max_conf" else -kl_BL
        return score.best(order_BL, ready_BL, torch.ones_like(traj.state.step_B))

    def _fallback(self, traj: Trajectory, open_BL: Tensor, inner_B: Tensor) -> Tensor:
        """LLaDA's quota of the block's step, or one position."""
        if self.variant == "dream":
            return score.best(traj.proposed_BL, open_BL, torch.ones_like(inner_B))
        size_B, steps_B = self._shape(traj.state)
        quota_B = cardinality.llada_quota(size_B, steps_B, torch.minimum(inner_B, steps_B - 1))
        return score.best(traj.top_p_BL, open_BL, quota_B.clamp(min=1))

    def _shape(self, state: State) -> tuple[Tensor, Tensor]:
        """Answer positions, and steps, of a block."""
        answer_B = state.answer_BL.sum(-1)
        size_B = answer_B if self.block_length is None else answer_B.clamp(max=self.block_length)
        return size_B, (state.horizon_B // -(-answer_B // size_B)).clamp(min=1)
