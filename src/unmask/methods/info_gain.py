"""Info-Gain (Yang et al. 2026): sets of positions, compared one step ahead."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import score
from unmask.core import Action, BlockLength, LookAhead, Needs, NonNegative, Policy, Probability, State, Trajectory
from unmask.methods.blocks import BlockClock, block_clock, check_blocks


@dataclass(frozen=True)
class InfoGain(Policy):
    """Try several sets of k positions, look one step ahead of each, and take the one that leaves least uncertainty.

    A set a has the objective J(a) = -C(a) - Hbar(z after a): C is the sum of its entropies now, Hbar the mean entropy
    of the positions that stay masked.
    """

    name: ClassVar[str] = "info-gain"
    looks_ahead = True
    block_length: BlockLength | None = None
    candidates: Annotated[int, Field(ge=1, le=1024)] = 8
    """Number N of candidate sets per step; the first is the greedy one."""
    tau_pos: NonNegative = 0.2
    """Temperature of the noise on positions that makes the other candidates."""
    threshold: Probability | None = 0.8
    """Confidence from which positions are revealed without look-ahead; None for always looking ahead."""
    objective: Literal["info_gain", "remaining"] = "info_gain"
    """Objective: J, or only its part -Hbar ("remaining", the authors' variant after LookUM)."""
    leave_unfinished: bool = False
    """Leave positions masked that a step without look-ahead did not reveal, as the authors' code does."""

    @property
    def needs(self) -> Needs:
        return Needs(draws=self.candidates)

    @property
    def random(self) -> bool:
        return self.tau_pos > 0 and self.candidates > 1

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=False)

    @property
    def own_end(self) -> bool:
        return self.leave_unfinished

    def done(self, traj: Trajectory) -> Tensor:
        full_B = super().done(traj)
        return full_B | (traj.state.step_B >= traj.state.horizon_B) if self.leave_unfinished else full_B

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, length = traj.state, traj.state.tokens_BL.shape[1]
        clock = block_clock(state, self.block_length)
        k_B = planned_count(clock)
        if self.leave_unfinished:
            open_BL = clock.open_BL & clock.in_block_BL
        else:
            open_BL = clock.open_BL
            # The block's last step makes up for steps without look-ahead that revealed fewer.
            k_B = torch.where(clock.closing_B, open_BL.sum(-1), k_B)
        sure_BL = open_BL & (traj.top_p_BL >= (2.0 if self.threshold is None else self.threshold))
        # If all open positions are revealed there is nothing to compare, and a look-ahead would be wasted.
        fill_B = k_B >= open_BL.sum(-1)
        bypass_B = sure_BL.any(-1) & ~fill_B

        candidates = self._draw_candidates(traj, open_BL, k_B)
        look_B = ~fill_B & ~bypass_B & (candidates.fresh_BA.sum(-1) > 1)
        best_B = self._compute_objectives(traj, look_ahead, candidates, look_B).argmax(-1)

        pick_B11 = best_B[:, None, None].expand(-1, 1, length)
        chosen_BL = candidates.set_BAL.gather(1, pick_B11).squeeze(1)
        tokens_BL = candidates.token_BAL.gather(1, pick_B11).squeeze(1)
        chosen_BL = torch.where(bypass_B[:, None], score.best(traj.top_p_BL, sure_BL, k_B), chosen_BL)
        # A step without look-ahead writes the most probable token, even if another one was drawn.
        tokens_BL = torch.where(bypass_B[:, None], traj.top_token_BL, tokens_BL)
        chosen_BL = torch.where(fill_B[:, None], open_BL, chosen_BL)
        tokens_BL = torch.where(fill_B[:, None], traj.token_BL, tokens_BL)
        return Action.reveal(
            chosen_BL,
            of=state.masked_BL if self.leave_unfinished else open_BL,
            tokens_BL=torch.where(chosen_BL, tokens_BL, -1),
        )

    def _draw_candidates(self, traj: Trajectory, open_BL: Tensor, k_B: Tensor) -> "_Candidates":
        """Draw candidate sets of positions, and mark as fresh those that repeat no earlier set."""
        length, prediction = open_BL.shape[1], traj.current_prediction
        draws = prediction.token_BND.shape[-1]
        sets, tokens = [], []
        for c in range(self.candidates if self.tau_pos > 0 else 1):
            # Above temperature 0 every candidate has its own draw of tokens; at 0 there is one draw for all.
            confidence_BL = prediction.confidence_BND[:, :length, min(c, draws - 1)].double()
            if c > 0:
                gumbel_BL = -(-(traj.uniform(f"candidate/{c}") + 1e-10).log() + 1e-10).log()
                confidence_BL = confidence_BL / self.tau_pos + gumbel_BL
            sets.append(score.best(confidence_BL, open_BL, k_B))
            tokens.append(prediction.token_BND[:, :length, min(c, draws - 1)])
        # The authors drop a set that was drawn before by its positions alone, whatever its tokens.
        set_BAL = torch.stack(sets, 1)
        same_BAA = (set_BAL[:, :, None] == set_BAL[:, None]).all(-1)
        return _Candidates(set_BAL, torch.stack(tokens, 1), ~same_BAA.tril(-1).any(-1))

    def _compute_objectives(
        self, traj: Trajectory, look_ahead: LookAhead, candidates: "_Candidates", look_B: Tensor
    ) -> Tensor:
        """Return the objective J of every fresh candidate; in rows without look-ahead the greedy one is best."""
        state = traj.state
        value_BA = torch.full_like(candidates.fresh_BA, float("-inf"), dtype=torch.float64)
        value_BA[:, 0] = 0.0
        row_U, candidate_U = (candidates.fresh_BA & look_B[:, None]).nonzero(as_tuple=True)
        if len(row_U) == 0:
            return value_BA
        set_UL = candidates.set_BAL[row_U, candidate_U]
        parents = state.select(row_U)
        tokens_UL = torch.where(set_UL, candidates.token_BAL[row_U, candidate_U], parents.tokens_BL)
        after = replace(parents, tokens_BL=tokens_UL)
        entropy_UL = look_ahead.predict(after, row_U).clean.entropy_BN.double()
        # Hbar is the mean over all remaining masks, and 0 without any.
        value_U = -(entropy_UL * after.masked_BL).sum(-1) / after.masked_BL.sum(-1).clamp(min=1)
        if self.objective == "info_gain":
            spent_UL = traj.current_prediction.clean.entropy_BN[row_U, : set_UL.shape[1]] * set_UL
            value_U = value_U - spent_UL.double().sum(-1)
        value_BA[row_U, candidate_U] = value_U
        return value_BA


