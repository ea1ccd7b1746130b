"""DDPD, discrete diffusion with planned denoising (Liu et al. 2024): a planner finds the tokens that are noise."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.core import Action, LookAhead, ModelInput, Needs, State, Trajectory
from unmask.methods.heads import AUTO, HeadName, LearnedPolicy

SURE = 50.0
"""Planner logit of a mask, which is noise for certain; other logits are at most as large."""
PRIOR = 0.5
"""Expected share of noise without any evidence: the planner does not know the time, and training draws it evenly."""


@dataclass(frozen=True)
class DDPD(LearnedPolicy):
    """Rewrite one token per step that a planner takes for noise, in the context of the tokens that it trusts.

    A step draws a position by the planner and masks it, together with every position that a coin of its noise
    probability picks; then it writes the model's token at the drawn position. Every position may be rewritten at any
    step, so steps beyond the number of positions correct tokens.
    """

    name: ClassVar[str] = "ddpd"
    random = True
    remasks = True
    looks_ahead = True
    extra_steps = True
    headless: ClassVar[str] = "self"
    start: Literal["masks", "uniform"] = "masks"
    """"masks" starts from masks; "uniform", as the authors do, spends a first step on writing random tokens."""
    weights: Literal["softmax", "sigmoid"] = "softmax"
    """Weights that draw the position: the softmax of the planner's logits (the code's default), or the noise
    probabilities ("sigmoid", the paper's rate)."""
    planner_temperature: Annotated[float, Field(gt=0, lt=float("inf"))] = 1.0
    """Temperature that divides the planner's logits."""
    fill: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Noise probability above which a position takes the most probable token after the last step."""
    head: HeadName = AUTO
    """Planner: "auto" for the package's head, a folder, or "self" for Bayes' rule on the model's own probability."""

    @property
    def needs(self) -> Needs:
        return Needs(revealed=True, hidden=self.reads_head)

    def done(self, traj: Trajectory) -> Tensor:
        """Return which rows have taken all their steps."""
        return traj.state.step_B >= self._count_steps(traj.state)

    def model_input(self, traj: Trajectory) -> ModelInput:
        """Return the canvas as input, and ask for the probability of every revealed token."""
        state = traj.state
        return replace(ModelInput.of(state, self.needs), given_BN=torch.where(state.revealed_BL, state.tokens_BL, -1))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        able_BL = state.answer_BL & ~state.committed_BL
        g_BL = self._planner_logits(traj)
        write_BL, hidden_BL = self.plan(g_BL, able_BL, traj.uniform)
        last_B = state.step_B + 1 >= self._count_steps(state)
        # After the last step nothing can be corrected any more, so doubtful tokens become the most probable ones.
        fill_BL = able_BL & (g_BL.sigmoid() > self.fill) & last_B[:, None]
        begin_B = (state.step_B == 0) & (self.start == "uniform")
        tokens_BL = torch.full_like(state.tokens_BL, -1)
        row_U = (~begin_B).nonzero().flatten()
        if len(row_U):
            tokens_BL[row_U] = self._predict_denoised(traj, look_ahead, row_U, hidden_BL[row_U], fill_BL[row_U])
        write_BL = torch.where(begin_B[:, None], state.masked_BL, write_BL | fill_BL)
        tokens_BL = torch.where(begin_B[:, None], self._draw_random_tokens(traj), tokens_BL)
        return Action.reveal(
            write_BL,
            of=state.masked_BL | write_BL,
            commit=False,
            remask_BL=write_BL & state.revisable_BL,
            tokens_BL=torch.where(write_BL, tokens_BL, -1),
        )

    def _predict_denoised(
        self, traj: Trajectory, look_ahead: LookAhead, row_U: Tensor, hidden_UL: Tensor, fill_UL: Tensor
    ) -> Tensor:
        """Return the sampled tokens with untrusted positions masked; at `fill_UL` the most probable ones."""
        rows = traj.state.select(row_U)
        masked = replace(rows, tokens_BL=torch.where(hidden_UL, rows.mask_id, rows.tokens_BL))
        prediction = look_ahead.predict(masked, row_U, Needs(revealed=True), noise=traj.noise.select(row_U))
        return torch.where(fill_UL, prediction.clean.top_BNK[..., 0], prediction.token_BN)

    def _count_steps(self, state: State) -> Tensor:
        """Return the number of steps of a run, including a first one that writes random tokens."""
        return state.horizon_B + (self.start == "uniform")

    def plan(self, g_BL: Tensor, able_BL: Tensor, uniform: Callable[[str], Tensor]) -> tuple[Tensor, Tensor]:
        """Return masks of the position to rewrite in each row, and of all positions to mask for that."""
        weight_BL = self.draw_probabilities(g_BL, able_BL)
        cumulative_BL = weight_BL.cumsum(-1)
        # One uniform number per row, that of its first answer position, which padding does not move.
        first_B1 = able_BL.long().argmax(-1, keepdim=True)
        u_B1 = uniform("planner/position").gather(1, first_B1) * cumulative_BL[:, -1:]
        # Inverse of the running sum. The number is scaled by the sum's own end, so that rounding cannot pass it.
        place_B1 = torch.searchsorted(cumulative_BL, u_B1, right=True)
        last_B1 = (able_BL * torch.arange(able_BL.shape[1], device=able_BL.device)).amax(-1, keepdim=True)
        at_BL = torch.zeros_like(able_BL).scatter(1, torch.minimum(place_B1, last_B1), True) & able_BL
        return at_BL, able_BL & ((uniform("planner/coin") < g_BL.sigmoid()) | at_BL)

    def draw_probabilities(self, g_BL: Tensor, able_BL: Tensor) -> Tensor:
        """Return the probability with which each position is drawn to be rewritten."""
        if self.weights == "sigmoid":
            weight_BL = torch.where(able_BL, (g_BL / self.planner_temperature).sigmoid(), 0.0)
            return weight_BL / weight_BL.sum(-1, keepdim=True)
        return torch.where(able_BL, g_BL / self.planner_temperature, float("-inf")).softmax(-1).nan_to_num()

    def _planner_logits(self, traj: Trajectory) -> Tensor:
        """Return the planner's logit that each token is noise, in float64; `SURE` at masked positions."""
        state, prediction = traj.state, traj.current_prediction
        p_BL = prediction.given_BN
        assert p_BL is not None  # `model_input` asks for it
        if self.reads_head:
            g_BL = self.network_for(prediction.hidden_BNH)(prediction.hidden_BNH, p_BL)
        else:
            # Odds of noise by Bayes' rule, if tokens of noise are uniform over the vocabulary.
            odds_BL = PRIOR / prediction.vocab / ((1 - PRIOR) * p_BL.double()).clamp(min=1e-300)
            g_BL = odds_BL.log()
        return torch.where(state.masked_BL, SURE, g_BL.double().clamp(-SURE, SURE))

    def _draw_random_tokens(self, traj: Trajectory) -> Tensor:
        """Draw tokens uniformly from the vocabulary without the mask."""
        state, vocab = traj.state, traj.current_prediction.vocab
        inside = state.mask_id < vocab
        # Ids from the mask's on move up by one, so that the mask is never drawn.
        drawn_BL = (traj.uniform("planner/start") * (vocab - inside)).long()
        return drawn_BL + (drawn_BL >= state.mask_id) if inside else drawn_BL
