"""DCD (Shu et al.). Taxonomy: confidence | confidence-adaptive | sliding window | irreversible | none."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unmask.axes import cardinality, commitment, region, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Needs, Policy, Trajectory
from unmask.methods.card import Card

SCORES = ("confidence", "entropy", "margin")


@dataclass(frozen=True)
class DCD(Policy):
    """Reveal what is sure in a window from the first mask on; what is not waits in the window while it slides.

    The window holds at most `s_init` masks and is at most `s_max` positions long.
    """

    name: ClassVar[str] = "dcd"
    card: ClassVar[Card] = Card(
        "Shu et al. 2026, Deferred Commitment Decoding (arXiv 2601.02076)",
        "confidence",
        "confidence-adaptive",
        "sliding window",
        "irreversible",
        differs=(
            "each row has a window of its own (theirs is common to a batch)",
            "end of text closes a row only with --eos-fill, which fills masks; theirs always does, and overwrites "
            "tokens behind it",
            "the loop for block-causal models is left out: none of the models here is one",
            "the margin is that of a position's two best tokens (their function mixes up positions and tokens, and "
            "stops with an error)",
        ),
        presets={"code": {"s_init": 32, "s_max": None}},
        # Above temperature 0 scores are those of the distribution that tokens are drawn from, as theirs.
        version="2",
    )
    steps = "ignore"
    needs = Needs(filtered=True)
    cuda_graph = True
    threshold: float = 0.9
    """Of the score; negative with score = entropy, whose largest value is 0."""
    s_init: int = 16
    s_max: int | None = 128
    score: str = "confidence"
    """confidence, entropy (negative) or margin."""
    per_step: int | None = None
    """Reveal so many a step, whatever their score; None goes by the threshold."""

    def __post_init__(self) -> None:
        require(self.score in SCORES, "score", self.score, ", ".join(SCORES), "pick one")
        ok = self.threshold <= 0 if self.score == "entropy" else 0 <= self.threshold <= 1
        allowed = "0 or less with score=entropy" if self.score == "entropy" else "0 to 1"
        require(ok, "threshold", self.threshold, allowed, "published: 0.9 with score=confidence")
        require(1 <= self.s_init <= 1_000_000, "s_init", self.s_init, "1 to 1000000", "published: 16")
        for name, value in (("s_max", self.s_max), ("per_step", self.per_step)):
            sane = value is None or 1 <= value <= 1_000_000
            require(sane, name, value, "1 to 1000000, or None", "published: s_max=128 and no per_step")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        window_BL = region.first_masks(state, self.s_init, self.s_max)
        score_BL = self._score(traj)[:, : window_BL.shape[1]]
        if self.per_step is None:
            k_B = cardinality.above(score_BL, self.threshold, window_BL)
        else:
            k_B = window_BL.sum(-1).clamp(max=self.per_step)
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(score.best(score_BL, window_BL, k_B), window_BL),
            commitment.commit_all(state),
            rule="confidence",
        )

    def _score(self, traj: Trajectory) -> Tensor:
        seen = traj.current_prediction
        if self.score == "entropy":
            return -seen.filtered.entropy_BN
        return seen.proposed_BN if self.score == "confidence" else seen.filtered.margin_BN
