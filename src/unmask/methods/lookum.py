"""LookUM (Lee et al. 2025): several sets of positions, kept by path uncertainty."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import score
from unmask.base.errors import require
from unmask.core import BlockLength, NonNegative, SearchContext, State, Trajectory
from unmask.methods.blocks import block_clock, check_blocks
from unmask.methods.search_tools import (
    BeamPath,
    BeamRound,
    BeamSearch,
    Budget,
    ScheduledSearch,
    canvas_key,
    has_masks,
    mean_at_positions,
    predict_paths,
    reveal_positions,
    unique_items,
)


@dataclass(frozen=True)
class LookUM(ScheduledSearch, BeamSearch):
    """Try several sets of sure positions, look one step ahead of each, and go on where the least uncertainty is left.

    The value r is minus the mean entropy of the masked positions, and a set is drawn with weight exp(beta r). "nis"
    compares sets of one canvas; "smc" keeps several canvases and draws them by the gain of r.
    """

    name: ClassVar[str] = "lookum"
    paths: Annotated[int, Field(ge=1, le=1024)] = 3
    """Number P of sets that are compared at a step."""
    variant: Literal["nis", "smc"] = "nis"
    """"nis" compares P sets of one canvas; "smc" resamples P canvases."""
    pool: Annotated[float, Field(ge=1)] = 2.0
    """Size of the pool of surest positions that sets are drawn from, as a multiple of a set's size."""
    tau: Annotated[float, Field(gt=0, lt=math.inf)] = 0.1
    """Temperature at which positions are drawn."""
    beta: NonNegative = 10.0
    """Sharpness of the choice among sets; infinite takes the best one."""
    verifier: Literal["entropy", "confidence"] = "entropy"
    """Quantity that r averages over the remaining masks."""
    exhaustive: bool = False
    """Compare all sets of the pool, as far as the budget allows, instead of `paths` drawn ones."""
    block_length: BlockLength | None = None
    budget: Budget = "4x"

    def __post_init__(self) -> None:
        super().__post_init__()
        alone = self.variant == "nis" or not self.exhaustive
        require(alone, "exhaustive", self.exhaustive, "false with variant=smc", "leave one of them out")

    @property
    def random(self) -> bool:
        return self.paths > 1 or self.exhaustive

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=True)
        super().check(state)

    def advance(
        self, context: SearchContext, beams: Mapping[int, Sequence[BeamPath]], spare: Sequence[int]
    ) -> Mapping[int, BeamRound]:
        made = {row: self._expand_beam(context, beam, 1 + spare[row]) for row, beam in beams.items()}
        distinct = {row: {canvas_key(child.path): child.path for child in made[row]} for row in beams}
        flat = [path for row in beams for path in distinct[row].values()]
        predicted = {(int(p.rows_B), canvas_key(p)): p for p in predict_paths(context, flat, self.needs)}
        rounds = {}
        for row, beam in beams.items():
            values, gains = [], []
            for child in made[row]:
                path = predicted[row, canvas_key(child.path)]
                value = self._path_value(path, child.value)
                values.append(BeamPath(path, value))
                # A canvas without masks has r = 0, but its value stays that of the last canvas with some.
                gains.append((value if has_masks(path) else 0.0) - child.value)
            kept = [values[at] for at in self._draw_children(beam[0].path, gains)]
            keys = {canvas_key(item.path) for item in kept}
            dropped = [path for key, path in distinct[row].items() if key not in keys]
            rounds[row] = BeamRound(kept, len(distinct[row]), dropped)
        return rounds

    def _expand_beam(self, context: SearchContext, beam: Sequence[BeamPath], most: int) -> list[BeamPath]:
        """Reveal candidate sets on the beam's canvases, the greedy set first; values stay those of the parents."""
        if self.variant == "smc":
            parents = [beam[at % len(beam)] for at in range(min(self.paths, most))]
            return [
                replace(
                    item,
                    path=reveal_positions(context, item.path, self.name, next(self._candidate_sets(item.path, at))),
                )
                if has_masks(item.path)
                else item
                for at, item in enumerate(parents)
            ]
        (item,) = beam
        count = most if self.exhaustive else min(self.paths, most)
        sets = islice(self._candidate_sets(item.path, 0), count)
        children = [replace(item, path=reveal_positions(context, item.path, self.name, set_BL)) for set_BL in sets]
        return unique_items(children, lambda child: canvas_key(child.path))

    def _candidate_sets(self, path: Trajectory, first: int) -> Iterator[Tensor]:
        """Yield candidate sets from number `first` on; number 0 is the greedy set."""
        clock = block_clock(path.state, self.block_length)
        k_B = clock.quota_B
        confidence_BL = path.confidence_BL.double()
        k = int(k_B)
        size = math.ceil(min(self.pool * k, clock.open_BL.shape[1]))
        # Sets are drawn from the surest positions alone, `pool` times as many as a set has.
        pool_BL = score.best(confidence_BL, clock.open_BL, torch.full_like(k_B, size))
        # A pool as small as a set has only one set.
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

    def _path_value(self, path: Trajectory, before: float) -> float:
        """Return the value r of a path's canvas, or `before` if nothing is masked any more."""
        if not has_masks(path):
            return before
        return mean_at_positions(
            -path.entropy_BL if self.verifier == "entropy" else path.top_p_BL, path.state.masked_BL
        )

    def _draw_children(self, parent: Trajectory, gains: Sequence[float]) -> list[int]:
        """Draw children with weights exp(beta * gain): one, or under "smc" as many as there are, with replacement."""
        if len(gains) == 1:
            return [0]
        gain_A = torch.tensor(gains, dtype=torch.float64)
        if self.beta == math.inf:
            cumulative_A = (torch.arange(len(gains)) >= gain_A.argmax()).double()
        else:
            cumulative_A = (self.beta * gain_A).softmax(0).cumsum(0)
        # Particles are resampled independently, so that a good one may be kept several times.
        draws = len(gains) if self.variant == "smc" else 1
        position_1D = torch.arange(draws, device=parent.rows_B.device)[None]
        uniform_D = parent.noise.uniform(parent.state.step_B, position_1D, "select")[0].cpu()
        picks: list[int] = torch.searchsorted(cumulative_A, uniform_D, right=True).clamp(max=len(gains) - 1).tolist()
        return picks
