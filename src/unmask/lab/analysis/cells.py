"""What results about one diagnostic have in common, whether of one task or a mean over several."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from unmask.lab.choose import is_extension
from unmask.stats import Estimate


class OfDiagnostic:
    """What is said about one diagnostic around a reference's decoder."""

    reference: str
    axis: str
    diagnostic: str
    """By name; left out, it is the one that is called as its axis."""

    def __post_init__(self) -> None:
        if not self.diagnostic:
            object.__setattr__(self, "diagnostic", self.axis)

    @property
    def extension(self) -> bool:
        return is_extension(self.reference, self.axis)


@dataclass(frozen=True)
class DiagnosedCell(OfDiagnostic):
    """One model, task and diagnostic."""

    model: str
    task: str
    axis: str
    reference: str
    """Whose decoder, and whose update continues every branch: llada or dream."""
    diagnostic: str = field(default="", kw_only=True)

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, task and diagnostic."""
        return self.model, self.task, self.diagnostic


@dataclass(frozen=True, kw_only=True)
class DiagnosedMean(OfDiagnostic):
    """One model and diagnostic over its tasks, each of which counts the same."""

    model: str
    axis: str
    reference: str
    diagnostic: str = ""
    tasks: tuple[str, ...]
    utility: Mapping[str, Estimate]
    """By arm."""
    partial: str
    """Which tasks are missing or not complete; empty if none is."""
