"""What scoring returns."""

from dataclasses import dataclass

from unmask.tasks.scoring.extract import Extraction


@dataclass(frozen=True)
class Part:
    """One of the K parts of a target and what became of it."""

    name: str
    expected: str
    given: str | None
    right: bool


@dataclass(frozen=True)
class Verdict:
    """What an output is worth, with every step that led there."""

    id: str
    utility: float | None
    """In [0, 1]; None if the evaluator could not tell, which is not the same as wrong."""
    reason: str
    extraction: Extraction
    parts: tuple[Part, ...]
