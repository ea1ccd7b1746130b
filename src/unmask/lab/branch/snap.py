"""The candidate nearest to a proposal, on the proposal's own axis; the first of equally near ones."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unmask.axes.cardinality import reveal_count
from unmask.core import Action, State
from unmask.errors import UnknownName


def nearest(axis: str, state: State, proposed: Action, revealed_BL: Tensor, candidates: Sequence[Action]) -> Tensor:
    """Index of the nearest candidate of each row. `revealed_BL` is what the proposal reveals."""
    if axis not in _DISTANCES:
        raise UnknownName("axis", axis, _DISTANCES)
    distance_AB = torch.stack([_DISTANCES[axis](state, proposed, other, revealed_BL) for other in candidates])
    # Not argmin, which promises no order among ties.
    least_B = distance_AB.min(0).values
    return (distance_AB == least_B).to(torch.int8).argmax(0)


def _score(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Of the mixtures, summed over rules."""
    return (one.alpha_BJ.double() - other.alpha_BJ.double()).abs().sum(-1)


def _region(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Masked positions in one region only, as a share of those in either."""
    one_BL, other_BL = one.region_BL & state.masked_BL, other.region_BL & state.masked_BL
    return (one_BL ^ other_BL).sum(-1).double() / (one_BL | other_BL).sum(-1).clamp(min=1)


def _cardinality(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Of the numbers of positions revealed."""
    return (_count(state, one) - _count(state, other)).abs().double()


def _count(state: State, action: Action) -> Tensor:
    return reveal_count(action.kappa_B, (action.region_BL & state.masked_BL).sum(-1))


def _commitment(state: State, one: Action, other: Action, revealed_BL: Tensor) -> Tensor:
    """Revealed positions that only one of them commits."""
    return ((one.commit_BL ^ other.commit_BL) & revealed_BL).sum(-1).double()


_DISTANCES: dict[str, Callable[[State, Action, Action, Tensor], Tensor]] = {
    "score": _score,
    "region": _region,
    "cardinality": _cardinality,
    "commitment": _commitment,
}
