"""Parts that searches share: paths that are predicted together, budgets of forwards, and one beam loop.

A path is a one-row `Trajectory` that keeps its prediction, so that the model runs once for each canvas.
"""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import torch
from pydantic import AfterValidator
from torch import Tensor

from unmask.base.errors import require
from unmask.core import Action, BlockLength, Needs, Noise, Policy, Search, SearchContext, State, Trajectory, concat
from unmask.core import select as select_rows
from unmask.engine import join_rows
from unmask.methods.composed import fixed_action
from unmask.methods.llada import LLaDA

T = TypeVar("T")

# Paths


def start_paths(context: SearchContext, traj: Trajectory, needs: Needs) -> list[Trajectory]:
    """Return a path for every row of a start, with the prediction of its canvas."""
    bare = replace(traj, steps=(), prediction=None, config=None)
    paths = []
    for row in range(traj.state.batch):
        alone = bare.select(torch.tensor([row], device=traj.rows_B.device))
        paths.append(replace(alone, rows_B=torch.full_like(alone.rows_B, row)))
    return predict_paths(context, paths, needs)


def predict_paths(context: SearchContext, paths: Sequence[Trajectory], needs: Needs) -> list[Trajectory]:
    """Return the paths with predictions. Paths with masks and without a prediction share one pass of the model."""
    fresh = [at for at, path in enumerate(paths) if path.prediction is None and has_masks(path)]
    predicted = list(paths)
    if fresh:
        rows = [paths[at] for at in fresh]
        noise = rows[0].noise
        if isinstance(noise, Noise):
            noise = Noise(torch.cat([path.noise.key_B for path in rows]))
        states = concat([path.state for path in rows])
        # Each path draws with its own row's key: a row's tokens must not depend on the other rows' paths.
        prediction = context.predict(states, torch.cat([path.rows_B for path in rows]), needs, noise=noise)
        for place, at in enumerate(fresh):
            here = torch.tensor([place], device=states.step_B.device)
            predicted[at] = replace(paths[at], prediction=select_rows(prediction, here))
    return predicted


def has_masks(path: Trajectory) -> bool:
    """Return whether a path has masked positions left."""
    return bool(path.state.masked_BL.any())


def reveal_positions(
    context: SearchContext, path: Trajectory, name: str, chosen_BL: Tensor, tokens_BL: Tensor | None = None
) -> Trajectory:
    """Reveal exactly these positions of a path, with `tokens_BL` if given, else with the sampled tokens."""
    tokens_BL = None if tokens_BL is None else torch.where(chosen_BL, tokens_BL, -1)
    return context.apply_action(path, name, Action.reveal(chosen_BL, of=path.state.masked_BL, tokens_BL=tokens_BL))


def canvas_key(path: Trajectory) -> bytes:
    """Return a path's tokens as bytes, to tell equal canvases of a row."""
    return path.state.tokens_BL.cpu().numpy().tobytes()


