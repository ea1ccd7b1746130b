"""DCD, Deferred Commitment Decoding (Shu et al. 2026): a sliding window in which unsure positions wait."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from unmask.axes import cardinality, region, score
from unmask.base.errors import require
from unmask.core import Action, Count, LookAhead, Needs, Policy, Trajectory


@dataclass(frozen=True)
class DCD(Policy):
    """Reveal sure positions of a window that starts at the first mask; unsure ones wait in it while it slides.

    The window holds at most `s_init` masks and is at most `s_max` positions long.
    """

    name: ClassVar[str] = "dcd"
    steps = "ignore"
    needs = Needs(filtered=True)
    cuda_graph = True
    threshold: float = 0.9
    """Smallest score of a sure position; 0 or negative with score = entropy, whose largest value is 0."""
    s_init: Count = 16
    s_max: Count | None = 128
    score: Literal["confidence", "entropy", "margin"] = "confidence"
    """Score that is compared with the threshold and orders positions; "entropy" is minus the entropy."""
    per_step: Count | None = None
    """Number of positions to reveal per step, whatever their score; None for the threshold."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.threshold <= 0 if self.score == "entropy" else 0 <= self.threshold <= 1
        allowed = "0 or less with score=entropy" if self.score == "entropy" else "0 to 1"
        require(ok, "threshold of dcd", self.threshold, allowed, "published: 0.9 with score=confidence")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        # The window holds the first masks, so what is deferred keeps its place there until it is revealed.
        window_BL = region.open_first_masks(traj.state, self.s_init, self.s_max)
        score_BL = self._reveal_score(traj)
        if self.per_step is None:
            k_B = cardinality.count_above(score_BL, self.threshold, window_BL)
        else:
            k_B = window_BL.sum(-1).clamp(max=self.per_step)
        return Action.reveal(score.best(score_BL, window_BL, k_B), of=window_BL)

    def _reveal_score(self, traj: Trajectory) -> Tensor:
        filtered, length = traj.current_prediction.filtered, traj.state.tokens_BL.shape[1]
        if self.score == "entropy":
            return -filtered.entropy_BN[:, :length]
        return traj.proposed_BL if self.score == "confidence" else filtered.margin_BN[:, :length]
