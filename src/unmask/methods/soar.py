"""SOAR (Cao et al.). Taxonomy: confidence | state-adaptive | position beam | search-delayed | beam search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import score
from unmask.base.errors import require
from unmask.core import Search, SearchContext, State, Trajectory
from unmask.methods.blocks import check_block_length, open_block
from unmask.methods.card import RECONSTRUCTION, Card
from unmask.methods.fast_dllm import FastDLLM
from unmask.methods.paths import (
    LookBudget,
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
class SOAR(Search):
    """Reveal what is sure at once; where nothing is, keep the best few ways of revealing one position.

    A beam over positions: tokens are the proposals, and a path is worth the confidence it has collected.
    """

    name: ClassVar[str] = "soar"
    card: ClassVar[Card] = Card(
        "Cao et al. 2026, SOAR (arXiv 2602.10953)",
        "confidence",
        "state-adaptive",
        "position beam",
        "search-delayed",
        planning="beam search",
        label=RECONSTRUCTION,
        differs=(
            "equal to 40 runs of a typed copy of the authors' loop for LLaDA at temperature 0; the file itself and the "
            "loop for Dream were not run beside it",
            "ends when every path of the beam is full: their loop for LLaDA stops after its steps with masks left, the "
            "one for Dream with its first path",
            "Dream's shipped configuration compares a negative entropy with the threshold and never accelerates; here "
            "it is the confidence",
        ),
        presets={
            "llada": {"block_length": 32},
            "dream": {"threshold": 0.9, "value": "mean", "collapse": 2},
        },
    )
    steps = "ignore"
    width: int = 2
    """Paths kept, and positions tried for each of them."""
    threshold: float = 0.95
    """Positions above it are revealed at once; 1 always searches (the authors' PBS)."""
    most: int = 5
    """Positions revealed at once."""
    value: str = "sum"
    """"sum" of the confidences collected (the loop for LLaDA), or their "mean" (the one for Dream)."""
    collapse: int | None = 1
    """After a round that accelerated, keep the best path alone if it revealed so many; None never does."""
    block_length: int | None = None
    budget: int | str = "4x"
    """Forwards per row at most: a number, or times a base decode, which takes one per mask."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "leave it out for one block")
        check_budget(self.budget)
        require(1 <= self.width <= 100_000, "width", self.width, "1 to 100000", "the authors use 2")
        require(0 <= self.threshold <= 1, "threshold", self.threshold, "0 to 1", "it is a probability")
        require(1 <= self.most <= 1_000_000, "most", self.most, "1 to 1000000", "the authors use 5")
        require(self.value in ("sum", "mean"), "value", self.value, "sum or mean", "pick one")
        ok = self.collapse is None or self.collapse >= 1
        require(ok, "collapse", self.collapse, "1 or more, or None", "the authors use 1 or 2")

    def check(self, state: State) -> None:
        LookBudget(self.budget, self.baseline_forwards(state))

    def baseline_forwards(self, state: State) -> Tensor:
        return state.masked_BL.sum(-1)

    @property
    def baseline(self) -> FastDLLM:
        """One path, and no limit on how many sure positions go at once."""
        return FastDLLM(threshold=self.threshold, block_length=self.block_length)

    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        start = first_looks(context, traj, self.needs)
        budget = LookBudget(self.budget, self.baseline_forwards(traj.state), context)
        beams = [[_Item(path)] for path in start]
        tree = [1] * len(beams)
        rounds = 1
        while going := [row for row, beam in enumerate(beams) if any(is_open(item.path) for item in beam)]:
            spare = budget.left(rounds)
            for row in going:
                children, sure = self._children(context, beams[row])
                kept = self._kept(beams[row][0].path, children, sure)[: 1 + spare[row]]
                dropped = [child.path for child in children if all(child is not item for item in kept)]
                tree[row] += len(children)
                beams[row] = [self._noted(item, tree[row], dropped) for item in kept]
            paths = [item.path for row in going for item in beams[row]]
            seen = iter(looked(context, paths, self.needs))
            for row in going:
                beams[row] = [replace(item, path=next(seen)) for item in beams[row]]
            context.report_paths([beams[row][0].path for row in going])
            rounds += 1
        return ended(traj, (beam[0].path for beam in beams))

    def _children(self, context: SearchContext, beam: "Sequence[_Item]") -> "tuple[list[_Item], bool]":
        """All that follow the beam, best first and each canvas once; whether anything was sure."""
        children, accelerated = [], False
        for item in beam:
            if not is_open(item.path):
                children.append(item)
                continue
            open_BL = open_block(item.path.state, self.block_length)
            confidence_BL = item.path.current_prediction.confidence_BN[:, : open_BL.shape[1]].double()
            sure_BL = open_BL & (confidence_BL > self.threshold)
            accelerated |= bool(sure_BL.any())
            if bool(sure_BL.any()):
                sets = [score.best(confidence_BL, sure_BL, torch.full_like(item.path.rows_B, self.most))]
            else:
                order = confidence_BL.masked_fill(~open_BL, -1.0)[0].sort(descending=True, stable=True).indices
                places = order[: min(self.width, int(open_BL.sum()))]
                sets = [torch.zeros_like(open_BL).index_fill(1, place, True) for place in places]
            for set_BL in sets:
                path = revealed(context, item.path, self.name, set_BL)
                gained = float((confidence_BL * set_BL).sum())
                children.append(_Item(path, item.total + gained, item.count + int(set_BL.sum())))
        ranked = sorted(children, key=self._worth, reverse=True)
        return unique(ranked, lambda child: canvas(child.path)), accelerated

    def _kept(self, first: Trajectory, children: "Sequence[_Item]", accelerated: bool) -> "Sequence[_Item]":
        if accelerated and self.collapse is not None:
            gone = int(first.state.masked_BL.sum()) - int(children[0].path.state.masked_BL.sum())
            if gone >= self.collapse:
                return children[:1]
        return children[: self.width]

    def _worth(self, item: "_Item") -> float:
        return item.total if self.value == "sum" else item.total / max(1, item.count)

    def _noted(self, item: "_Item", tree: int, dropped: Sequence[Trajectory]) -> "_Item":
        return replace(item, path=noted(item.path, self._worth(item), tree, dropped))


@dataclass(frozen=True)
class _Item:
    path: Trajectory
    total: float = 0.0
    count: int = 0