@dataclass(frozen=True)
class _Candidates:
    """Candidate sets of positions and their tokens, A of them per row, the greedy one first."""

    set_BAL: Tensor
    token_BAL: Tensor
    fresh_BA: Tensor
    """Candidates whose positions differ from those of all earlier ones of the row."""


def planned_count(clock: BlockClock) -> Tensor:
    """Return the number of positions that the block's plan reveals at this step.

    The plan is made at the block's start: each step takes a share of the rest by the authors' schedule. A step without
    look-ahead may reveal fewer, and then the row is behind the plan.
    """
    planned_B = clock.size_B
    for step in range(int(clock.inner_B.max())):
        rest_B = planned_B - linear_share(planned_B, clock.steps_B - step, clock.steps_B)
        planned_B = torch.where(step < clock.inner_B, rest_B, planned_B)
    return linear_share(planned_B, clock.steps_B - clock.inner_B, clock.steps_B)


def linear_share(masks_B: Tensor, left_B: Tensor, steps_B: Tensor) -> Tensor:
    """Return the number of positions of the next step: round(masks * (1 - s/t)), halves to even, at least 1.

    s and t are the times after and before, so the exact quotient is masks / left. The authors divide two float32 times
    and multiply in float64, which rounds some halves up and some down: 4 masks in 3 steps go 1, 1, 2. Rounding
    otherwise would change tokens.
    """
    left_B = left_B.clamp(min=1)
    # 1 - alpha(t) of the linear schedule alpha(t) = 1 - t, rounded to float32 where the authors do.
    before_B, after_B = (1 - (1 - (n_B / steps_B.double()).float()) for n_B in (left_B, left_B - 1))
    ratio_B = (after_B / before_B).double()
    return (masks_B.double() * (1 - ratio_B)).round().long().clamp(min=1)
