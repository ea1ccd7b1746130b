"""SOAR (Cao et al. 2026): a beam over positions where nothing is sure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import score
from unmask.core import BlockLength, Count, Probability, SearchContext, State
from unmask.methods.blocks import open_block
from unmask.methods.fast_dllm import FastDLLM
from unmask.methods.search_tools import (
    BeamPath,
    BeamRound,
    BeamSearch,
    Budget,
    canvas_key,
    has_masks,
    reveal_positions,
    unique_items,
)


@dataclass(frozen=True)
class SOAR(BeamSearch):
    """Reveal sure positions at once; where none is sure, keep the best few ways of revealing one position.

    The beam varies positions alone: tokens are the sampled ones. A path's value is the confidence it has collected.
    """

    name: ClassVar[str] = "soar"
    steps = "ignore"
    width: Annotated[int, Field(ge=1, le=100_000)] = 2
    """Number of paths that are kept, and of positions that are tried for each."""
    threshold: Probability = 0.95
    """Confidence above which positions are revealed at once; 1 always searches (the authors' PBS)."""
    most: Count = 5
    """Largest number of positions that are revealed at once."""
    value: Literal["sum", "mean"] = "sum"
    """"sum" of the collected confidences (the loop for LLaDA), or their "mean" (the loop for Dream)."""
    collapse: Annotated[int, Field(ge=1)] | None = 1
    """Keep only the best path after a round of sure positions that revealed at least that many; None never does."""
    block_length: BlockLength | None = None
    budget: Budget = "4x"
    """Largest number of forwards per row: a number, or a multiple of a base decode, which takes one per mask."""

    def baseline_forwards(self, state: State) -> Tensor:
        return state.masked_BL.sum(-1)

    @property
    def baseline(self) -> FastDLLM:
        """Fast-dLLM with the same threshold: one path, and no limit on sure positions per step."""
        return FastDLLM(threshold=self.threshold, block_length=self.block_length)

    def advance(
        self, context: SearchContext, beams: Mapping[int, Sequence[BeamPath]], spare: Sequence[int]
    ) -> Mapping[int, BeamRound]:
        rounds = {}
        for row, beam in beams.items():
            children, accelerated = self._expand_beam(context, beam)
            width = self.width
            if accelerated and self.collapse is not None:
                masks = [int(item.path.state.masked_BL.sum()) for item in (beam[0], children[0])]
                # The authors' rule: after a round of sure tokens the beam starts again from its best path.
                width = 1 if masks[0] - masks[1] >= self.collapse else width
            # A budget that runs out narrows the beam; one path is always affordable.
            kept = children[:width][: 1 + spare[row]]
            dropped = [child.path for child in children if all(child is not item for item in kept)]
            rounds[row] = BeamRound(kept, len(children), dropped)
        return rounds

    def _expand_beam(self, context: SearchContext, beam: Sequence[BeamPath]) -> "tuple[list[_ConfidencePath], bool]":
        """Return the next canvases of a beam, each once and best first, and whether any position was sure."""
        children, accelerated = [], False
        for item in beam:
            total, count = (item.total, item.count) if isinstance(item, _ConfidencePath) else (0.0, 0)
            if not has_masks(item.path):
                children.append(_ConfidencePath(item.path, item.value, total, count))
                continue
            open_BL = open_block(item.path.state, self.block_length)
            confidence_BL = item.path.confidence_BL.double()
            sure_BL = open_BL & (confidence_BL > self.threshold)
            if bool(sure_BL.any()):
                accelerated = True
                sets = [score.best(confidence_BL, sure_BL, torch.full_like(item.path.rows_B, self.most))]
            else:
                # Stable, so that ties go to the lower position as everywhere.
                order = confidence_BL.masked_fill(~open_BL, -1.0)[0].sort(descending=True, stable=True).indices
                places = order[: min(self.width, int(open_BL.sum()))]
                sets = [torch.zeros_like(open_BL).index_fill(1, place, True) for place in places]
            for set_BL in sets:
                path = reveal_positions(context, item.path, self.name, set_BL)
                now = total + float((confidence_BL * set_BL).sum()), count + int(set_BL.sum())
                children.append(_ConfidencePath(path, now[0] if self.value == "sum" else now[0] / max(1, now[1]), *now))
        ranked = sorted(children, key=lambda child: child.value, reverse=True)
        return unique_items(ranked, lambda child: canvas_key(child.path)), accelerated


@dataclass(frozen=True)
class _ConfidencePath(BeamPath):
    """A path with the confidence that its value is computed from."""

    total: float = 0.0
    """Sum of the confidences that the path has collected."""
    count: int = 0
    """Number of positions that it has revealed."""
