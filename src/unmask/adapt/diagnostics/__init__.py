"""Diagnostics: they read a signal and a proposal off the recorded trajectory, without another forward."""

from collections.abc import Mapping
from types import MappingProxyType

from unmask.adapt.diagnostics.base import Diagnostic, Reading
from unmask.adapt.diagnostics.cardinality import CardinalityDiagnostic
from unmask.adapt.diagnostics.commitment import CommitmentDiagnostic
from unmask.adapt.diagnostics.graphs import read_all
from unmask.adapt.diagnostics.region import RegionDiagnostic
from unmask.adapt.diagnostics.score import ScoreDiagnostic

PAPER_DIAGNOSTICS: tuple[Diagnostic, ...] = (
    ScoreDiagnostic(),
    RegionDiagnostic(),
    CardinalityDiagnostic(),
    CommitmentDiagnostic(),
)
"""The paper's diagnostic of each axis, named as the axis itself."""
_VARIANTS: tuple[Diagnostic, ...] = (
    RegionDiagnostic(mixture="diagnosed"),
    RegionDiagnostic(holds="share"),
    RegionDiagnostic(mixture="diagnosed", holds="share"),
    CardinalityDiagnostic(mixture="diagnosed"),
    CardinalityDiagnostic(support="program", mixture="diagnosed"),
    CardinalityDiagnostic(support="program"),
    CardinalityDiagnostic(support="two-rounds"),
    CardinalityDiagnostic(support="two-rounds", mixture="diagnosed"),
)
"""Variants that read ambiguous places of the paper otherwise, under names such as `region:diagnosed:share`."""
DIAGNOSTICS: Mapping[str, Diagnostic] = MappingProxyType({one.name: one for one in (*PAPER_DIAGNOSTICS, *_VARIANTS)})
"""All diagnostics by name, at their default settings."""
