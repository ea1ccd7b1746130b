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
    """Reveal int(M (1 - s/t)) positions per step of a linear time grid, everything at the last.

    Scores are those of the tempered, filtered distribution that tokens are drawn from. Each row counts its own
    masks (the authors' loop counts the batch mean, so that rows influence each other).
    """

    name: ClassVar[str] = "dream"
    needs = Needs(filtered=True)
    cuda_graph = True
    alg: Literal["origin", "maskgit_plus", "topk_margin", "entropy"] = "entropy"
    """Random positions, or by the probability of the token, by the margin, or by the entropy."""
    alg_temp: NonNegative = 0.0
    """Above 0, positions are drawn without replacement from softmax(score / alg_temp)."""
    eps: Annotated[float, Field(gt=0, lt=1)] = 1e-3

    @property
    def random(self) -> bool:
        return self.alg == "origin" or self.alg_temp > 0

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, masked_BL = traj.state, traj.state.masked_BL
        if self.alg == "origin":
            keep_B = cardinality.dream_keep(state.horizon_B, state.step_B, self.eps)
            reveal_B = torch.where(state.remaining_B == 1, 1.0, 1 - keep_B)
            # A coin per position, so the count is random; the last step reveals whatever is left.
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
        # Gumbel-top-k draws without replacement from the softmax.
        return score_BL / self.alg_temp - traj.uniform("order").log().neg().log()
