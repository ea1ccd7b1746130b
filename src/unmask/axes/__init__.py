"""The four axes of an action (score, region, cardinality, commitment) and remasking, as pure functions on tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from unmask.axes import cardinality, commitment, region, remasking, score
from unmask.axes.cardinality import (
    Cardinality,
    allow_below_k_min,
    dream_keep_probability,
    k_min,
    reveal_count,
    reveal_fraction,
)
from unmask.axes.commitment import Commitment, describe_commitment, parse_commitment
from unmask.axes.region import Region, first_open_block
from unmask.axes.remasking import ReMDM, loop_alpha, reveal_probability
from unmask.axes.score import ORDERS, Mixture, weights
from unmask.core import Action, State

Distance = Callable[[State, Action, Action, Tensor], Tensor]
"""Distance between two actions on an axis, for each row. The last argument: positions that the first one reveals."""


@dataclass(frozen=True)
class Axis:
    """One coordinate of a decoding action, such as where to reveal or how many; Eq. (1) of the paper."""

    name: str
    setting: str
    """Name of the axis in the settings of policies."""
    candidates: tuple[str, ...]
    """Rules of the paper's candidate set. The first is that of LLaDA's own decoder."""
    distance: Distance
    cuts: bool = False
    """Whether the axis changes which positions are revealed. A method that names a set must then also give an order."""
    mixes: bool = False
    """Whether diagnostics of the axis compare score mixtures, and so read that of the fixed action."""
    revises: bool = False
    """Whether remasking, which draws random numbers, belongs to the axis."""
    extends: frozenset[str] = frozenset()
    """Reference decoders without this axis. Studies report the axis as an extension for them."""


SCORE = Axis("score", "alpha", score.CANDIDATES, score.action_distance, mixes=True)
REGION = Axis("region", "region", region.CANDIDATES, region.action_distance, cuts=True)
CARDINALITY = Axis("cardinality", "kappa", cardinality.CANDIDATES, cardinality.action_distance, cuts=True)
COMMITMENT = Axis(
    "commitment",
    "commit",
    commitment.CANDIDATES,
    commitment.action_distance,
    revises=True,
    # Dream's published update has no commitment (appendix, end-to-end decoding).
    extends=frozenset({"dream"}),
)

AXES: Mapping[str, Axis] = MappingProxyType({axis.name: axis for axis in (SCORE, REGION, CARDINALITY, COMMITMENT)})
"""Name -> axis, in the order in which the parts of an action are chosen."""

POLICY = "policy"
"""Name of a further axis of studies: whole methods. It is no coordinate of Eq. (1), so it is not in `AXES`, has no
diagnostic, and cannot be in a gate."""
STUDY_AXES: tuple[str, ...] = (*AXES, POLICY)
"""Axes that a study can vary, in the order of tables and figures."""


def revises(axis: str) -> bool:
    """Whether remasking belongs to an axis of a study."""
    return axis in AXES and AXES[axis].revises
