"""DUEL's oracle: the order of revealing a text, one token at a time inside blocks, under which it is most probable.

Only who sees the text can choose it, so its number is no likelihood of a method: it says how much an order can matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.base.errors import require
from unmask.core import Denoiser, ModelInput, Needs, State

LogProbs = Callable[[Tensor, Tensor], Tensor]
"""log p of a token in each row of logits."""
MOST = 12
"""Places of a block: every one doubles the forwards."""


@dataclass(frozen=True)
class BestOrder:
    """The most probable way to a text."""

    log_p: tuple[float, ...]
    """Of every token, where it was revealed."""
    order: tuple[int, ...]
    """Places of the text, first to last."""
    forwards: int


def check_oracle_block(block: int) -> None:
    allowed = f"1 to {MOST}"
    require(1 <= block <= MOST, "oracle_block", block, allowed, "the authors use 4: a block takes 2^block - 1 forwards")


def best_order(
    denoiser: Denoiser,
    state: State,
    truth_L: Tensor,
    span: tuple[int, int],
    log_probs: LogProbs,
    block: int,
    batch: int,
) -> BestOrder:
    """By dynamic programming over the subsets of each block: best(S + l) = max over l of best(S) + log p(x_l | S).

    What a subset says does not depend on the order that led to it, so 2^b - 1 forwards replace b! orders.
    """
    places = [range(first, min(first + block, span[1])) for first in range(span[0], span[1], block)]
    log_p: dict[int, float] = {}
    order: list[int] = []
    forwards = 0
    for inside in places:
        said = _said(denoiser, state, truth_L, inside, log_probs, batch)
        way = _best_way(said.log_p, len(inside))
        known = 0
        for at in way:
            log_p[inside[at]] = said.log_p[known][at]
            known |= 1 << at
        order += [inside[at] - span[0] for at in way]
        forwards += said.forwards
    return BestOrder(tuple(log_p[at] for at in range(*span)), tuple(order), forwards)


@dataclass(frozen=True)
class _BlockSaid:
    log_p: list[list[float]]
    """By the subset that is revealed (bits), then by place; 0 for places in it."""
    forwards: int


def _said(
    denoiser: Denoiser, state: State, truth_L: Tensor, inside: range, log_probs: LogProbs, batch: int
) -> _BlockSaid:
    """What the model says of a block's tokens under each of its subsets, everything before it revealed."""
    subsets = torch.arange(2 ** len(inside) - 1, device=truth_L.device)
    bit_B = torch.arange(len(inside), device=truth_L.device)
    place_L = torch.arange(len(truth_L), device=truth_L.device)
    found: list[list[float]] = []
    forwards = 0
    for subset_U in subsets.split(batch):
        known_UB = (subset_U[:, None] >> bit_B) & 1 == 1
        tokens_UL = torch.where(state.masked_BL & (place_L >= inside.start), state.mask_id, truth_L).repeat(
            len(subset_U), 1
        )
        tokens_UL[:, inside.start : inside.stop] = torch.where(
            known_UB, truth_L[inside.start : inside.stop], state.mask_id
        )
        rows = replace(state.select(torch.zeros_like(subset_U)), tokens_BL=tokens_UL)
        inputs = ModelInput.of(rows, Needs())
        wanted_UL = rows.masked_BL & (place_L >= inside.start) & (place_L < inside.stop)
        output = denoiser(replace(inputs, wanted_BN=wanted_UL), Needs())
        out_UB = torch.zeros(known_UB.shape, dtype=torch.float64, device=truth_L.device)
        out_UB[~known_UB] = log_probs(output.logits_RV, truth_L.expand_as(wanted_UL)[wanted_UL])
        found += out_UB.tolist()
        forwards += output.forwards * len(subset_U)
    return _BlockSaid(found, forwards)


def _best_way(log_p: Sequence[Sequence[float]], size: int) -> list[int]:
    """The order of a block's places with the largest sum; of equal ones the first by place."""
    best, came = {0: 0.0}, {0: -1}
    for subset in range(2**size - 1):  # every part of a subset has a smaller number
        for at in range(size):
            if not subset >> at & 1:
                more, value = subset | 1 << at, best[subset] + log_p[subset][at]
                if more not in best or value > best[more]:
                    best[more], came[more] = value, at
    way, subset = [], 2**size - 1
    while subset:
        way.append(came[subset])
        subset ^= 1 << came[subset]
    return way[::-1]
