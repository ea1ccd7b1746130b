"""Diagnostics: a signal and a proposal from the recorded trajectory, without another forward."""

from collections.abc import Mapping
from types import MappingProxyType

from unmask.adapt.diagnostics.base import Diagnostic, Reading
from unmask.adapt.diagnostics.cardinality import (
    CardinalityDiagnostic,
    DiagnosedCardinality,
    DiagnosedTwoRoundsCardinality,
    ProgramCardinality,
    ReferenceProgramCardinality,
    TwoRoundsCardinality,
)
from unmask.adapt.diagnostics.commitment import CommitmentDiagnostic
from unmask.adapt.diagnostics.graphs import read_all
from unmask.adapt.diagnostics.region import DiagnosedRegion, DiagnosedShareRegion, RegionDiagnostic, ShareRegion
from unmask.adapt.diagnostics.score import ScoreDiagnostic

PAPER_DIAGNOSTICS: tuple[type[Diagnostic], ...] = (
    ScoreDiagnostic,
    RegionDiagnostic,
    CardinalityDiagnostic,
    CommitmentDiagnostic,
)
"""The paper's diagnostic of each axis, named as the axis itself."""
_ALL: tuple[type[Diagnostic], ...] = (
    *PAPER_DIAGNOSTICS,
    DiagnosedRegion,
    ShareRegion,
    DiagnosedShareRegion,
    DiagnosedCardinality,
    ProgramCardinality,
    ReferenceProgramCardinality,
    TwoRoundsCardinality,
    DiagnosedTwoRoundsCardinality,
)
DIAGNOSTICS: Mapping[str, type[Diagnostic]] = MappingProxyType({kind.name: kind for kind in _ALL})
"""All diagnostics by name. An axis may have several; its plain one has the axis's own name."""

__all__ = [
    "DIAGNOSTICS",
    "PAPER_DIAGNOSTICS",
    "CardinalityDiagnostic",
    "CommitmentDiagnostic",
    "Diagnostic",
    "Reading",
    "RegionDiagnostic",
    "ScoreDiagnostic",
    "read_all",
]
