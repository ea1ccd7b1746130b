"""Diagnostics: for each axis a signal and a proposal, from the recorded trajectory and without another forward."""

from collections.abc import Mapping
from types import MappingProxyType

from unmask.diagnostics.base import Diagnostic, Reading
from unmask.diagnostics.cardinality import Cardinality
from unmask.diagnostics.commitment import Commitment
from unmask.diagnostics.region import Region
from unmask.diagnostics.score import Score

DIAGNOSTICS: Mapping[str, type[Diagnostic]] = MappingProxyType(
    {kind.axis: kind for kind in (Score, Region, Cardinality, Commitment)}
)
"""The diagnostic of each axis, by the axis's name."""

__all__ = ["DIAGNOSTICS", "Cardinality", "Commitment", "Diagnostic", "Reading", "Region", "Score"]