def unique_items(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Return the first item of each key, in order."""
    found: dict[Hashable, T] = {}
    for item in items:
        found.setdefault(key(item), item)
    return list(found.values())


def mean_at_positions(values_BN: Tensor, places_BL: Tensor) -> float:
    """Return the mean of a path's values over the positions of a non-empty mask."""
    return float(values_BN[:, : places_BL.shape[1]][places_BL].double().mean())


def annotate_last_step(path: Trajectory, value: float, tree: int, dropped: Sequence[Trajectory]) -> Trajectory:
    """Note on a path's last step its value and the alternatives that the search considered.

    `tree` counts the canvases that the search has held for the row, `dropped` are those that left it at this step. The
    note `passed_over` counts how often each position was revealed on one of these.
    """
    step = path.steps[-1]
    over_BL = sum((other.steps[-1].revealed_BL.long() for other in dropped), torch.zeros_like(step.state.tokens_BL))
    count = step.rows_B.new_tensor
    notes = {  # stored names
        "value": torch.tensor([value], dtype=torch.float64, device=step.rows_B.device),
        "tree": count([tree]),
        "dropped": count([len(dropped)]),
        "passed_over": over_BL,
    }
    return replace(path, steps=(*path.steps[:-1], replace(step, action=replace(step.action, notes=notes))))


def merge_paths(traj: Trajectory, paths: Iterable[Trajectory]) -> Trajectory:
    """Join the chosen path of every row into the search's result."""
    paths = list(paths)
    return join_rows(paths, (*traj.steps, *(step for path in paths for step in path.steps)))


# Budgets

_BUDGET_MULTIPLE = re.compile(r"(\d+(?:\.\d+)?)x")


def _check_budget(budget: int | str) -> int | str:
    times = _BUDGET_MULTIPLE.fullmatch(budget) if isinstance(budget, str) else None
    ok = float(times[1]) >= 1 if times else isinstance(budget, int) and 1 <= budget <= 10**9
    require(ok, "budget", budget, "forwards per row, 1 or more, or times a base decode, '1x' or more", "e.g. '4x'")
    return budget


Budget = Annotated[int | str, AfterValidator(_check_budget)]
"""Largest number of forwards per row: a number, or a multiple of a decode by the baseline ("4x")."""


class ForwardBudget:
    """Budget of passes that each row may take beyond those of a decode by the baseline.

    A budget counts forwards as a run does: a pass under guidance is two.
    """

    def __init__(self, budget: int | str, base_B: Tensor, context: SearchContext | None = None):
        self.context, self.base = context, base_B.tolist()
        # The first pass of each row is over, and shows how many forwards a pass is.
        self.each = 1 if context is None else max(1, *context.forwards_B.tolist())
        for row, base in enumerate(self.base):
            enough = isinstance(budget, str) or budget >= base * self.each
            least = f"{base * self.each} or more, the forwards of a base decode of row {row}"
            require(enough, "budget", budget, least, "raise it, or lower steps or new tokens")
        times = 0.0 if isinstance(budget, int) else float(budget.removesuffix("x"))
        self.spare = [
            (budget // self.each if isinstance(budget, int) else math.floor(times * base)) - base for base in self.base
        ]

    def remaining_passes(self, rounds: int) -> list[int]:
        """Return the extra passes that each row has left after `rounds` rounds; the baseline takes one per round."""
        assert self.context is not None
        spent = self.context.forwards_B.tolist()
        return [spare - (paid // self.each - rounds) for spare, paid in zip(self.spare, spent, strict=True)]


class ScheduledSearch(Search):
    """A search whose baseline is LLaDA, with one pass for each step of its schedule."""

    block_length: BlockLength | None

    def baseline_forwards(self, state: State) -> Tensor:
        """Return how many passes LLaDA's schedule still takes from this state on; each reveals something."""
        blocks_B: Any = 1 if self.block_length is None else -(-state.answer_BL.sum(-1) // self.block_length)
        left_B = -(-state.horizon_B // blocks_B) * blocks_B - state.step_B
        return torch.minimum(left_B, state.masked_BL.sum(-1)).clamp(min=1)

    @property
    def baseline(self) -> Policy:
        """LLaDA; with blocks, its rule on a region, because the blocks of a search need not divide the answer."""
        return LLaDA() if self.block_length is None else fixed_action(region=f"block:{self.block_length}")


# The beam loop


@dataclass(frozen=True)
class BeamPath:
    """A path of a beam and its value."""

    path: Trajectory
    value: float = 0.0


@dataclass(frozen=True)
class BeamRound:
    """Result of one round for a row: the paths that are kept, and the canvases that were dropped."""

    kept: Sequence[BeamPath]
    canvases: int
    """Number of canvases that the round added to the search."""
    dropped: Sequence[Trajectory]


class BeamSearch(Search):
    """A search that keeps several paths per row. All paths of all rows share each pass of the model."""

    budget: Budget

    @abstractmethod
    def advance(
        self, context: SearchContext, beams: Mapping[int, Sequence[BeamPath]], spare: Sequence[int]
    ) -> Mapping[int, BeamRound]:
        """Move the beams of some rows, given by row, one step on.

        `spare` counts for each row the passes that it may take beyond the one for its next step.
        """

    @abstractmethod
    def baseline_forwards(self, state: State) -> Tensor:
        """Return how many passes a decode by the baseline takes for each row, which is the smallest budget."""

    def check(self, state: State) -> None:
        ForwardBudget(self.budget, self.baseline_forwards(state))

    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        beams: list[Sequence[BeamPath]] = [[BeamPath(path)] for path in start_paths(context, traj, self.needs)]
        budget = ForwardBudget(self.budget, self.baseline_forwards(traj.state), context)
        tree = [1] * len(beams)
        rounds = 1
        while going := [row for row, beam in enumerate(beams) if any(has_masks(item.path) for item in beam)]:
            moved = self.advance(context, {row: beams[row] for row in going}, budget.remaining_passes(rounds))
            annotated = []
            for row in going:
                tree[row] += moved[row].canvases
                annotated += [
                    annotate_last_step(item.path, item.value, tree[row], moved[row].dropped) for item in moved[row].kept
                ]
            paths = iter(predict_paths(context, annotated, self.needs))
            for row in going:
                beams[row] = [replace(item, path=next(paths)) for item in moved[row].kept]
            context.report_paths([_best_path(beams[row]) for row in going])
            rounds += 1
        return merge_paths(traj, map(_best_path, beams))


def _best_path(beam: Sequence[BeamPath]) -> Trajectory:
    """Return the path of largest value; of equal ones the first."""
    return max(beam, key=lambda item: item.value).path
