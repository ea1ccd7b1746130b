"""Order-Token Search (Shen et al.).

Taxonomy: action likelihood | search-dependent | full | search-delayed | joint trajectory search."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from unmask.axes import score
from unmask.base.errors import require
from unmask.core import Needs, SearchContext, State, Trajectory, concat, map_tensors
from unmask.methods.blocks import check_block_length, check_blocks, clock
from unmask.methods.card import RECONSTRUCTION, Card
from unmask.methods.llada import quota
from unmask.methods.paths import (
    LookBudget,
    ScheduledSearch,
    canvas,
    check_budget,
    ended,
    first_looks,
    is_open,
    looked,
    noted,
    revealed,
    unique,
)


@dataclass(frozen=True)
class OrderTokenSearch(ScheduledSearch):
    """Noise the logits to draft several answers at every block's start; keep the paths whose drafts the model believes.

    Noise changes tokens and, through confidence, the order. A draft is worth log p of its block, hidden again in it.
    """

    name: ClassVar[str] = "order-token-search"
    card: ClassVar[Card] = Card(
        "Shen et al. 2026, Order-Token Search (arXiv 2601.20339)",
        "action likelihood",
        "search-dependent",
        "full",
        "search-delayed",
        planning="joint trajectory search",
        label=RECONSTRUCTION,
        differs=(
            "from others' words of the paper; blocks follow each other, which its row calls full",
            "beams start as one, equal drafts are one, and one alone is not scored; tau is not chosen for every task",
        ),
        presets={"published": {"beams": 5}},
    )
    beams: int = 3
    """Paths kept, and drafts of each at a block's start, K."""
    tau: float | None = None
    """Temperature of the Gumbel noise. None: the run's own, 0.6 where that is 0. Filters of the run are not applied."""
    block_length: int | None = 32
    budget: int | str = "4x"
    """Forwards per row at most: a number, or times a base decode."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "the authors use 32")
        check_budget(self.budget)
        require(1 <= self.beams <= 1024, "beams", self.beams, "1 to 1024", "the authors use 3 to 8")
        ok = self.tau is None or 0 <= self.tau < math.inf
        require(ok, "tau", self.tau, "0 or more, or None", "the authors search 0.2 to 1")

    @property
    def random(self) -> bool:
        return self.tau != 0

    @property
    def needs(self) -> Needs:
        return Needs(posterior=self.random)

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=False)
        LookBudget(self.budget, self.baseline_forwards(state))

    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        start = first_looks(context, traj, self.needs)
        budget = LookBudget(self.budget, self.baseline_forwards(traj.state), context)
        beams = [[_Beam(path)] for path in start]
        tree = [1] * len(beams)
        rounds = 1
        while going := [row for row, beam in enumerate(beams) if any(is_open(item.path) for item in beam)]:
            spare = budget.left(rounds)
            made = {row: self._round(context, beams[row], spare[row]) for row in going}
            scores = iter(_scores(context, [draft for now in made.values() if now.chooses for draft in now.drafts]))
            for row, now in made.items():
                tree[row] += len(now.drafts)
                values = [draft.value + (next(scores) if now.chooses else 0.0) for draft in now.drafts]
                order = ranked(values)
                dropped = [now.drafts[at].path for at in order[now.keep :]]
                kept = [(now.drafts[at].path, values[at]) for at in order[: now.keep]]
                beams[row] = [_Beam(noted(path, value, tree[row], dropped), value) for path, value in kept]
            seen = iter(looked(context, [item.path for row in going for item in beams[row]], self.needs))
            for row in going:
                beams[row] = [item._replace(path=next(seen)) for item in beams[row]]
            context.report_paths([beams[row][0].path for row in going])
            rounds += 1
        return ended(traj, (beam[0].path for beam in beams))

    def _round(self, context: SearchContext, beam: "Sequence[_Beam]", spare: int) -> "_Round":
        """The beam one step on: several drafts of each path at a block's start, one elsewhere; equal ones once."""
        now = clock(next(item.path for item in beam if is_open(item.path)).state, self.block_length)
        searching = bool(now.inner_B == 0)
        width = self._width(len(beam), spare, int(now.steps_B)) if searching else min(len(beam), 1 + spare)
        tried = [(at, number) for at in range(min(width, len(beam))) for number in range(width if searching else 1)]
        drafts = (self._draft(context, beam[at], at * self.beams + number) for at, number in tried)
        found = unique(drafts, lambda draft: (canvas(draft.path), draft.key if searching else b""))
        return _Round(found, width, searching and len(found) > 1)

    def _width(self, beams: int, spare: int, steps: int) -> int:
        """The widest search of this block that its row can pay for: drafts to score, and paths to follow."""
        return next((k for k in range(self.beams, 1, -1) if min(beams, k) * k + (k - 1) * steps <= spare), 1)

    def _draft(self, context: SearchContext, item: "_Beam", number: int) -> "_Draft":
        """The path one step on, and the whole answer that the noise drafted."""
        path, state = item.path, item.path.state
        if not is_open(path):
            return _Draft(path, item.value, state, torch.full_like(state.tokens_BL, -1))
        now = clock(state, self.block_length)
        token_BL, confidence_BL = self._noisy(path, number)
        after = revealed(context, path, self.name, score.best(confidence_BL, now.open_BL, quota(now)), token_BL)
        block_BL = now.in_block_BL & state.masked_BL
        whole_BL = torch.where(state.masked_BL & ~block_BL, token_BL, state.tokens_BL)
        return _Draft(after, item.value, replace(state, tokens_BL=whole_BL), torch.where(block_BL, token_BL, -1))

    def _noisy(self, path: Trajectory, number: int) -> tuple[Tensor, Tensor]:
        """Token and confidence of every masked position: the largest of log p + tau * Gumbel, and its softmax."""
        seen, length = path.current_prediction, path.state.tokens_BL.shape[1]
        tau = self.tau if self.tau is not None else (path.sampling and path.sampling.temperature) or 0.6
        if tau == 0 or seen.posterior is None:
            return seen.clean.top_BNK[:, :length, 0], seen.clean.p_BNK[:, :length, 0].double()
        token_BL, confidence_BL = path.state.tokens_BL.clone(), seen.clean.p_BNK[:, :length, 0].double()
        there = seen.posterior.slot_BN.device  # a posterior stays where the model runs
        noise, step_B = map_tensors((path.noise, path.state.step_B), lambda tensor: tensor.to(there))
        for place_C in path.state.masked_BL[0].nonzero().flatten().split(64):  # a row is as long as the vocabulary
            position_C = place_C.to(there)
            log_p_CV = seen.posterior.log_prob(seen.posterior.slot_BN[0, position_C]).double()
            row_C, vocab = torch.zeros_like(position_C), log_p_CV.shape[1]
            uniform_CV = noise.uniform_vocab(step_B[row_C], position_C, row_C, vocab, f"draft/{number}")
            best_C = (log_p_CV - tau * uniform_CV.log().neg().log()).softmax(-1).max(-1)
            confidence_BL[0, place_C], token_BL[0, place_C] = (x_C.to(token_BL.device) for x_C in best_C)
        return token_BL, confidence_BL


