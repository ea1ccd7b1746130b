"""Diagnostics: for each axis a signal and a proposal, from the recorded trajectory and without another forward."""

from collections.abc import Mapping
from types import MappingProxyType

from unmask.diagnostics.base import Diagnostic, Reading
from unmask.diagnostics.cardinality import CardinalityDiagnostic
from unmask.diagnostics.commitment import CommitmentDiagnostic
from unmask.diagnostics.region import RegionDiagnostic
from unmask.diagnostics.score import ScoreDiagnostic

DIAGNOSTICS: Mapping[str, type[Diagnostic]] = MappingProxyType(
    {kind.axis: kind for kind in (ScoreDiagnostic, RegionDiagnostic, CardinalityDiagnostic, CommitmentDiagnostic)}
)
"""The diagnostic of each axis, by the axis's name."""

__all__ = [
    "DIAGNOSTICS",
    "CardinalityDiagnostic",
    "CommitmentDiagnostic",
    "Diagnostic",
    "Reading",
    "RegionDiagnostic",
    "ScoreDiagnostic",
]
