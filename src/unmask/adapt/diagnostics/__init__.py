"""Diagnostics: a signal and a proposal, from the recorded trajectory and without another forward."""

from collections.abc import Mapping
from types import MappingProxyType

from unmask.adapt.diagnostics.base import Diagnostic, Reading
from unmask.adapt.diagnostics.cardinality import CardinalityDiagnostic
from unmask.adapt.diagnostics.commitment import CommitmentDiagnostic
from unmask.adapt.diagnostics.graphs import read_all
from unmask.adapt.diagnostics.region import RegionDiagnostic
from unmask.adapt.diagnostics.score import ScoreDiagnostic
from unmask.adapt.diagnostics.variants import VARIANTS

FOUR: tuple[type[Diagnostic], ...] = (ScoreDiagnostic, RegionDiagnostic, CardinalityDiagnostic, CommitmentDiagnostic)
"""One of each axis, called as the axis itself."""
_EVERY: tuple[type[Diagnostic], ...] = (*FOUR, *VARIANTS)
DIAGNOSTICS: Mapping[str, type[Diagnostic]] = MappingProxyType({kind.name: kind for kind in _EVERY})
"""Every diagnostic by its name; an axis may have several, and one that is called as the axis itself."""

__all__ = [
    "DIAGNOSTICS",
    "FOUR",
    "CardinalityDiagnostic",
    "CommitmentDiagnostic",
    "Diagnostic",
    "Reading",
    "RegionDiagnostic",
    "ScoreDiagnostic",
    "read_all",
]
