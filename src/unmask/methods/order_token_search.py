"""Order-Token Search (Shen et al. 2026): noisy drafts at block starts, the most probable kept."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import score
from unmask.core import BlockLength, Needs, SearchContext, State, Trajectory, concat, map_tensors
from unmask.methods.blocks import block_clock, check_blocks
from unmask.methods.search_tools import (
    BeamPath,
    BeamRound,
    BeamSearch,
    Budget,
    ScheduledSearch,
    canvas_key,
    has_masks,
    reveal_positions,
    unique_items,
)


@dataclass(frozen=True)
class OrderTokenSearch(ScheduledSearch, BeamSearch):
    """Draft several answers with noise at every block's start, and keep the paths whose drafts are most probable.

    The noise changes tokens and, through their confidence, the order. A draft's value is log p of its block when the
    block is masked again inside the draft.
    """

    name: ClassVar[str] = "order-token-search"
    beams: Annotated[int, Field(ge=1, le=1024)] = 3
    """Number K of paths that are kept, and of drafts of each path at a block's start."""
    tau: Annotated[float, Field(ge=0, lt=math.inf)] | None = None
    """Temperature of the Gumbel noise; None for the run's own, or 0.6 if that is 0. Filters are not applied."""
    block_length: BlockLength | None = 32
    budget: Budget = "4x"

    @property
    def random(self) -> bool:
        return self.tau != 0

    @property
    def needs(self) -> Needs:
        return Needs(posterior=self.random)

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=False)
        super().check(state)

    def advance(
        self, context: SearchContext, beams: Mapping[int, Sequence[BeamPath]], spare: Sequence[int]
    ) -> Mapping[int, BeamRound]:
        made = {row: self._draft_answers(context, beam, spare[row]) for row, beam in beams.items()}
        # Drafts of all rows are scored in one pass; one alone is not scored.
        several = [drafts for drafts, _, searching in made.values() if searching and len(drafts) > 1]
        scores = iter(_score_drafts(context, [draft for drafts in several for draft in drafts]))
        rounds = {}
        for row, (drafts, keep, searching) in made.items():
            chooses = searching and len(drafts) > 1
            items = [BeamPath(draft.path, draft.value + (next(scores) if chooses else 0.0)) for draft in drafts]
            order = rank_by_value([item.value for item in items])
            dropped = [items[at].path for at in order[keep:]]
            rounds[row] = BeamRound([items[at] for at in order[:keep]], len(drafts), dropped)
        return rounds

    def _draft_answers(
        self, context: SearchContext, beam: Sequence[BeamPath], spare: int
    ) -> "tuple[list[_Draft], int, bool]":
        """Return the drafts of a beam's next step, how many of them to keep, and whether a block begins.

        Each path gets several drafts at a block's start and one elsewhere. Equal drafts count once.
        """
        clock = block_clock(next(item.path for item in beam if has_masks(item.path)).state, self.block_length)
        # All paths of a beam go through the schedule together, so the clock of one is that of all.
        searching = bool(clock.inner_B == 0)
        width = self._affordable_width(len(beam), spare, int(clock.steps_B)) if searching else min(len(beam), 1 + spare)
        tried = [(at, number) for at in range(min(width, len(beam))) for number in range(width if searching else 1)]
        drafts = (self._draft_answer(context, beam[at], at * self.beams + number) for at, number in tried)
        return (
            unique_items(drafts, lambda draft: (canvas_key(draft.path), draft.key if searching else b"")),
            width,
            searching,
        )

    def _affordable_width(self, beams: int, spare: int, steps: int) -> int:
        """Return the largest number of paths, and of drafts of each, that the remaining passes allow in this block."""
        return next((k for k in range(self.beams, 1, -1) if min(beams, k) * k + (k - 1) * steps <= spare), 1)

    def _draft_answer(self, context: SearchContext, item: BeamPath, number: int) -> "_Draft":
        """Move a path one step on, and draft its whole answer under the noise of this number."""
        path, state = item.path, item.path.state
        if not has_masks(path):
            return _Draft(path, item.value, state, torch.full_like(state.tokens_BL, -1))
        clock = block_clock(state, self.block_length)
        token_BL, confidence_BL = self._sample_with_noise(path, number)
        after = reveal_positions(
            context, path, self.name, score.best(confidence_BL, clock.open_BL, clock.quota_B), token_BL
        )
        block_BL = clock.in_block_BL & state.masked_BL
        # Later blocks show the draft; the block itself is masked, so that its tokens are scored in their context.
        whole_BL = torch.where(state.masked_BL & ~block_BL, token_BL, state.tokens_BL)
        return _Draft(after, item.value, replace(state, tokens_BL=whole_BL), torch.where(block_BL, token_BL, -1))

    def _sample_with_noise(self, path: Trajectory, number: int) -> tuple[Tensor, Tensor]:
        """Sample tokens with Gumbel noise, and return them with their confidences.

        A token is the argmax of log p + tau * Gumbel, its confidence the softmax of these numbers.
        """
        posterior = path.current_prediction.posterior
        tau = self.tau if self.tau is not None else (path.sampling and path.sampling.temperature) or 0.6
        if tau == 0 or posterior is None:
            return path.top_token_BL, path.top_p_BL.double()
        token_BL, confidence_BL = path.state.tokens_BL.clone(), path.top_p_BL.double()
        there = posterior.slot_BN.device  # a posterior stays where the model runs
        noise, step_B = map_tensors((path.noise, path.state.step_B), lambda tensor: tensor.to(there))
        for place_C in path.state.masked_BL[0].nonzero().flatten().split(64):  # a row is as long as the vocabulary
            position_C = place_C.to(there)
            log_p_CV = posterior.log_prob(posterior.slot_BN[0, position_C]).double()
            row_C, vocab = torch.zeros_like(position_C), log_p_CV.shape[1]
            uniform_CV = noise.uniform_vocab(step_B[row_C], position_C, row_C, vocab, f"draft/{number}")
            best_C = (log_p_CV - tau * uniform_CV.log().neg().log()).softmax(-1).max(-1)
            confidence_BL[0, place_C], token_BL[0, place_C] = (x_C.to(token_BL.device) for x_C in best_C)
        return token_BL, confidence_BL


