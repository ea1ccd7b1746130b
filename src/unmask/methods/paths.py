"""Paths of a search: rows of their own that are looked at together, and how many looks a budget leaves them.

A path is a one-row `Trajectory` that keeps its prediction, so that a canvas is run once however often it is thought of.
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, score
from unmask.base.errors import require
from unmask.core import Action, Needs, Noise, Policy, Search, SearchContext, State, Trajectory, concat, select
from unmask.engine import join_rows
from unmask.methods.fixed import Fixed
from unmask.methods.llada import LLaDA

T = TypeVar("T")
_TIMES = re.compile(r"(\d+(?:\.\d+)?)x")


def first_looks(context: SearchContext, traj: Trajectory, needs: Needs) -> list[Trajectory]:
    """A path for every row, looked at: what a base decode does first."""
    rows = range(traj.state.batch)
    bare = replace(traj, steps=(), prediction=None, config=None)
    alone = [bare.select(torch.tensor([row], device=traj.rows_B.device)) for row in rows]
    return looked(
        context, [replace(path, rows_B=torch.full_like(path.rows_B, row)) for row, path in enumerate(alone)], needs
    )


def looked(context: SearchContext, paths: Sequence[Trajectory], needs: Needs) -> list[Trajectory]:
    """The paths with their predictions; those that have masks and none yet share one pass."""
    fresh = [at for at, path in enumerate(paths) if path.prediction is None and is_open(path)]
    done = list(paths)
    if fresh:
        rows = [paths[at] for at in fresh]
        noise = rows[0].noise
        if isinstance(noise, Noise):
            noise = Noise(torch.cat([path.noise.key_B for path in rows]))
        states = concat([path.state for path in rows])
        seen = context.predict(states, torch.cat([path.rows_B for path in rows]), needs, noise=noise)
        for place, at in enumerate(fresh):
            here = torch.tensor([place], device=states.step_B.device)
            done[at] = replace(paths[at], prediction=select(seen, here))
    return done


def is_open(path: Trajectory) -> bool:
    return bool(path.state.masked_BL.any())


def revealed(
    context: SearchContext, path: Trajectory, name: str, chosen_BL: Tensor, tokens_BL: Tensor | None = None
) -> Trajectory:
    """The path with just these positions revealed; `tokens_BL` go before the proposal."""
    state = path.state
    action = Action(
        score.rows("confidence", state),
        *cardinality.reveal_set(chosen_BL, state.masked_BL),
        commitment.commit_all(state),
        tokens_BL=None if tokens_BL is None else torch.where(chosen_BL, tokens_BL, -1),
        rule="confidence",
    )
    return context.apply_action(path, name, action)


def canvas(path: Trajectory) -> bytes:
    """What makes two paths of a row one."""
    return path.state.tokens_BL.cpu().numpy().tobytes()


def unique(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """The first of every key, in their order."""
    found: dict[Hashable, T] = {}
    for item in items:
        found.setdefault(key(item), item)
    return list(found.values())


def mean_over(values_BN: Tensor, places_BL: Tensor) -> float:
    """Of a path's numbers at some of its positions, one or more."""
    return float(values_BN[:, : places_BL.shape[1]][places_BL].double().mean())


def noted(path: Trajectory, value: float, tree: int, dropped: Sequence[Trajectory]) -> Trajectory:
    """The path, its last step with what was thought of beside it.

    `value` is the path's own, `tree` counts the canvases that the search has held for the row, `dropped` those that
    left it at this step, `passed_over` the positions that they had revealed.
    """
    step = path.steps[-1]
    over_BL = sum((other.steps[-1].revealed_BL.long() for other in dropped), torch.zeros_like(step.state.tokens_BL))
    count = step.rows_B.new_tensor
    notes = {
        "value": torch.tensor([value], dtype=torch.float64, device=step.rows_B.device),
        "tree": count([tree]),
        "dropped": count([len(dropped)]),
        "passed_over": over_BL,
    }
    return replace(path, steps=(*path.steps[:-1], replace(step, action=replace(step.action, notes=notes))))


def ended(traj: Trajectory, paths: Iterable[Trajectory]) -> Trajectory:
    """The chosen path of every row, as the search's end."""
    paths = list(paths)
    return join_rows(paths, (*traj.steps, *(step for path in paths for step in path.steps)))


def check_budget(budget: int | str) -> None:
    """Refuse what is no budget; whether it is enough, the rows say."""
    times = _TIMES.fullmatch(budget) if isinstance(budget, str) else None
    ok = float(times[1]) >= 1 if times else isinstance(budget, int) and 1 <= budget <= 10**9
    require(ok, "budget", budget, "forwards per row, 1 or more, or times a base decode, '1x' or more", "e.g. '4x'")


def scheduled_looks(state: State, block_length: int | None) -> Tensor:
    """Forwards of a base decode that keeps LLaDA's schedule, from here on: every one of them reveals something."""
    blocks_B = 1 if block_length is None else -(-state.answer_BL.sum(-1) // block_length)
    left_B = -(-state.horizon_B // blocks_B) * blocks_B - state.step_B
    return torch.minimum(left_B, state.masked_BL.sum(-1)).clamp(min=1)


class ScheduledSearch(Search):
    """A search whose base is LLaDA: a look for each step of its schedule."""

    block_length: int | None

    def baseline_forwards(self, state: State) -> Tensor:
        return scheduled_looks(state, self.block_length)

    @property
    def baseline(self) -> Policy:
        """LLaDA; in blocks, which need not divide the answer here, the same rule on a region."""
        return LLaDA() if self.block_length is None else Fixed(region=f"block:{self.block_length}")


class LookBudget:
    """How many looks rows may take beyond the one per round of a base decode.

    A budget counts forwards as the run does: a look under guidance is two.
    """

    def __init__(self, budget: int | str, base_B: Tensor, context: SearchContext | None = None):
        self.run, self.base = context, base_B.tolist()
        # The first looks are over, one each.
        self.each = 1 if context is None else max(1, *context.forwards_B.tolist())
        for row, base in enumerate(self.base):
            enough = isinstance(budget, str) or budget >= base * self.each
            least = f"{base * self.each} or more, the forwards of a base decode of row {row}"
            require(enough, "budget", budget, least, "raise it, or lower steps or new tokens")
        times = 0.0 if isinstance(budget, int) else float(budget.removesuffix("x"))
        self.spare = [
            (budget // self.each if isinstance(budget, int) else math.floor(times * base)) - base for base in self.base
        ]

    def left(self, rounds: int) -> list[int]:
        """Of every row whose base decode would have taken so many looks by now."""
        assert self.run is not None
        spent = self.run.forwards_B.tolist()
        return [spare - (paid // self.each - rounds) for spare, paid in zip(self.spare, spent, strict=True)]
