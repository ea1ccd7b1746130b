"""Dream (Ye et al.). Taxonomy: entropy, margin, confidence or none | scheduled | full | irreversible | none."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Needs, Policy, Trajectory
from unmask.methods.card import Card

ALGS = ("origin", "maskgit_plus", "topk_margin", "entropy")


@dataclass(frozen=True)
class Dream(Policy):
    """Reveal int(M (1 - s/t)) positions per step of a linear time grid, everything at the last.

    Scores are those of the tempered, filtered distribution that tokens are drawn from. Each row counts its own
    masks (the authors' loop counts the batch mean, so that rows influence each other).
    """

    name: ClassVar[str] = "dream"
    card: ClassVar[Card] = Card(
        "Ye et al. 2025, Dream (arXiv 2508.15487)",
        "entropy, margin, confidence or none",
        "scheduled",
        "full",
        "irreversible",
        differs=(
            "not a row of the paper's table",
            "each row counts its own masks (theirs counts the mean over a batch)",
        ),
        presets={
            "origin": {"alg": "origin"},
            "maskgit_plus": {"alg": "maskgit_plus"},
            "topk_margin": {"alg": "topk_margin"},
            "entropy": {"alg": "entropy"},
        },
    )
    needs = Needs(filtered=True)
    cuda_graph = True
    alg: str = "entropy"
    """"origin" (random positions), "maskgit_plus" (p of the token), "topk_margin" or "entropy"."""
    alg_temp: float = 0.0
    """Above 0, positions are drawn without replacement from softmax(score / alg_temp)."""
    eps: float = 1e-3

    def __post_init__(self) -> None:
        require(self.alg in ALGS, "alg", self.alg, ", ".join(ALGS), "pick one")
        require(self.alg_temp >= 0, "alg_temp", self.alg_temp, ">= 0", "0 takes the best positions")
        require(0 < self.eps < 1, "eps", self.eps, "above 0, below 1", "the authors use 0.001")

    @property
    def random(self) -> bool:
        return self.alg == "origin" or self.alg_temp > 0

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        masked_BL = state.masked_BL
        if self.alg == "origin":
            keep_B = cardinality.dream_keep(state.horizon_B, state.step_B, self.eps)
            reveal_B = torch.where(state.remaining_B == 1, 1.0, 1 - keep_B)
            chosen_BL = masked_BL & (traj.uniform("order") < reveal_B[:, None])
        else:
            k_B = cardinality.dream_count(masked_BL.sum(-1), state.horizon_B, state.step_B, self.eps)
            chosen_BL = score.best(self._scores(traj), masked_BL, k_B)
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(chosen_BL, masked_BL),
            commitment.commit_all(state),
            rule="confidence",
        )

    def _scores(self, traj: Trajectory) -> Tensor:
        seen = traj.current_prediction
        by_alg = {
            "maskgit_plus": seen.proposed_BN,
            "topk_margin": seen.filtered.margin_BN,
            "entropy": -seen.filtered.entropy_BN,
        }
        score_BL = by_alg[self.alg][:, : traj.state.tokens_BL.shape[1]].double()
        if self.alg_temp == 0:
            return score_BL
        # Gumbel-top-k draws without replacement from the softmax.
        return score_BL / self.alg_temp - traj.uniform("order").log().neg().log()
