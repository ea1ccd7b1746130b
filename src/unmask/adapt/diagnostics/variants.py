"""Second readings of the paper's text, each under a name of its own, to be studied beside the first.

The text holds every other axis at the reference in one place and uses the diagnosed mixture and the diagnosed region
in others. A name says all that differs: `axis:support:mixture` and `axis:mixture:holds`, with what is as in the plain
diagnostic left out. docs/diagnostics.md
"""

from typing import ClassVar

from unmask.adapt.diagnostics.cardinality import CardinalityDiagnostic
from unmask.adapt.diagnostics.region import RegionDiagnostic


class DiagnosedRegion(RegionDiagnostic):
    """Drift and program under the diagnosed mixture. `app:region_diagnostic`"""

    name: ClassVar[str] = "region:diagnosed"
    mixture: ClassVar[str] = "diagnosed"


class ShareRegion(RegionDiagnostic):
    """kappa is held, so that a smaller region reveals fewer."""

    name: ClassVar[str] = "region:share"
    holds: ClassVar[str] = "share"


class DiagnosedShareRegion(DiagnosedRegion):
    """Both."""

    name: ClassVar[str] = "region:diagnosed:share"
    holds: ClassVar[str] = "share"


class DiagnosedCardinality(CardinalityDiagnostic):
    """The reference's region, ordered by the diagnosed mixture."""

    name: ClassVar[str] = "cardinality:diagnosed"
    mixture: ClassVar[str] = "diagnosed"


class ProgramCardinality(CardinalityDiagnostic):
    """The text to the letter: what region selection returns, ordered by the diagnosed scores."""

    name: ClassVar[str] = "cardinality:program"
    support: ClassVar[str] = "program"
    mixture: ClassVar[str] = "diagnosed"


class ReferenceProgramCardinality(CardinalityDiagnostic):
    """The same support under the reference's mixture."""

    name: ClassVar[str] = "cardinality:program:reference"
    support: ClassVar[str] = "program"


class TwoRoundsCardinality(CardinalityDiagnostic):
    """This batch and the next, where the equation's later candidates are the theorem's B'."""

    name: ClassVar[str] = "cardinality:two-rounds"
    support: ClassVar[str] = "two-rounds"


class DiagnosedTwoRoundsCardinality(TwoRoundsCardinality):
    """The same under the diagnosed mixture."""

    name: ClassVar[str] = "cardinality:two-rounds:diagnosed"
    mixture: ClassVar[str] = "diagnosed"


VARIANTS = (
    DiagnosedRegion,
    ShareRegion,
    DiagnosedShareRegion,
    DiagnosedCardinality,
    ProgramCardinality,
    ReferenceProgramCardinality,
    TwoRoundsCardinality,
    DiagnosedTwoRoundsCardinality,
)
