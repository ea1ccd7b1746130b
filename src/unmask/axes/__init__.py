"""The four transition axes and remasking, as pure tensor functions of state, prediction and history."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from unmask.axes import cardinality, commitment, region, remasking, score
from unmask.axes.cardinality import Cardinality, dream_keep, fraction, k_min, reveal_count, without_floor
from unmask.axes.commitment import Commitment, describe_commitment, parse_commitment
from unmask.axes.region import Region, first_open_block
from unmask.axes.remasking import ReMDM, loop_alpha, reveal_probability
from unmask.axes.score import ORDERS, Mixture, weights
from unmask.core import Action, State

Distance = Callable[[State, Action, Action, Tensor], Tensor]
"""How far two actions are apart on an axis, row by row; the last argument is what the first of them reveals."""


@dataclass(frozen=True)
class Axis:
    """One independent choice of a decoding action, such as where to reveal or how many; Eq. (1) of the paper."""

    name: str
    setting: str
    """The field of an action that the axis changes, as policies spell it."""
    candidates: tuple[str, ...]
    """The rules of the paper's candidate set; the first is that of LLaDA's own decoder."""
    distance: Distance
    cuts: bool = False
    """Whether the axis changes which positions are revealed; an update that names its set must then name an order."""
    mixes: bool = False
    """Whether the signal compares mixtures of scores, so that a diagnostic has to read the fixed action's."""
    revises: bool = False
    """Whether the remasking operator belongs to the axis: it re-opens what is left revisable, and it draws."""
    extends: frozenset[str] = frozenset()
    """References whose own decoder lacks this axis: there it is reported apart, as an extension."""


SCORE = Axis("score", "alpha", score.CANDIDATES, score.distance, mixes=True)
REGION = Axis("region", "region", region.CANDIDATES, region.distance, cuts=True)
CARDINALITY = Axis("cardinality", "kappa", cardinality.CANDIDATES, cardinality.distance, cuts=True)
COMMITMENT = Axis(
    "commitment",
    "commit",
    commitment.CANDIDATES,
    commitment.distance,
    revises=True,
    # Dream's published update has no commitment of its own (appendix, end-to-end decoding).
    extends=frozenset({"dream"}),
)

AXES: Mapping[str, Axis] = MappingProxyType({axis.name: axis for axis in (SCORE, REGION, CARDINALITY, COMMITMENT)})
"""By name, in the order in which an action is made."""

POLICY = "policy"
"""What a study may vary beside the coordinates: whole methods. It is no coordinate of Eq. (1), so it is not in `AXES`,
no diagnostic reads it, and no gate can hold it."""
STUDY_AXES: tuple[str, ...] = (*AXES, POLICY)
"""What the axes of a study may be, in the order of tables and figures."""


def revises(axis: str) -> bool:
    """Whether the remasking operator belongs to what a study varies."""
    return axis in AXES and AXES[axis].revises
