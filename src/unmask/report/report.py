"""A report as one value: everything that is said and shown, made once, whatever it is then written as."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unmask.report.sheet import AnySheet


@dataclass(frozen=True)
class Answer:
    """A question that every study is asked, and one to three sentences."""

    question: str
    text: str
    """A paragraph to a line."""


@dataclass(frozen=True)
class ReportFigure:
    """A picture, with what stands above and below it."""

    svg: str
    name: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Gallery:
    """Figures of one kind with one note on how to read them; folded where there are many."""

    note: str
    summary: str
    figures: tuple[ReportFigure, ...]


@dataclass(frozen=True)
class Section:
    """A part of a report under a title of its own."""

    title: str
    note: str = ""
    figures: tuple[ReportFigure, ...] = ()
    gallery: Gallery | None = None
    legend: Mapping[str, str] = field(default_factory=dict)
    """What the signs in its tables, and in all that follow, mean."""
    sheets: tuple[AnySheet, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a study found, in words, tables and figures."""

    study: str
    complete: bool
    warnings: tuple[str, ...]
    answers: tuple[Answer, ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    screens: tuple[AnySheet, ...]
    """Short tables, for a terminal."""
    signs: Mapping[str, str]
    """What the signs in those mean."""
    axes: tuple[str, ...]
    """Each has a colour in figures."""
    facts: Mapping[str, str]
    resamples: int
    unreliable_below: int
    hashes: Mapping[str, str]
    manifest: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"Adaptation opportunity: {self.study}"

    @property
    def intervals(self) -> str:
        """What brackets are."""
        return f"95 % percentile intervals from {self.resamples:,} resamples of prompts"

    @property
    def sheets(self) -> tuple[AnySheet, ...]:
        """Every table, in the order of the sections."""
        return tuple(sheet for section in self.sections for sheet in section.sheets)

    @property
    def versions(self) -> str:
        return ", ".join(f"{part} {version}" for part, version in self.manifest["versions"].items())
