"""What `decode` does around a method that owns its loop: start it, check its end, and show what it holds meanwhile."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unmask.core import NoNoise, Search, SearchRun, State, Trajectory
from unmask.core.rows import concat
from unmask.errors import InvalidAction, Unfinished


def searched(search: Search, run: SearchRun, start: Trajectory) -> Trajectory:
    """The end of a search, checked. What it spent is not in it yet: whoever counts fills that in."""
    shown = start if search.random else replace(start, noise=NoNoise(start.noise.key_B))
    end = search.decode(run, shown)
    _check_end(search, start.state, end.state)
    return replace(end, noise=start.noise, prediction=None, steps=(*start.steps, *end.steps[len(start.steps) :]))


def together(paths: Sequence[Trajectory], forwards_B: Tensor) -> Trajectory:
    """One path of each row as the rows of one trajectory, with the last step of each: what a screen draws."""
    last = concat([path.steps[-1] for path in paths])
    rows = concat([replace(path, steps=(), prediction=None) for path in paths])
    return replace(rows, steps=(last,), forwards_B=rows.forwards_B + forwards_B[rows.rows_B])


def _check_end(search: Search, start: State, end: State) -> None:
    """What a loop of its own must leave behind."""
    if not torch.equal(end.tokens_BL[start.fixed_BL], start.tokens_BL[start.fixed_BL]):
        raise InvalidAction(f"{search.name} changed a given token; allowed: answer positions only; leave the rest")
    if bool(end.masked_BL.any()):
        row = int(end.masked_BL.any(-1).nonzero()[0])
        raise Unfinished(f"{search.name} left masks in row {row}; allowed: none; fill every answer position")
