"""CoRe (Zhai et al. 2026): LLaDA's schedule, with probes that rewrite brittle tokens."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unmask.axes import score
from unmask.base.errors import require
from unmask.core import (
    Action,
    BlockLength,
    Count,
    LookAhead,
    Natural,
    Needs,
    Policy,
    Prediction,
    Probability,
    State,
    Trajectory,
)
from unmask.methods.blocks import BlockClock, block_clock, check_blocks


@dataclass(frozen=True)
class CoRe(Policy):
    """Reveal by LLaDA's schedule, and from time to time rewrite the revealed token that a probe finds most brittle.

    A probe masks the `candidates` least certain revealed positions together. Positions whose token then loses to a
    confident other one are rewritten in the same step, most improbable tokens first.
    """

    name: ClassVar[str] = "core"
    needs = Needs(revealed=True)
    looks_ahead = True
    block_length: BlockLength | None = None
    base: Literal["confidence", "margin"] = "confidence"
    """Score that orders the positions to reveal."""
    revise_every: Natural = 8
    """Number of steps between two probes in a block; 0 for no probes."""
    candidates: Count = 32
    """Number of positions that a probe masks."""
    rewrites: Natural = 1
    """Largest number of tokens that one probe rewrites."""
    tail: Natural = 16
    """Number of positions at a block's end that are never rewritten."""
    replacement: Probability = 0.3
    """Smallest probability of a replacement."""
    window: tuple[float, float] = (0.25, 0.75)
    """Shares of a block's steps between which probes happen."""
    joint_reeval: bool = False
    """Score the step's other positions again after the rewrite, with one more forward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ordered = 0 <= self.window[0] <= self.window[1] <= 1
        require(ordered, "window", self.window, "0 <= start <= end <= 1", "the authors use (0.25, 0.75)")

    @property
    def remasks(self) -> bool:
        return self.revise_every > 0 and self.rewrites > 0

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=True)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, clock = traj.state, block_clock(traj.state, self.block_length)
        rewrite_BL, tokens_BL = self._choose_rewrites(traj, look_ahead, clock)
        score_BL = self._reveal_score(traj.current_prediction, state)
        if self.joint_reeval and bool(rewrite_BL.any()):
            row_U = rewrite_BL.any(-1).nonzero().flatten()
            # Predict the positions that stay masked once more, with the rewritten tokens on the canvas.
            before = state.select(row_U)
            after = replace(before, tokens_BL=torch.where(rewrite_BL[row_U], tokens_BL[row_U], before.tokens_BL))
            renewed = look_ahead.predict(after, row_U)
            score_BL, tokens_BL = score_BL.clone(), tokens_BL.clone()
            score_BL[row_U] = self._reveal_score(renewed, before)
            tokens_BL[row_U] = torch.where(before.masked_BL, renewed.token_BN, tokens_BL[row_U])
        chosen_BL = rewrite_BL | score.best(score_BL, clock.open_BL, clock.quota_B)
        return Action.reveal(chosen_BL, of=clock.open_BL, commit=False, remask_BL=rewrite_BL, tokens_BL=tokens_BL)

    def _choose_rewrites(self, traj: Trajectory, look_ahead: LookAhead, clock: BlockClock) -> tuple[Tensor, Tensor]:
        """Probe brittle positions; return a mask of those to rewrite, and their new tokens (-1 elsewhere)."""
        state = traj.state
        rewrite_BL, tokens_BL = torch.zeros_like(state.fixed_BL), torch.full_like(state.tokens_BL, -1)
        probe_BL = self._probe_set(traj, clock)
        row_U = probe_BL.any(-1).nonzero().flatten()
        if len(row_U) == 0:
            return rewrite_BL, tokens_BL
        probe_UL, before = probe_BL[row_U], state.select(row_U)
        # All of them are masked together, so one pass judges each token without the other brittle ones.
        hidden = replace(before, tokens_BL=torch.where(probe_UL, state.mask_id, before.tokens_BL))
        probed = look_ahead.predict(hidden, row_U, given_UL=torch.where(probe_UL, before.tokens_BL, -1))
        assert probed.given_BN is not None  # given_UL asks for it
        # The authors' epsilon keeps the instability of an impossible token finite.
        instability_UL = -(probed.given_BN + 1e-10).log()
        changes_UL = probe_UL & (probed.token_BN != before.tokens_BL) & (probed.confidence_BN >= self.replacement)
        count_U = clock.quota_B[row_U].clamp(max=self.rewrites)
        rewrite_BL[row_U] = score.best(instability_UL, changes_UL, count_U)
        tokens_BL[row_U] = torch.where(rewrite_BL[row_U], probed.token_BN, -1)
        return rewrite_BL, tokens_BL

    def _probe_set(self, traj: Trajectory, clock: BlockClock) -> Tensor:
        """Return the revealed positions of smallest margin, which the probe masks (S_t); none between probes."""
        state = traj.state
        if self.revise_every == 0:
            return torch.zeros_like(state.fixed_BL)
        start_B, end_B = ((share * clock.steps_B).long() for share in self.window)
        probing_B = (clock.inner_B % self.revise_every == 0) & (clock.inner_B >= start_B) & (clock.inner_B < end_B)
        tail_start_B1 = state.rank_BL.masked_fill(~clock.in_block_BL, -1).amax(-1, keepdim=True) - self.tail
        able_BL = state.revisable_BL & clock.in_block_BL & (state.rank_BL <= tail_start_B1) & probing_B[:, None]
        count_B = torch.full_like(clock.inner_B, self.candidates)
        return score.best(-traj.current_prediction.clean.margin_BN, able_BL, count_B)

    def _reveal_score(self, prediction: Prediction, state: State) -> Tensor:
        """Return the score of each position; the largest scores are revealed first."""
        order_BN = prediction.confidence_BN if self.base == "confidence" else prediction.clean.margin_BN
        return order_BN[:, : state.tokens_BL.shape[1]]
