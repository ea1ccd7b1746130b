"""Info-Gain (Yang et al. 2026): sets of positions judged one step ahead."""

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
    """Try several sets of k positions, look one step ahead of each, keep the one that leaves least uncertainty.

    J(a) = -C(a) - Hbar(z after a): C sums the entropies spent now, Hbar is the mean entropy of what stays masked.
    """

    name: ClassVar[str] = "info-gain"
    looks_ahead = True
    block_length: BlockLength | None = None
    candidates: Annotated[int, Field(ge=1, le=1024)] = 8
    """Candidate sets per step, N; the first is the greedy one."""
    tau_pos: NonNegative = 0.2
    """Temperature of the position noise that makes the other candidates."""
    threshold: Probability | None = 0.8
    """Positions at least this sure are revealed without look-ahead; None never."""
    objective: Literal["info_gain", "remaining"] = "info_gain"
    """"info_gain", or "remaining": -Hbar alone, the authors' variant after LookUM."""
    leave_unfinished: bool = False
    """Leave masked what a bypass put behind its block's plan, as the authors' code does."""

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
            # The block's last step makes up for a bypass that revealed fewer.
            k_B = torch.where(clock.closing_B, open_BL.sum(-1), k_B)
        sure_BL = open_BL & (traj.top_p_BL >= (2.0 if self.threshold is None else self.threshold))
        # Where everything goes anyway there is nothing to compare, and a look would be wasted.
        fill_B = k_B >= open_BL.sum(-1)
        bypass_B = sure_BL.any(-1) & ~fill_B

        candidates = self._draw_candidates(traj, open_BL, k_B)
        look_B = ~fill_B & ~bypass_B & (candidates.fresh_BA.sum(-1) > 1)
        best_B = self._look_ahead(traj, look_ahead, candidates, look_B).argmax(-1)

        pick_B11 = best_B[:, None, None].expand(-1, 1, length)
        chosen_BL = candidates.set_BAL.gather(1, pick_B11).squeeze(1)
        tokens_BL = candidates.token_BAL.gather(1, pick_B11).squeeze(1)
        chosen_BL = torch.where(bypass_B[:, None], score.best(traj.top_p_BL, sure_BL, k_B), chosen_BL)
        # The bypass commits the most probable token, whatever was drawn.
        tokens_BL = torch.where(bypass_B[:, None], traj.top_token_BL, tokens_BL)
        chosen_BL = torch.where(fill_B[:, None], open_BL, chosen_BL)
        tokens_BL = torch.where(fill_B[:, None], traj.token_BL, tokens_BL)
        return Action.reveal(
            chosen_BL,
            of=state.masked_BL if self.leave_unfinished else open_BL,
            tokens_BL=torch.where(chosen_BL, tokens_BL, -1),
        )

    def _draw_candidates(self, traj: Trajectory, open_BL: Tensor, k_B: Tensor) -> "_Candidates":
        """Draw candidate sets. A set equal to an earlier one is not fresh, whatever its tokens."""
        length, prediction = open_BL.shape[1], traj.current_prediction
        draws = prediction.token_BND.shape[-1]
        sets, tokens = [], []
        for c in range(self.candidates if self.tau_pos > 0 else 1):
            # Every candidate has tokens of its own where the run draws; at temperature 0 there is one draw for all.
            confidence_BL = prediction.confidence_BND[:, :length, min(c, draws - 1)].double()
            if c > 0:
                gumbel_BL = -(-(traj.uniform(f"candidate/{c}") + 1e-10).log() + 1e-10).log()
                confidence_BL = confidence_BL / self.tau_pos + gumbel_BL
            sets.append(score.best(confidence_BL, open_BL, k_B))
            tokens.append(prediction.token_BND[:, :length, min(c, draws - 1)])
        # A set drawn twice would be looked at twice; the authors drop it by its positions alone.
        set_BAL = torch.stack(sets, 1)
        same_BAA = (set_BAL[:, :, None] == set_BAL[:, None]).all(-1)
        return _Candidates(set_BAL, torch.stack(tokens, 1), ~same_BAA.tril(-1).any(-1))

    def _look_ahead(self, traj: Trajectory, look_ahead: LookAhead, candidates: "_Candidates", look_B: Tensor) -> Tensor:
        """Objective J of every fresh candidate; on rows that do not look, 0 for the greedy one and -inf else."""
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
        # Hbar over all masks that are left, 0 if none.
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


def planned_count(clock: BlockClock) -> Tensor:
    """Return how many positions the step reveals by the block's plan, which is made at the block's start.

    Every step takes the share of what is left that the authors' schedule says; a bypass that reveals fewer falls
    behind the plan.
    """
    planned_B = clock.size_B
    for step in range(int(clock.inner_B.max())):
        rest_B = planned_B - linear_share(planned_B, clock.steps_B - step, clock.steps_B)
        planned_B = torch.where(step < clock.inner_B, rest_B, planned_B)
    return linear_share(planned_B, clock.steps_B - clock.inner_B, clock.steps_B)


def linear_share(masks_B: Tensor, left_B: Tensor, steps_B: Tensor) -> Tensor:
    """Return the positions of the next step: round(masks * (1 - s/t)), halves to even, at least 1.

    s and t are the times after and before. Exactly that would be masks / left. The authors take the ratio of two
    float32 times and multiply in float64, which puts some halves on one side and some on the other: 4 masks in 3 steps
    go 1, 1, 2. Tokens follow, so we do the same.
    """
    left_B = left_B.clamp(min=1)
    # 1 - alpha(t) of the linear schedule alpha(t) = 1 - t, rounded where the authors' float32 is.
    before_B, after_B = (1 - (1 - (n_B / steps_B.double()).float()) for n_B in (left_B, left_B - 1))
    ratio_B = (after_B / before_B).double()
    return (masks_B.double() * (1 - ratio_B)).round().long().clamp(min=1)
