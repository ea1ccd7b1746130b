"""P2, path planning (Peng et al. 2025): a scheduled number of revealed positions, chosen anew at every step."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import score
from unmask.core import Action, LookAhead, ModelInput, Needs, Policy, Posterior, State, Trajectory

SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda t: t,
    "sine": lambda t: (t * math.pi / 2).sin(),
    "quadratic": lambda t: 1 - (1 - t) ** 2,
    "log": lambda t: (1 + t).log2(),
    "square": lambda t: t**2,
    "root": lambda t: t.sqrt(),
}


@dataclass(frozen=True)
class P2(Policy):
    """Keep a scheduled share of the answer revealed: the positions that score best, whether revealed before or not.

    A masked position scores the log-probability of its token. A revealed one scores eta times the log-probability that
    the model, or a planner on the drafted canvas, gives to its token now: a large eta remasks more, 0 never does.
    """

    name: ClassVar[str] = "p2"
    eta: Annotated[float, Field(ge=0, lt=float("inf"))] = 1.0
    schedule: Literal["linear", "sine", "quadratic", "log", "square", "root"] = "linear"
    """Share of the answer that is revealed at time t."""
    form: Literal["log", "probability"] = "log"
    """"log": eta multiplies the log-probability of revealed positions, as in the authors' code; "probability": the
    probability of masked ones, as in the paper's Eq. (7)."""
    exact: bool = False
    """Mask exactly the scheduled number if scores tie at the cut; the authors' code masks none of the tied ones."""
    planner: bool = False
    """Score revealed positions by the run's planner network, on the drafted canvas."""
    noisy: bool = False
    """Draw with Gumbel noise above temperature 0 and score the noisy logits, as the authors' code does; no filters."""

    @property
    def needs(self) -> Needs:
        return Needs(revealed=True, filtered=True, posterior=self.noisy, planner=self.planner)

    @property
    def random(self) -> bool:
        return self.noisy

    @property
    def remasks(self) -> bool:
        return self.eta > 0 or self.form == "probability" or self.exact  # equal scores may fall either way

    @property
    def looks_ahead(self) -> bool:
        return self.planner

    @property
    def cuda_graph(self) -> bool:
        return not (self.planner or self.noisy)  # both select positions, whose number depends on the canvas

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        # A token for every position that is not given, and the log-probability it was drawn with.
        posterior, sampling = traj.current_prediction.posterior, traj.sampling
        if self.noisy and posterior is not None and sampling and sampling.temperature > 0:
            token_BL, draft_BL = _sample_with_gumbel_noise(traj, posterior, sampling.temperature)
        else:
            # A probability of 0 times eta = 0 must be 0, not NaN.
            token_BL, draft_BL = traj.token_BL, traj.proposed_BL.double().clamp(min=1e-300).log()
        keep_BL = self._ask_planner(state, look_ahead, token_BL) if self.planner else draft_BL
        if self.form == "log":
            score_BL = torch.where(state.masked_BL, draft_BL, self.eta * keep_BL)
        else:
            score_BL = torch.where(state.masked_BL, self.eta * draft_BL.exp(), keep_BL.exp())
        masked_after_BL = self._lowest_positions(state, score_BL)
        chosen_BL = state.masked_BL & ~masked_after_BL
        return Action.reveal(
            chosen_BL,
            of=state.masked_BL | masked_after_BL,
            commit=False,
            remask_BL=state.revisable_BL & masked_after_BL,
            tokens_BL=torch.where(chosen_BL, token_BL, -1) if self.noisy else None,
        )

    def _ask_planner(self, state: State, look_ahead: LookAhead, token_BL: Tensor) -> Tensor:
        """Return the log-probability that the planner gives to the drafted token at each revealed position."""
        draft_BL = torch.where(state.answer_BL, token_BL, state.tokens_BL)
        drafted = replace(state, tokens_BL=draft_BL)
        inputs = replace(ModelInput.of(drafted, Needs(revealed=True)), wanted_BN=state.revealed_BL)
        output = look_ahead.ask_planner(drafted, torch.arange(state.batch, device=draft_BL.device), inputs=inputs)
        log_p_RV = output.logits_RV.double().log_softmax(-1)
        out_BL = torch.zeros_like(draft_BL, dtype=torch.float64)
        out_BL[state.revealed_BL] = log_p_RV.gather(1, draft_BL[state.revealed_BL][:, None]).squeeze(1)
        return out_BL.clamp(min=-690.0)

    def _lowest_positions(self, state: State, score_BL: Tensor) -> Tensor:
        """Return the m answer positions of lowest score, which are masked after the step; ties at the cut stay."""
        answer_B = state.answer_BL.sum(-1)
        done_B = ((state.step_B + 1).double() / state.horizon_B).clamp(max=1)
        # A product that should be whole may fall short by a rounding error.
        m_B = (answer_B * (1 - SCHEDULES[self.schedule](done_B)) + 1e-6).long().clamp(min=0)
        # Committed positions are never masked, like a prompt.
        able_BL = state.masked_BL | state.revisable_BL
        m_B = torch.minimum(m_B, able_BL.sum(-1))
        if self.exact:
            return score.best(-score_BL, able_BL, m_B)
        # The authors mask what is below the first kept score, so positions that tie with it stay.
        sorted_BL = torch.where(able_BL, score_BL, float("inf")).sort(-1).values
        cut_B1 = sorted_BL.gather(1, m_B.clamp(max=sorted_BL.shape[1] - 1)[:, None])
        everything_B1 = (m_B == sorted_BL.shape[1])[:, None]
        return able_BL & ((score_BL < cut_B1) | everything_B1)


def _sample_with_gumbel_noise(traj: Trajectory, posterior: Posterior, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the best token of z / temperature plus Gumbel noise at each wanted position, and its log probability."""
    known_BL = posterior.slot_BN[:, : traj.state.tokens_BL.shape[1]] >= 0
    row_R, position_R = known_BL.nonzero(as_tuple=True)
    log_p_RV = posterior.log_prob(posterior.slot_BN[row_R, position_R]).double()
    step_R = traj.state.step_B[row_R]
    uniform_RV = traj.noise.uniform_vocab(step_R, position_R, row_R, log_p_RV.shape[1], "token")
    best_R = (log_p_RV / temperature - uniform_RV.log().neg().log()).log_softmax(-1).max(-1)
    score_BL = torch.zeros(known_BL.shape, dtype=torch.float64, device=known_BL.device)
    token_BL = torch.zeros(known_BL.shape, dtype=torch.long, device=known_BL.device)
    score_BL[known_BL], token_BL[known_BL] = best_R.values, best_R.indices
    return token_BL, score_BL
