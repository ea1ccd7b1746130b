"""Dream's decoder (Ye et al. 2025): a linear time grid with four orders of revealing."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import cardinality, score
from unmask.core import Action, LookAhead, Needs, NonNegative, Policy, Trajectory


@dataclass(frozen=True)
class Dream(Policy):
    """Reveal int(M (1 - s/t)) of M masked positions per step of a linear time grid, and all at the last step.

    Scores are those of the tempered, filtered distribution that tokens are drawn from. Each row counts its own masks;
    the authors' loop takes the mean over the batch, so that rows influence each other.
    """

    name: ClassVar[str] = "dream"
    needs = Needs(filtered=True)
    cuda_graph = True
    alg: Literal["origin", "maskgit_plus", "topk_margin", "entropy"] = "entropy"
    """Order of positions: random, or by the token's probability, the margin, or the entropy."""
    alg_temp: NonNegative = 0.0
    """Temperature at which positions are drawn without replacement from softmax(score / alg_temp); 0 ranks them."""
    eps: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """Time at which the grid ends."""

    @property
    def random(self) -> bool:
        return self.alg == "origin" or self.alg_temp > 0

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, masked_BL = traj.state, traj.state.masked_BL
        if self.alg == "origin":
            keep_B = cardinality.dream_keep_probability(state.horizon_B, state.step_B, self.eps)
            reveal_B = torch.where(state.remaining_steps_B == 1, 1.0, 1 - keep_B)
            # One coin per position, so the count is random; the last step reveals all that is left.
            chosen_BL = masked_BL & (traj.uniform("order") < reveal_B[:, None])
        else:
            k_B = cardinality.dream_count(masked_BL.sum(-1), state.horizon_B, state.step_B, self.eps)
            chosen_BL = score.best(self._reveal_score(traj), masked_BL, k_B)
        return Action.reveal(chosen_BL, of=masked_BL)

    def _reveal_score(self, traj: Trajectory) -> Tensor:
        filtered, length = traj.current_prediction.filtered, traj.state.tokens_BL.shape[1]
        if self.alg == "maskgit_plus":
            score_BL = traj.proposed_BL.double()
        elif self.alg == "topk_margin":
            score_BL = filtered.margin_BN[:, :length].double()
        else:
            score_BL = -filtered.entropy_BN[:, :length].double()
        if self.alg_temp == 0:
            return score_BL
        # The k largest sums with Gumbel noise are a draw without replacement from the softmax.
        return score_BL / self.alg_temp - traj.uniform("order").log().neg().log()
