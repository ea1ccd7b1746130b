"""Fast-dLLM (Wu et al.). Taxonomy: confidence | threshold-adaptive | block | irreversible | none."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Needs, Policy, State, Trajectory
from unmask.methods.blocks import check_block_length, open_block
from unmask.methods.card import Card

RULES = ("threshold", "factor")


@dataclass(frozen=True)
class FastDLLM(Policy):
    """Reveal all sure positions of the leftmost open block, at least one; the block goes on until it is full.

    `steps` bounds nothing here: the authors' loop runs until no mask is left. Its caches are options of the model.
    """

    name: ClassVar[str] = "fast-dllm"
    card: ClassVar[Card] = Card(
        "Wu et al. 2026, Fast-dLLM (arXiv 2505.22618)",
        "confidence",
        "threshold-adaptive",
        "block",
        "irreversible",
        differs=(
            "the factor rule stops at the first failure; the authors' accepts the last candidate too (authors_tail)",
            "the extra forward of a block that is already full is not run",
            "the loop for Dream with a cache, which reveals the first token of a block unasked, is left out",
        ),
        presets={"dus-spacing": {"threshold": 0.5, "spacing": 8}},
    )
    steps = "ignore"
    block_cache = True
    rule: str = "threshold"
    """"threshold" (all at least that sure) or "factor" (rank r needs 1 - factor / (r + 1))."""
    threshold: float = 0.9
    factor: float = 1.0
    block_length: int | None = 32
    """Answer positions per block; None is one block."""
    authors_tail: bool = False
    """Accept the last candidate of a factor scan as the authors' function does, whether it passed or not."""
    spacing: int = 0
    """DUS's filter: accepted positions keep a distance of max(2, masks x spacing / block); 0 for none."""

    def __post_init__(self) -> None:
        require(self.rule in RULES, "rule", self.rule, " or ".join(RULES), "pick one")
        require(0 <= self.threshold <= 1, "threshold", self.threshold, "0 to 1", "it is a probability; published: 0.9")
        require(0 <= self.factor < float("inf"), "factor", self.factor, "0 or more", "the authors use 1")
        require(self.spacing >= 0, "spacing", self.spacing, "0 or more", "0 switches the filter off")
        check_block_length(self.block_length, "published: 32")

    @property
    def cuda_graph(self) -> bool:
        return not self.spacing  # its loop is as long as the most chosen positions of a row

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        open_BL = open_block(state, self.block_length)
        confidence_BL = traj.current_prediction.confidence_BN[:, : open_BL.shape[1]]
        chosen_BL = self.accept(confidence_BL, open_BL)
        if self.spacing:
            chosen_BL = keep_apart(chosen_BL, confidence_BL, open_BL, self.spacing, self.block_length)
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(chosen_BL, open_BL),
            commitment.commit_all(state),
            rule="confidence",
        )

    def accept(self, confidence_BL: Tensor, open_BL: Tensor) -> Tensor:
        """The open positions that the rule reveals."""
        if self.rule == "threshold":
            k_B = cardinality.above(confidence_BL, self.threshold, open_BL)
        else:
            k_B = cardinality.factor_count(confidence_BL, self.factor, open_BL, authors_tail=self.authors_tail)
        return score.best(confidence_BL, open_BL, k_B)


@dataclass(frozen=True)
class FastDLLMDream(Policy):
    """Fast-dLLM's loop for Dream without a cache: so many candidates of the whole answer a step, the unsure deferred.

    Step i looks at the surest `masks / steps` positions and those deferred before; the first is always revealed, the
    others if they reach the threshold. Steps are added until nothing is deferred.
    """

    name: ClassVar[str] = "fast-dllm-dream"
    card: ClassVar[Card] = Card(
        "Wu et al. 2026, Fast-dLLM (arXiv 2505.22618)",
        "confidence",
        "threshold-adaptive",
        "full, with a quota",
        "irreversible",
        differs=("the paper's row says block, which is the loop for LLaDA; this is the authors' for Dream",),
    )
    needs = Needs(filtered=True)
    steps = "pace"
    cuda_graph = True
    threshold: float = 0.9

    def __post_init__(self) -> None:
        require(0 <= self.threshold <= 1, "threshold", self.threshold, "0 to 1", "it is a probability; published: 0.9")

    def check(self, state: State) -> None:
        for answer, steps in zip(state.answer_BL.sum(-1).tolist(), state.horizon_B.tolist(), strict=True):
            divides = answer % steps == 0
            require(divides, "steps", steps, f"a divisor of the {answer} new tokens", "the authors' quota needs it")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        masked_BL = state.masked_BL
        answer_B = state.answer_BL.sum(-1)
        due_B = torch.minimum(answer_B // state.horizon_B * (state.step_B + 1), answer_B)
        looked_at_B = (due_B - state.revealed_BL.sum(-1)).clamp(min=1)
        p_BL = traj.current_prediction.proposed_BN[:, : masked_BL.shape[1]]
        looked_at_BL = score.best(p_BL, masked_BL, looked_at_B)
        chosen_BL = score.best(p_BL, looked_at_BL, cardinality.above(p_BL, self.threshold, looked_at_BL))
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(chosen_BL, masked_BL),
            commitment.commit_all(state),
            rule="confidence",
        )


def keep_apart(chosen_BL: Tensor, order_BL: Tensor, open_BL: Tensor, spacing: int, block_length: int | None) -> Tensor:
    """DUS's distance between positions that are revealed together: max(2, floor(masks left x spacing / block))."""
    size = block_length or open_BL.shape[1]
    gap_B = (open_BL.sum(-1) * spacing // size).clamp(min=2)
    return keep_spaced(order_BL, chosen_BL, gap_B)


def keep_spaced(order_BL: Tensor, chosen_BL: Tensor, gap_B: Tensor) -> Tensor:
    """DUS's filter: of the chosen positions, best score first, those at least `gap` from every one kept before."""
    key_BL = torch.where(chosen_BL, order_BL.double(), float("-inf"))
    place_BL = key_BL.sort(dim=-1, descending=True, stable=True).indices
    position_L = torch.arange(chosen_BL.shape[1], device=chosen_BL.device)
    kept_BL = torch.zeros_like(chosen_BL)
    for rank in range(int(chosen_BL.sum(-1).max())):
        at_B1 = place_BL[:, rank : rank + 1]
        near_BL = (position_L - at_B1).abs() < gap_B[:, None]
        free_B1 = chosen_BL.gather(1, at_B1) & ~(kept_BL & near_BL).any(-1, keepdim=True)
        kept_BL = kept_BL.scatter(1, at_B1, free_B1)
    return kept_BL
