"""The region axis: where positions may be revealed.

Every rule divides the answer into numbered groups (blocks, phases, bands), and `open_groups` opens whole groups in
order, until they hold `need` masked positions. So a region that is smaller than k_min grows by the next group.

Groups are computed from `State.rank_BL`, the index among answer positions, so that infilling works like generation.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unmask.axes.rules import Number, Rule, parse_rule
from unmask.core import Action, State

CANDIDATES = ("full", "block:8", "block:16", "block:32", "window:16", "dilated:2", "dilated:4", "last-block:16")

_NEVER = torch.iinfo(torch.long).max


def open_groups(masked_BL: Tensor, group_BL: Tensor, need_B: Tensor | int = 1) -> Tensor:
    """Return the masked positions of the lowest groups that together hold at least `need` masks, or all masks."""
    # The last group to open is that of the need-th mask in the order of groups. A sort finds it on the device; a loop
    # over groups would make the host wait.
    order_BL = torch.where(masked_BL, group_BL, _NEVER).sort(-1).values
    last_B = masked_BL.sum(-1) - 1
    least_B = torch.full_like(last_B, need_B) if isinstance(need_B, int) else need_B.expand_as(last_B)
    at_B = torch.minimum(least_B.clamp(min=1) - 1, last_B).clamp(min=0)
    # A row without masks gets the limit `_NEVER`, which opens nothing because it has no masks.
    limit_B1 = order_BL.gather(1, at_B[:, None])
    return masked_BL & (group_BL <= limit_B1)


def first_mask_rank(state: State) -> Tensor:
    """Return the rank of each row's leftmost mask; beyond all ranks if no mask is left."""
    return torch.where(state.masked_BL, state.rank_BL, _NEVER).amin(-1)


def full(state: State, need_B: Tensor | int = 1) -> Tensor:
    """Open all masked positions."""
    return state.masked_BL