def _scores(context: SearchContext, drafts: "Sequence[_Draft]") -> list[float]:
    """log p of every draft's block, hidden again in its whole draft: one pass for all rows."""
    asked = [draft for draft in drafts if bool((draft.given_BL >= 0).any())]
    if not asked:
        return [0.0] * len(drafts)
    given_UL = torch.cat([draft.given_BL for draft in asked])
    owner_U = torch.cat([draft.path.rows_B for draft in asked])
    p_UL = context.predict(concat([draft.whole for draft in asked]), owner_U, given_UL=given_UL).given_BN
    assert p_UL is not None  # it was asked for
    told = (block_score(p_L[: len(g_L)][g_L >= 0].tolist()) for p_L, g_L in zip(p_UL, given_UL, strict=True))
    return [next(told) if bool((draft.given_BL >= 0).any()) else 0.0 for draft in drafts]


def block_score(p: Sequence[float]) -> float:
    """Log-likelihood of a block's tokens."""
    return sum(math.log(x) if x > 0 else -math.inf for x in p)


def ranked(values: Sequence[float]) -> list[int]:
    """Best first; ties to the earlier path, then to its earlier draft."""
    return sorted(range(len(values)), key=lambda at: -values[at])


class _Beam(NamedTuple):
    path: Trajectory
    value: float = 0.0


@dataclass(frozen=True)
class _Draft:
    path: Trajectory
    value: float
    """Of the path it comes from."""
    whole: State
    """The complete draft, its block hidden again."""
    given_BL: Tensor
    """The block's drafted tokens; -1 elsewhere."""

    @property
    def key(self) -> bytes:
        return torch.cat((self.whole.tokens_BL, self.given_BL)).cpu().numpy().tobytes()


class _Round(NamedTuple):
    drafts: list[_Draft]
    keep: int
    chooses: bool
