"""Fast-dLLM (Wu et al. 2026): every position above a threshold, and its loop for Dream."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import cardinality, score
from unmask.base.errors import require
from unmask.core import Action, BlockLength, LookAhead, Natural, Needs, Policy, Probability, State, Trajectory
from unmask.methods.blocks import open_block


@dataclass(frozen=True)
class FastDLLM(Policy):
    """Reveal all sure positions of the leftmost open block, and at least one, until no mask is left.

    The number of steps changes nothing, as in the authors' loop. Their caches are options of the model.
    """

    name: ClassVar[str] = "fast-dllm"
    steps = "ignore"
    block_cache = True
    rule: Literal["threshold", "factor"] = "threshold"
    """Sure positions: those at or above the threshold, or by rank r those with at least 1 - factor / (r + 1)."""
    threshold: Probability = 0.9
    factor: Annotated[float, Field(ge=0, lt=float("inf"))] = 1.0
    block_length: BlockLength | None = 32
    """Answer positions per block; None is one block."""
    authors_tail: bool = False
    """Always accept the last candidate of the factor rule, as the authors' function does."""
    spacing: Natural = 0
    """DUS's filter: revealed positions keep a distance of max(2, masks x spacing / block); 0 for none."""

    @property
    def cuda_graph(self) -> bool:
        return not self.spacing  # the length of its loop depends on the number of chosen positions

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        open_BL = open_block(traj.state, self.block_length)
        return Action.reveal(self.accepted_positions(traj, open_BL, self.block_length), of=open_BL)

    def accepted_positions(self, traj: Trajectory, open_BL: Tensor, block_length: int | None) -> Tensor:
        """Return the open positions that the rule reveals; a spacing keeps them apart from each other."""
        confidence_BL = traj.confidence_BL
        if self.rule == "threshold":
            k_B = cardinality.count_above(confidence_BL, self.threshold, open_BL)
        else:
            k_B = cardinality.count_by_factor(confidence_BL, self.factor, open_BL, authors_tail=self.authors_tail)
        chosen_BL = score.best(confidence_BL, open_BL, k_B)
        if not self.spacing:
            return chosen_BL
        return drop_near_positions(traj.state, chosen_BL, confidence_BL, open_BL, self.spacing, block_length)


@dataclass(frozen=True)
class FastDLLMDream(Policy):
    """Fast-dLLM's loop for Dream without a cache: a quota of candidates per step, of which unsure ones are deferred.

    The candidates are the surest `masks / steps` positions and as many as were deferred before. The surest one is
    always revealed, the others if they reach the threshold. Steps are added until nothing is deferred.
    """

    name: ClassVar[str] = "fast-dllm-dream"
    needs = Needs(filtered=True)
    steps = "pace"
    cuda_graph = True
    threshold: Probability = 0.9

    def check(self, state: State) -> None:
        for answer, steps in zip(state.answer_BL.sum(-1).tolist(), state.horizon_B.tolist(), strict=True):
            divides = answer % steps == 0
            require(divides, "steps", steps, f"a divisor of the {answer} new tokens", "the authors' quota needs it")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, p_BL = traj.state, traj.proposed_BL
        answer_B = state.answer_BL.sum(-1)
        # Number of positions due after this step. The deferred ones are the difference to those revealed, so that the
        # method needs no notes.
        due_B = torch.minimum(answer_B // state.horizon_B * (state.step_B + 1), answer_B)
        candidate_BL = score.best(p_BL, state.masked_BL, (due_B - state.revealed_BL.sum(-1)).clamp(min=1))
        chosen_BL = score.best(p_BL, candidate_BL, cardinality.count_above(p_BL, self.threshold, candidate_BL))
        return Action.reveal(chosen_BL, of=state.masked_BL)


def drop_near_positions(
    state: State, chosen_BL: Tensor, order_BL: Tensor, open_BL: Tensor, spacing: int, block_length: int | None
) -> Tensor:
    """Drop chosen positions that are nearer to a better one than DUS's distance."""
    # Without blocks the whole answer is one. Not the canvas, whose width depends on the other rows.
    size_B = state.answer_BL.sum(-1) if block_length is None else torch.full_like(state.step_B, block_length)
    gap_B = (open_BL.sum(-1) * spacing // size_B).clamp(min=2)
    return choose_spaced_positions(order_BL, chosen_BL, gap_B)


def choose_spaced_positions(order_BL: Tensor, chosen_BL: Tensor, gap_B: Tensor) -> Tensor:
    """Return the chosen positions, taken best first, that are at least `gap` away from all taken before."""
    # Whether a position stays depends on all better ones that stayed, so the loop goes rank by rank.
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
