"""A report as one value: everything that is said and shown, made once, whatever it is then written as."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unmask.report.figures.chart import Gallery, ReportFigure
from unmask.report.sheet import AnySheet


@dataclass(frozen=True)
class Answer:
    """A question that every study is asked, and one to three sentences."""

    question: str
    text: str
    """The numbers, with their intervals; a paragraph to a line."""
    verdict: str
    """One sentence that needs no definition."""


@dataclass(frozen=True)
class Section:
    """A part of a report under a title of its own."""

    title: str
    note: str = ""
    part: str = ""
    """Of the paper's experiments: E1 to E4; empty where it belongs to none."""
    figures: tuple[ReportFigure | Gallery, ...] = ()
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
    glossary: Mapping[str, str]
    """What the words in the answers mean."""
    run: Mapping[str, str]
    """In short: what was run, on what, how long it took, what is missing."""
    command: tuple[str, ...]
    """Which command made the numbers, in lines."""
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
    def figures(self) -> tuple[ReportFigure, ...]:
        """Every figure, in the order of the sections."""
        shown = [one for section in self.sections for one in section.figures]
        return tuple(f for one in shown for f in (one.figures if isinstance(one, Gallery) else (one,)))

    @property
    def versions(self) -> str:
        return ", ".join(f"{part} {version}" for part, version in self.manifest["versions"].items())
