"""LookUM (Lee et al.). Taxonomy: path uncertainty | candidate-set budget | full | irreversible | path look-ahead."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import score
from unmask.base.errors import require
from unmask.core import SearchContext, State, Trajectory
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
    mean_over,
    noted,
    revealed,
    unique,
)


@dataclass(frozen=True)
class LookUM(ScheduledSearch):
    """Draw several sets of sure positions, look one step ahead of each, go on where least uncertainty is left.

    r = minus the mean entropy of what stays masked; a set is drawn with weight exp(beta r). "nis" compares sets of one
    canvas, "smc" keeps as many canvases and weighs them by what r gained.
    """

    name: ClassVar[str] = "lookum"
    card: ClassVar[Card] = Card(
        "Lee et al. 2025, LookUM (arXiv 2511.05563)",
        "path uncertainty",
        "candidate-set budget",
        "full",
        "irreversible",
        planning="path look-ahead",
        label=RECONSTRUCTION,
        differs=(
            "the filter of the pool, the weights and their sharpness are ours: abstracts and reviews do not tell them",
            "the first set is always the greedy one, so that one path is LLaDA",
            "what stands behind an early end of text is not kept out of r; use eos_penalty or eos_fill",
        ),
    )
    paths: int = 3
    """Sets compared at a step, P."""
    variant: str = "nis"
    """"nis": P sets of one canvas; "smc": P canvases, resampled."""
    pool: float = 2.0
    """Sets are drawn from the surest positions, so many times as a set has."""
    tau: float = 0.1
    """Temperature of the draw of positions."""
    beta: float = 10.0
    """Sharpness of the choice; infinite takes the best."""
    verifier: str = "entropy"
    """"entropy" or "confidence": what r averages over the masks that are left."""
    exhaustive: bool = False
    """Compare every set of the pool that the budget allows, in place of `paths` drawn ones."""
    block_length: int | None = None
    budget: int | str = "4x"
    """Forwards per row at most: a number, or times a base decode."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "leave it out for one block")
        check_budget(self.budget)
        require(1 <= self.paths <= 1024, "paths", self.paths, "1 to 1024", "the authors use 2 to 4")
        require(self.variant in ("nis", "smc"), "variant", self.variant, "nis or smc", "pick one")
        require(self.pool >= 1, "pool", self.pool, "1 or more", "2 is twice as many positions as a set has")
        require(0 < self.tau < math.inf, "tau", self.tau, "above 0", "0.1 is the default")
        require(self.beta >= 0, "beta", self.beta, "0 or more", "inf takes the best set")
        known = ("entropy", "confidence")
        require(self.verifier in known, "verifier", self.verifier, " or ".join(known), "pick one")
        alone = self.variant == "nis" or not self.exhaustive
        require(alone, "exhaustive", self.exhaustive, "false with variant=smc", "leave one of them out")

    @property
    def random(self) -> bool:
        return self.paths > 1 or self.exhaustive

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=True)
        LookBudget(self.budget, self.baseline_forwards(state))

    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        start = first_looks(context, traj, self.needs)
        budget = LookBudget(self.budget, self.baseline_forwards(traj.state), context)
        beams = [[_Valued(path, 0.0)] for path in start]
        tree = [1] * len(beams)
        rounds = 1
        while going := [row for row, beam in enumerate(beams) if any(is_open(item.path) for item in beam)]:
            spare = budget.left(rounds)
            made = {row: self._children(context, beams[row], 1 + spare[row]) for row in going}
            distinct = {row: {canvas(child.path): child.path for child in made[row]} for row in going}
            flat = [path for row in going for path in distinct[row].values()]
            seen = {(int(p.rows_B), canvas(p)): p for p in looked(context, flat, self.needs)}
            for row in going:
                tree[row] += len(distinct[row])
                valued = [self._valued(seen[row, canvas(c.path)], c.value) for c in made[row]]
                kept = self._kept(beams[row][0].path, valued)
                dropped = [p for key, p in distinct[row].items() if key not in {canvas(i.path) for i in kept}]
                beams[row] = [replace(i, path=noted(i.path, i.value, tree[row], dropped)) for i in kept]
            context.report_paths([_best(beams[row]) for row in going])
            rounds += 1
        return ended(traj, map(_best, beams))

    def _children(self, context: SearchContext, beam: "Sequence[_Valued]", most: int) -> "list[_Valued]":
        """The beam's next canvases, the greedy one first; with r of the canvas they come from."""
        if self.variant == "smc":
            parents = [beam[at % len(beam)] for at in range(min(self.paths, most))]
            return [
                replace(item, path=revealed(context, item.path, self.name, next(self._sets(item.path, at))))
                if is_open(item.path)
                else item
                for at, item in enumerate(parents)
            ]
        (item,) = beam
        count = most if self.exhaustive else min(self.paths, most)
        sets = islice(self._sets(item.path, 0), count)
        children = [replace(item, path=revealed(context, item.path, self.name, set_BL)) for set_BL in sets]
        return unique(children, lambda child: canvas(child.path))

    def _sets(self, path: Trajectory, first: int) -> Iterator[Tensor]:
        """Sets of positions from a number on: 0 is the greedy one. One only where everything goes."""
        now = clock(path.state, self.block_length)
        k_B = quota(now)
        confidence_BL = path.current_prediction.confidence_BN[:, : now.open_BL.shape[1]].double()
        k = int(k_B)
        size = math.ceil(min(self.pool * k, now.open_BL.shape[1]))
        pool_BL = score.best(confidence_BL, now.open_BL, torch.full_like(k_B, size))
        if int(pool_BL.sum()) <= k:
            yield pool_BL
            return
        if self.exhaustive:
            order = confidence_BL[0].masked_fill(~pool_BL[0], -1.0).sort(descending=True, stable=True).indices
            for places in combinations(order[: int(pool_BL.sum())].tolist(), k):
                yield torch.zeros_like(pool_BL).index_fill(1, order.new_tensor(places), True)
            return
        for number in range(first, self.paths):
            gumbel_BL = -(-path.uniform(f"path/{number}").log()).log() if number else 0.0
            yield score.best(confidence_BL / self.tau + gumbel_BL, pool_BL, k_B)

    def _valued(self, path: Trajectory, before: float) -> "_Valued":
        masked_BL = path.state.masked_BL
        if not is_open(path):
            return _Valued(path, before, -before)
        now = path.current_prediction.clean
        r_BL = -now.entropy_BN if self.verifier == "entropy" else now.p_BNK[..., 0]
        value = mean_over(r_BL, masked_BL)
        return _Valued(path, value, value - before)

    def _kept(self, parent: Trajectory, children: "Sequence[_Valued]") -> "list[_Valued]":
        """One child, or as many as there are drawn with replacement. All children of one canvas share r before."""
        if len(children) == 1:
            return list(children)
        gain_A = torch.tensor([child.gain for child in children], dtype=torch.float64)
        if self.beta == math.inf:
            cumulative_A = (torch.arange(len(children)) >= gain_A.argmax()).double()
        else:
            cumulative_A = (self.beta * gain_A).softmax(0).cumsum(0)
        draws = len(children) if self.variant == "smc" else 1
        position_1D = torch.arange(draws, device=parent.rows_B.device)[None]
        uniform_D = parent.noise.uniform(parent.state.step_B, position_1D, "select")[0].cpu()
        picks = torch.searchsorted(cumulative_A, uniform_D, right=True).clamp(max=len(children) - 1)
        return [children[at] for at in picks.tolist()]


@dataclass(frozen=True)
class _Valued:
    path: Trajectory
    value: float
    """r of the last canvas with masks."""
    gain: float = 0.0
    """r now, 0 without masks, less r before."""


def _best(beam: Sequence[_Valued]) -> Trajectory:
    return max(beam, key=lambda item: item.value).path
