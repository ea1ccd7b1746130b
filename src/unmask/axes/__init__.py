"""The four transition axes and revision, as pure tensor functions of state, prediction and history."""

from unmask.axes import cardinality, commitment, region, revision, score
from unmask.axes.cardinality import Cardinality
from unmask.axes.commitment import Commitment
from unmask.axes.region import Region
from unmask.axes.revision import ReMDM
from unmask.axes.table import AXES, CARDINALITY, COMMITMENT, POLICY, REGION, SCORE, STUDY_AXES, Axis, revises

__all__ = [
    "AXES",
    "CARDINALITY",
    "COMMITMENT",
    "POLICY",
    "REGION",
    "SCORE",
    "STUDY_AXES",
    "Axis",
    "Cardinality",
    "Commitment",
    "ReMDM",
    "Region",
    "cardinality",
    "commitment",
    "region",
    "revises",
    "revision",
    "score",
]
