"""Region: where positions may be revealed.

Every rule sorts the answer into numbered groups (blocks, phases, bands) and opens them in order: `open_groups`
takes whole groups, lowest first, until they hold `need` masked positions. That one mechanism is also the growth
rule: a region smaller than k_min grows by its own next block, phase or band.

Groups are cut on `State.rank_BL`, the index among answer positions, so that infilling works like generation.
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
    """Masked positions of the lowest groups that together hold at least `need` (or all there are)."""
    # The group of the need-th masked position, counted from the lowest group on, is the last one to open. Sorting keeps
    # this on the device; a loop over groups would ask it how many are needed.
    order_BL = torch.where(masked_BL, group_BL, _NEVER).sort(-1).values
    last_B = masked_BL.sum(-1) - 1
    least_B = torch.full_like(last_B, need_B) if isinstance(need_B, int) else need_B.expand_as(last_B)
    at_B = torch.minimum(least_B.clamp(min=1) - 1, last_B).clamp(min=0)
    # A row without masks has the limit `_NEVER`, and nothing that could open.
    limit_B1 = order_BL.gather(1, at_B[:, None])
    return masked_BL & (group_BL <= limit_B1)


def first_mask(state: State) -> Tensor:
    """Return the index of each row's leftmost mask among the answer positions; beyond all indices if none is left."""
    return torch.where(state.masked_BL, state.rank_BL, _NEVER).amin(-1)


def full(state: State, need_B: Tensor | int = 1) -> Tensor:
    """Every masked position."""
    return state.masked_BL


def first_open_block(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """The leftmost block of `size` answer positions that still has a mask."""
    return open_groups(state.masked_BL, state.rank_BL // size, need_B)


def last_open_block(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """The rightmost block of `size` answer positions that still has a mask."""
    return open_groups(state.masked_BL, -(state.rank_BL // size), need_B)


def window(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """`size` answer positions from the first mask on; the window slides as the first mask moves."""
    return open_groups(state.masked_BL, (state.rank_BL - first_mask(state)[:, None]) // size, need_B)


def dilated_region(state: State, stride: int, need_B: Tensor | int = 1) -> Tensor:
    """Every `stride`-th answer position, phase after phase; phases halve the gaps (0, 2, 1, 3 for stride 4)."""
    phase_L = on_device(tuple(_spread_phases(stride)), state.tokens_BL.device)
    return open_groups(state.masked_BL, phase_L[state.rank_BL % stride], need_B)


def dilation_level_per_offset(size: int, base: int, start: int = 1) -> list[int]:
    """Return the level of each offset of a DUS block: its place in the order of revealing.

    The multiples of size / base^start are the first level, those of the stride / base the next, and so on. A last
    level smaller than the one before joins it, so that a block never ends on a short step.
    """
    levels: list[list[int]] = []
    stride, seen = size // base**start, set[int]()
    # Base 1 never shrinks: the whole block is one level, the rest below.
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
    """DSB: masks among the first `size` answer positions, and among one more for every revealed position.

    With `longest` the window ends at most so many positions after the first mask.
    """
    # Revealed anywhere, not only inside: so the end never moves back.
    end_B = size + state.revealed_BL.sum(-1)
    if longest is not None:
        end_B = torch.minimum(end_B, first_mask(state) + longest)
    beyond_BL = state.rank_BL - end_B[:, None]
    return open_groups(state.masked_BL, torch.where(beyond_BL < 0, 0, 1 + beyond_BL // size), need_B)


def first_masks(state: State, count: int, longest: int | None = None, need_B: Tensor | int = 1) -> Tensor:
    """DCD: the first `count` masks, as far as they lie within `longest` positions of the first."""
    group_BL = (state.masked_BL.long().cumsum(-1) - 1) // count
    if longest is not None:
        near_BL = state.rank_BL < (first_mask(state) + longest)[:, None]
        group_BL = torch.where(near_BL & (group_BL == 0), 0, 1 + group_BL)
    return open_groups(state.masked_BL, group_BL, need_B)


def dilated_groups(state: State, size: int, need_B: Tensor | int = 1) -> Tensor:
    """DUS: blocks of `size`, each in groups of positions with halving strides."""
    levels = dilation_level_per_offset(size, 2)
    level_L = on_device(tuple(levels), state.tokens_BL.device)
    group_BL = state.rank_BL // size * (max(levels) + 1) + level_L[state.rank_BL % size]
    return open_groups(state.masked_BL, group_BL, need_B)


def neighbourhood(state: State, radius: int, need_B: Tensor | int = 1) -> Tensor:
    """Masked positions within `radius` of a visible token, then within twice that, and so on."""
    visible_BL = state.valid_BL & ~state.masked_BL
    position_L = torch.arange(visible_BL.shape[1], device=visible_BL.device)
    far = 2 * visible_BL.shape[1]
    before_BL = torch.where(visible_BL, position_L, -far).cummax(-1).values
    after_BL = torch.where(visible_BL, position_L, far).flip(-1).cummin(-1).values.flip(-1)
    distance_BL = torch.minimum(position_L - before_BL, after_BL - position_L)
    # Without a visible token everything is equally far; the cap keeps that from depending on the padding.
    return open_groups(state.masked_BL, (distance_BL - 1).clamp(0, far // 2) // radius, need_B)


@cache
def on_device(table: tuple[int, ...], device: torch.device) -> Tensor:
    """A small table as a tensor, copied once: each copy makes the host wait, and no CUDA graph can hold one."""
    with torch.inference_mode(False):
        return torch.tensor(table, device=device)


def _spread_phases(stride: int) -> list[int]:
    """Place of each phase in the opening order: each next phase lies as far as possible from the opened ones."""
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
    """A named region rule: "full", or "block:8", "last-block:16", "window:16", "dilated:2", "near:4", "groups:32".

    "sliding:32" and "masks:16" may have a second number, the longest stretch from the first mask on:
    "sliding:32:64", "masks:16:128".
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
        """The first number; None of the full region."""
        return self.sizes[0] if self.sizes else None

    def describe(self) -> dict[str, Any]:
        """The rule and its sizes."""
        names = (number.name for number in TABLE[self.rule].numbers)
        return {"rule": self.rule, **dict(zip(names, self.sizes, strict=False))}

    def __str__(self) -> str:
        return ":".join(map(str, (self.rule, *self.sizes)))


def distance(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Share of the masked positions of both regions that lie in one of them only."""
    one_BL, other_BL = one.region_BL & state.masked_BL, other.region_BL & state.masked_BL
    return (one_BL ^ other_BL).sum(-1).double() / (one_BL | other_BL).sum(-1).clamp(min=1)
