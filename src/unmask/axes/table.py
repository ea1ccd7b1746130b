"""The table of axes: everything the rest of the package knows about one. A new axis is a row here and a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from unmask.axes import cardinality, commitment, region, score
from unmask.core import Action, State

Distance = Callable[[State, Action, Action, Tensor], Tensor]
"""How far two actions are apart on the axis, row by row; the last argument is what the first of them reveals."""


@dataclass(frozen=True)
class Axis:
    """One coordinate of Eq. (1)."""

    name: str
    setting: str
    """The field of an action that it changes, as policies spell it."""
    candidates: tuple[str, ...]
    """The rules of the paper's candidate set; the first is the LLaDA-type reference's own."""
    distance: Distance
    cuts: bool = False
    """Whether it changes which positions are revealed, so that an update which names its set must name an order."""
    mixes: bool = False
    """Whether its signal compares mixtures of scores, so that a diagnostic has to read the fixed action's."""
    revises: bool = False
    """Whether the revision operator belongs to it: it re-opens what is left revisable, and it draws."""
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
"""What a study may vary beside the coordinates: who makes the whole action, one published method or another.

It is no coordinate of Eq. (1), so it is not among `AXES`: nothing of an action is its own, no diagnostic
reads it, and no gate or joint arm can hold it.
"""
STUDY_AXES: tuple[str, ...] = (*AXES, POLICY)
"""What the axes of a study may be, in the order of tables and figures."""


def revises(axis: str) -> bool:
    """Whether the revision operator belongs to what a study varies."""
    return axis in AXES and AXES[axis].revises
