"""The report on a study: what it found, put into words, tables and figures once, and written as files.

E1 always; E2 and E3 where the study has readings; E4 where it decoded its arms end to end.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.base.errors import UnknownName
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.lab.store import Store
from unmask.report import files
from unmask.report.csv import table_csv
from unmask.report.figures.printed import IMAGES, printed
from unmask.report.html import NoPlotly, page
from unmask.report.latex import table_latex
from unmask.report.markdown import markdown
from unmask.report.report import Report
from unmask.report.sections import sections
from unmask.report.sheet import AnySheet
from unmask.report.tables import detection as detection_tables
from unmask.report.tables import end_to_end as end_to_end_tables
from unmask.report.tables import opportunity as opportunity_tables
from unmask.report.tables.shared import LEGEND, PARTIAL, mark
from unmask.report.verdicts import chosen_means
from unmask.report.words.answers import GLOSSARY, answers, notes
from unmask.report.words.opportunity import warnings
from unmask.report.words.run import command, set_aside, what_was_run
from unmask.stats import FEWEST

StatesPage = Callable[[Path], Path]
"""Writes a page of the study's states into a folder, and says which file that is."""


@dataclass(frozen=True)
class StudyFiles:
    """Where the parts of a report are."""

    page: Path | None
    """None where it could not be made; `no_page` says why."""
    text: Path
    tables: tuple[Path, ...]
    """As CSV."""
    latex: tuple[Path, ...]
    """The same tables."""
    figures: tuple[Path, ...] = ()
    """For a paper, where they were asked for."""
    states: Path | None = None
    """The page of the study's states, where one was asked for."""
    no_page: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        pages = tuple(path for path in (self.page, self.states) if path is not None)
        return (*pages, self.text, *self.tables, *self.latex, *self.figures)


def write(
    report: Report, out: str | Path, *, figures: str | None = None, states: StatesPage | None = None
) -> StudyFiles:
    """Write report.html, report.md, and a CSV and a LaTeX file per table into a folder.

    With `figures` (pdf, svg or png) also every figure for a paper, in a folder of that name. The page needs plotly;
    without it everything else is written, and `no_page` says so.
    """
    if figures is not None and figures not in IMAGES:
        raise UnknownName("kind of figures", figures, IMAGES)
    place = files.folder(out)
    beside = None if states is None else states(place)
    made, no_page = None, ""
    try:
        made = files.write(place / "report.html", page(report, None if beside is None else beside.name).encode())
    except NoPlotly as error:
        no_page = str(error)
        # An older page would be of other numbers than the tables beside it.
        (place / "report.html").unlink(missing_ok=True)
    return StudyFiles(
        page=made,
        text=files.write(place / "report.md", markdown(report).encode()),
        tables=tuple(files.write(place / f"{s.name}.csv", table_csv(s).encode()) for s in report.sheets),
        latex=tuple(files.write(place / f"{s.name}.tex", table_latex(s).encode()) for s in report.sheets),
        figures=() if figures is None else tuple(_figures(report, place / "figures", figures)),
        states=beside,
        no_page=no_page,
    )


def _figures(report: Report, place: Path, image: str) -> Iterator[Path]:
    files.folder(place)
    for figure in report.figures:
        yield files.write(place / f"{figure.name}.{image}", printed(figure, image))


def study_report(findings: Findings, store: Store | None = None) -> Report:
    """Everything that is said and shown about a study; `store` knows what failed, and what whole answers took."""
    opportunity = findings.opportunity
    return Report(
        study=opportunity.name,
        complete=opportunity.complete,
        warnings=(*warnings(opportunity), *set_aside(store)),
        answers=tuple(answers(findings)),
        notes=tuple(notes(findings)),
        sections=tuple(sections(findings)),
        screens=tuple(_screens(findings)),
        signs={sign: meaning for sign, meaning in LEGEND.items() if sign in _signs(findings)},
        glossary=GLOSSARY,
        run=what_was_run(opportunity, store),
        command=command(opportunity, store),
        facts=_facts(opportunity),
        resamples=opportunity.resamples,
        unreliable_below=FEWEST,
        hashes=opportunity.hashes,
        manifest=opportunity.manifest,
    )


# The terminal


def _screens(findings: Findings) -> Iterator[AnySheet]:
    if findings.opportunity.cells:
        yield opportunity_tables.screen_sheet(findings.opportunity)
    if findings.detection is not None and findings.detection.cells:
        yield detection_tables.screen_sheet(findings.detection)
    if findings.end_to_end is not None and findings.end_to_end.cells:
        yield end_to_end_tables.screen_sheet(findings.end_to_end)


def _signs(findings: Findings) -> set[str]:
    """Those that the screens show."""
    used = {sign for c in findings.opportunity.cells for sign in mark(c.overall, c.partial)}
    if findings.detection is not None:
        used |= {sign for c in findings.detection.cells for sign in mark(c.raw.measures, c.partial)}
    if findings.end_to_end is not None:
        used |= {PARTIAL for mean in chosen_means(findings.end_to_end) if mean.partial}
    return used


# What was done


def _facts(opportunity: OpportunityFindings) -> dict[str, str]:
    manifest = opportunity.manifest
    study = manifest["study"]
    splits = {role: f"{part['prompts']} from {part['split']}" for role, part in study["splits"].items()}
    return {
        "study": f"{opportunity.name}, fingerprint {manifest['fingerprint']}",
        "states per prompt": str(study["states"]),
        "rollouts": str(study["rollouts"]),
        "temperature": f"{study['temperature']:g}",
        **({"scoring": study["scoring"]} if "scoring" in study else {}),
        "prompts": ", ".join(f"{role}: {prompts}" for role, prompts in splits.items()),
        "steps": _pairs(study["steps"]),
        "seed": str(study["seed"]),
        "candidates": "; ".join(
            f"{reference} {axis}: {', '.join(names)}"
            for reference, sets in study["candidates"].items()
            for axis, names in sets.items()
        ),
        "data": _pairs({task: about.get("data", "none") for task, about in manifest["tasks"].items()}),
        **{f"hash of {table}": digest for table, digest in opportunity.hashes.items()},
    }


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