def first_open_block(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """Open the leftmost block of `size` answer positions that has a mask."""
    return open_groups(state.masked_BL, state.rank_BL // size, need_B)


def last_open_block(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """Open the rightmost block of `size` answer positions that has a mask."""
    return open_groups(state.masked_BL, -(state.rank_BL // size), need_B)


def window(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """Open `size` answer positions from the first mask on."""
    return open_groups(state.masked_BL, (state.rank_BL - first_mask_rank(state)[:, None]) // size, need_B)


def dilated_region(state: State, stride: int, need_B: Tensor | int = 1) -> Tensor:
    """Open every `stride`-th answer position, phase after phase; each phase halves gaps (0, 2, 1, 3 for stride 4)."""
    phase_L = on_device(tuple(_spread_phases(stride)), state.tokens_BL.device)
    return open_groups(state.masked_BL, phase_L[state.rank_BL % stride], need_B)


def dilation_level_per_offset(size: int, base: int, start: int = 1) -> list[int]:
    """Return the level of each offset in a block of DUS, which is its place in the order of revealing.

    The first level has the multiples of size / base^start, the next those of the stride divided by base, and so on. A
    last level that is smaller than the one before is joined with it, so that a block never ends with a short step.
    """
    levels: list[list[int]] = []
    stride, seen = size // base**start, set[int]()
    # With base 1 the stride would never shrink; the whole block is then one level.
    while stride >= 1 and base > 1:
        level = [offset for offset in range(0, size, stride) if offset not in seen]
        seen.update(level)
        levels += [level] if level else []
        stride //= base
    rest = [offset for offset in range(size) if offset not in seen]
    levels += [rest] if rest else []
    if len(levels) > 1 and len(levels[-1]) < len(levels[-2]):
        levels[-2:] = [levels[-2] + levels[-1]]
    return [next(at for at, level in enumerate(levels) if offset in level) for offset in range(size)]


def sliding(state: State, size: int, longest: int | None = None, need_B: Tensor | int = 1) -> Tensor:
    """Open the masks in a window that starts with `size` positions and gets one longer with every revealed one (DSB).

    With `longest` the window ends at most so many positions after the first mask.
    """
    # Positions that were revealed outside of the window count too, so that its end never moves back.
    end_B = size + state.revealed_BL.sum(-1)
    if longest is not None:
        end_B = torch.minimum(end_B, first_mask_rank(state) + longest)
    beyond_BL = state.rank_BL - end_B[:, None]
    return open_groups(state.masked_BL, torch.where(beyond_BL < 0, 0, 1 + beyond_BL // size), need_B)


def first_masks(state: State, count: int, longest: int | None = None, need_B: Tensor | int = 1) -> Tensor:
    """Open the first `count` masks that lie within `longest` positions of the first mask (DCD)."""
    # Groups of `count` masks; those that are far from the first mask come after all near ones.
    group_BL = (state.masked_BL.long().cumsum(-1) - 1) // count
    if longest is not None:
        near_BL = state.rank_BL < (first_mask_rank(state) + longest)[:, None]
        group_BL = torch.where(near_BL & (group_BL == 0), 0, 1 + group_BL)
    return open_groups(state.masked_BL, group_BL, need_B)


def dilated_groups(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """Open blocks of `size` positions, and in each block groups of positions with halving strides (DUS)."""
    levels = dilation_level_per_offset(size, 2)
    level_L = on_device(tuple(levels), state.tokens_BL.device)
    group_BL = state.rank_BL // size * (max(levels) + 1) + level_L[state.rank_BL % size]
    return open_groups(state.masked_BL, group_BL, need_B)


def neighbourhood(state: State, radius: int, need_B: Tensor | int = 1) -> Tensor:
    """Open the masks within `radius` of a visible token, then those within twice the radius, and so on."""
    visible_BL = state.valid_BL & ~state.masked_BL
    position_L = torch.arange(visible_BL.shape[1], device=visible_BL.device)
    # Farther than any position, and finite, so that differences of two of them stay finite.
    far = 2 * visible_BL.shape[1]
    before_BL = torch.where(visible_BL, position_L, -far).cummax(-1).values
    after_BL = torch.where(visible_BL, position_L, far).flip(-1).cummin(-1).values.flip(-1)
    distance_BL = torch.minimum(position_L - before_BL, after_BL - position_L)
    # Without a visible token all masks are equally far. The cap makes sure that padding does not change that.
    return open_groups(state.masked_BL, (distance_BL - 1).clamp(0, far // 2) // radius, need_B)


@cache
def on_device(table: tuple[int, ...], device: torch.device) -> Tensor:
    """Return a table as a tensor. Cached: a copy to a GPU makes the host wait, and breaks CUDA graphs."""
    with torch.inference_mode(False):
        return torch.tensor(table, device=device)


def _spread_phases(stride: int) -> list[int]:
    """Return the place of each phase in the order of opening; every phase is as far as possible from earlier ones."""
    opened = [0]
    while len(opened) < stride:
        gap = {
            p: min(min((p - q) % stride, (q - p) % stride) for q in opened) for p in range(stride) if p not in opened
        }
        opened.append(max(gap, key=lambda p: (gap[p], -p)))
    return [opened.index(p) for p in range(stride)]


_SIZE = Number("size", "SIZE", "SIZE from 1 to 1000000", 8, low=1, high=1_000_000, whole=True)
_LONGEST = replace(_SIZE, name="longest", spelling="LONGEST")
TABLE: dict[str, Rule] = {
    "full": Rule(full),
    "block": Rule(first_open_block, (_SIZE,)),
    "last-block": Rule(last_open_block, (_SIZE,)),
    "window": Rule(window, (_SIZE,)),
    "dilated": Rule(dilated_region, (_SIZE,)),
    "near": Rule(neighbourhood, (_SIZE,)),
    "sliding": Rule(sliding, (_SIZE, _LONGEST), required=1),
    "masks": Rule(first_masks, (_SIZE, _LONGEST), required=1),
    "groups": Rule(dilated_groups, (_SIZE,)),
}


@dataclass(frozen=True)
class Region:
    """A region rule by its text: "full", "block:8", "last-block:16", "window:16", "dilated:2", "near:4", "groups:32".

    "sliding:32" and "masks:16" may have a second number, the largest distance from the first mask: "sliding:32:64".
    """

    rule: str
    sizes: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Region":
        rule, sizes = parse_rule(text, TABLE, "region", "region")
        if rule == "sliding" and len(sizes) == 1:
            sizes = [*sizes, *sizes]  # a sliding block of one number has a fixed width
        return cls(rule, tuple(int(size) for size in sizes))

    def __call__(self, state: State, need_B: Tensor | int = 1) -> Tensor:
        return TABLE[self.rule].function(state, *self.sizes, need_B=need_B)

    @property
    def size(self) -> int | None:
        """The first number of the rule; None for the full region."""
        return self.sizes[0] if self.sizes else None

    def describe(self) -> dict[str, Any]:
        """Return the rule as JSON values, for listings."""
        names = (number.name for number in TABLE[self.rule].numbers)
        return {"rule": self.rule, **dict(zip(names, self.sizes, strict=False))}

    def __str__(self) -> str:
        return ":".join(map(str, (self.rule, *self.sizes)))


def distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Return the share of masked positions in either region that are in only one of them."""
    one_BL, other_BL = one.region_BL & state.masked_BL, other.region_BL & state.masked_BL
    return (one_BL ^ other_BL).sum(-1).double() / (one_BL | other_BL).sum(-1).clamp(min=1)
