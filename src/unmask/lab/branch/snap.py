"""The candidate nearest to a proposal, on the proposal's own axis; the first of equally near ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unmask.axes import AXES
from unmask.core import Action, State
from unmask.errors import UnknownName


def nearest(axis: str, state: State, proposed: Action, revealed_BL: Tensor, candidates: Sequence[Action]) -> Tensor:
    """Index of the nearest candidate of each row. `revealed_BL` is what the proposal reveals."""
    if axis not in AXES:
        raise UnknownName("axis", axis, AXES)
    distance_AB = torch.stack([AXES[axis].distance(state, proposed, other, revealed_BL) for other in candidates])
    # Not argmin, which promises no order among ties.
    least_B = distance_AB.min(0).values
    return (distance_AB == least_B).to(torch.int8).argmax(0)