@dataclass(frozen=True)
class _Draft:
    """A path after its next step, and the draft of its whole answer."""

    path: Trajectory
    value: float
    """Value of the path that it starts from."""
    whole: State
    """The complete draft with its block masked again."""
    given_BL: Tensor
    """The block's drafted tokens; -1 elsewhere."""

    @property
    def key(self) -> bytes:
        """The draft's tokens as bytes, to tell equal drafts."""
        return torch.cat((self.whole.tokens_BL, self.given_BL)).cpu().numpy().tobytes()


def _score_drafts(context: SearchContext, drafts: Sequence[_Draft]) -> list[float]:
    """Return log p of each draft's block when it is masked again in the draft, in one pass for all rows."""
    asked = [draft for draft in drafts if bool((draft.given_BL >= 0).any())]
    if not asked:
        return [0.0] * len(drafts)
    given_UL = torch.cat([draft.given_BL for draft in asked])
    owner_U = torch.cat([draft.path.rows_B for draft in asked])
    p_UL = context.predict(concat([draft.whole for draft in asked]), owner_U, given_UL=given_UL).given_BN
    assert p_UL is not None  # it was asked for
    scores = (block_log_p(p_L[: len(g_L)][g_L >= 0].tolist()) for p_L, g_L in zip(p_UL, given_UL, strict=True))
    return [next(scores) if bool((draft.given_BL >= 0).any()) else 0.0 for draft in drafts]


def block_log_p(p: Sequence[float]) -> float:
    """Return the log-likelihood of a block from the probabilities of its tokens."""
    return sum(math.log(x) if x > 0 else -math.inf for x in p)


def rank_by_value(values: Sequence[float]) -> list[int]:
    """Return the indices that sort values from the largest down; equal values keep their order."""
    return sorted(range(len(values)), key=lambda at: -values[at])
