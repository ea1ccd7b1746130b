"""KLASS (Kim et al.). Taxonomy: KL stability + confidence | adaptive multi-token | full | irreversible | none."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, region, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Needs, Policy, State, Trajectory
from unmask.methods.blocks import check_block_length, open_block
from unmask.methods.card import Card

VARIANTS = ("llada", "dream")
STRATEGIES = ("all", "max_conf", "min_kl", "random")
_LLADA = {"block_length": 64}
_DREAM = {"variant": "dream", "block_length": None}


@dataclass(frozen=True)
class KLASS(Policy):
    """Reveal all positions that are sure and have been stable: KL(p_t || p_{t-1}) small over a window of steps.

    Where none is ready the schedule reveals its surest ones, so that a run always ends.
    """

    name: ClassVar[str] = "klass"
    card: ClassVar[Card] = Card(
        "Kim et al. 2025, KLASS (arXiv 2511.05664)",
        "KL stability + confidence",
        "adaptive multi-token",
        "full",
        "irreversible",
        differs=(
            "a schedule that asks for more than the block has left reveals what is left (theirs overwrites tokens)",
            "a block goes on until it is full; where steps < new tokens theirs may leave masks for ever "
            "(leave_unfinished)",
            "their scripts use blocks of 64 for LLaDA; the paper's row says full",
            "above temperature 0 the gate of the LLaDA loop reads the clean distribution (theirs reads a softmax of "
            "exp(z) over the Gumbel noise, so that confidence and KL measure the noise); tokens are drawn as theirs",
        ),
        # Above temperature 0 the LLaDA loop writes the drawn token; version 1 wrote the most probable one.
        version="2",
        presets={
            "llada/gsm8k": {**_LLADA, "threshold": 0.6, "epsilon": 0.015},
            "llada/math": {**_LLADA, "threshold": 0.6, "epsilon": 0.01},
            "llada/humaneval": {**_LLADA, "threshold": 0.9, "epsilon": 0.01},
            "llada/mbpp": {**_LLADA, "threshold": 0.7, "epsilon": 0.01},
            "dream/gsm8k": {**_DREAM, "threshold": 0.9, "epsilon": 0.001},
            "dream/math": {**_DREAM, "threshold": 0.9, "epsilon": 0.005},
            "dream/humaneval": {**_DREAM, "threshold": 0.8, "epsilon": 0.001},
            "dream/mbpp": {**_DREAM, "threshold": 0.9, "epsilon": 0.001},
        },
    )
    past_steps = 1
    steps = "pace"
    cuda_graph = True
    block_cache = True
    threshold: float = 0.9
    epsilon: float = 0.01
    """KL below which a position counts as stable, in nats."""
    window: int = 2
    """Steps that have to be stable."""
    block_length: int | None = None
    strategy: str = "all"
    """Of the ready positions: all, or the one of max_conf, of min_kl, or a random one."""
    variant: str = "llada"
    """"llada" (above the threshold; quota as fallback) or "dream" (at least the threshold; one as fallback)."""
    leave_unfinished: bool = False
    """End each block with its share of the steps, whatever is still masked there, as the authors' code does."""

    def __post_init__(self) -> None:
        require(0 <= self.threshold <= 1, "threshold", self.threshold, "0 to 1", "it is a probability")
        require(self.epsilon >= 0, "epsilon", self.epsilon, "0 or more", "published: 0.001 to 0.015")
        require(1 <= self.window <= 64, "window", self.window, "1 to 64", "the authors use 2")
        require(self.strategy in STRATEGIES, "strategy", self.strategy, ", ".join(STRATEGIES), "pick one")
        require(self.variant in VARIANTS, "variant", self.variant, " or ".join(VARIANTS), "pick one")
        check_block_length(self.block_length, "published: 64 for LLaDA")

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
        return full_B | (self._where(traj)[0] >= -(-traj.state.answer_BL.sum(-1) // self._shape(traj.state)[0]))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, seen = traj.state, traj.current_prediction
        length = state.tokens_BL.shape[1]
        block_B, inner_B = self._where(traj)
        open_BL = open_block(state, self.block_length)
        if self.leave_unfinished:
            open_BL = state.masked_BL & (state.rank_BL // self._shape(state)[0][:, None] == block_B[:, None])
        window_BLW = self._window(traj)
        top_BL = seen.clean.p_BNK[:, :length, 0]
        sure_BL = top_BL > self.threshold if self.variant == "llada" else top_BL >= self.threshold
        stable_BL = (window_BLW < self.epsilon).all(-1)
        if self.variant == "llada":
            stable_BL = stable_BL & (inner_B >= self.window - 1)[:, None]
        ready_BL = self._picked(traj, sure_BL & stable_BL & open_BL, window_BLW[..., -1])
        chosen_BL = torch.where(ready_BL.any(-1, keepdim=True), ready_BL, self._fallback(traj, open_BL, inner_B))
        # Dream's loop writes the most probable token, whatever was drawn.
        token_BL = (seen.clean.top_BNK[..., 0] if self.variant == "dream" else seen.token_BN)[:, :length]
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(chosen_BL, open_BL),
            commitment.commit_all(state),
            tokens_BL=torch.where(chosen_BL & (token_BL != seen.token_BN[:, :length]), token_BL, -1),
            notes={"block_B": block_B, "inner_B": inner_B, "kl_BLW": window_BLW},
            rule="confidence",
        )

    def _where(self, traj: Trajectory) -> tuple[Tensor, Tensor]:
        """The block a row is in, and how many steps it has taken there."""
        state = traj.state
        size_B, steps_B = self._shape(state)
        first_B = region.first_mask(state) // size_B
        last_B = traj.notes.get("block_B", torch.full_like(first_B, -1))
        inner_B = traj.notes.get("inner_B", torch.zeros_like(first_B)) + 1
        block_B = first_B
        if self.leave_unfinished:
            full_B = ~(state.masked_BL & (state.rank_BL // size_B[:, None] == last_B[:, None])).any(-1)
            block_B = torch.where(full_B | (inner_B >= steps_B), last_B + 1, last_B)
        return block_B, torch.where(last_B == block_B, inner_B, 0)

    def _window(self, traj: Trajectory) -> Tensor:
        """The last KLs of each position, newest last; infinite where there was no posterior to compare with."""
        drift_BN = traj.current_prediction.drift_BN
        shape = (*traj.state.tokens_BL.shape, self.window)
        if drift_BN is None:
            return torch.full(shape, float("inf"), dtype=torch.float64, device=traj.state.tokens_BL.device)
        now_BL1 = drift_BN[:, : shape[1], None].double().nan_to_num(float("inf"))
        never_BLW = torch.full(shape, float("inf"), dtype=torch.float64, device=now_BL1.device)
        before_BLW = traj.notes.get("kl_BLW", never_BLW)
        return torch.cat((before_BLW[..., 1:], now_BL1), -1)

    def _picked(self, traj: Trajectory, ready_BL: Tensor, kl_BL: Tensor) -> Tensor:
        if self.strategy == "all":
            return ready_BL
        length = ready_BL.shape[1]
        keys = {
            "max_conf": lambda: traj.current_prediction.clean.p_BNK[:, :length, 0],
            "min_kl": lambda: -kl_BL,
            "random": lambda: traj.uniform("order"),
        }
        return score.best(keys[self.strategy](), ready_BL, torch.ones_like(traj.state.step_B))

    def _fallback(self, traj: Trajectory, open_BL: Tensor, inner_B: Tensor) -> Tensor:
        """LLaDA's quota of the block's step, or one position."""
        state, seen = traj.state, traj.current_prediction
        length = open_BL.shape[1]
        if self.variant == "dream":
            return score.best(seen.proposed_BN[:, :length], open_BL, torch.ones_like(inner_B))
        return score.best(seen.clean.p_BNK[:, :length, 0], open_BL, self._quota(state, inner_B))

    def _quota(self, state: State, inner_B: Tensor) -> Tensor:
        size_B, steps_B = self._shape(state)
        quota_B = cardinality.llada_quota(size_B, steps_B, torch.minimum(inner_B, steps_B - 1))
        return quota_B.clamp(min=1)

    def _shape(self, state: State) -> tuple[Tensor, Tensor]:
        """Answer positions, and steps, of a block."""
        answer_B = state.answer_BL.sum(-1)
        size_B = answer_B if self.block_length is None else answer_B.clamp(max=self.block_length)
        return size_B, (state.horizon_B // -(-answer_B // size_B)).clamp(min=1)
