"""The sections of a study's report: its figures and its tables, in the order of the page."""

from collections.abc import Iterator

from unmask.lab.analysis.end_to_end import EndToEndFindings
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.figures.chart import Gallery, ReportFigure
from unmask.report.figures.detection import setting_gallery
from unmask.report.figures.end_to_end import gain_figures, readings_figures
from unmask.report.figures.opportunity import concentration_gallery, gap_gallery, heat_gallery, stage_gallery
from unmask.report.figures.strongest import strongest_figures
from unmask.report.report import Section
from unmask.report.sheet import AnySheet
from unmask.report.tables import detection as detection_tables
from unmask.report.tables import end_to_end as end_to_end_tables
from unmask.report.tables import gates as gate_tables
from unmask.report.tables import inventory as inventory_tables
from unmask.report.tables import learned as learned_tables
from unmask.report.tables import methods as methods_tables
from unmask.report.tables import opportunity as opportunity_tables
from unmask.report.tables.beside_paper import beside_paper_sheet
from unmask.report.tables.concentration import concentration_detection_sheet
from unmask.report.tables.readings import readings_sheet
from unmask.report.tables.searches import searches_sheet
from unmask.report.tables.shared import LEGEND
from unmask.report.words.detection import EXTENSION
from unmask.report.words.end_to_end import BEYOND, READINGS
from unmask.report.words.learned import helps

_APART = "revision extension of a monotone native decoder"


IN_THE_PAPER = {
    "e1-all": "fig:e1-all",
    "opportunity": "tab:app-e1-full",
    "reversal": "tab:reversal-anatomy",
    "e3-concentration": "tab:opportunity-concentration",
    "e3-detection": "tab:opportunity-detector",
    "e3-coverage": "tab:selective-coverage, tab:coverage-controls",
    "e4-end-to-end": "tab:e4-selective-decoding, tab:app-mini-e4-full",
}
"""What the paper calls its figures and tables, by our names."""


def sections(findings: Findings) -> Iterator[Section]:
    opportunity = findings.opportunity
    yield from _opportunity_sections(opportunity)
    if findings.methods is not None:
        yield Section("Methods", part="E1", sheets=methods_tables.sheets(findings.methods))
    yield from _detection_sections(findings)
    yield from _learned_sections(findings)
    yield from _end_to_end_sections(findings)
    beside = beside_paper_sheet(findings)
    if beside.items:
        yield Section("Beside the paper", sheets=(beside,))
    yield Section("What was run, and what is missing", sheets=inventory_tables.sheets(opportunity))


def _opportunity_sections(opportunity: OpportunityFindings) -> Iterator[Section]:
    """How much, and how concentrated."""
    build = opportunity_tables
    maps = heat_gallery(opportunity)
    # One task on one axis is no map.
    several = len({(c.task, c.axis) for c in opportunity.cells}) > 1
    figures = (*strongest_figures(opportunity), gap_gallery(opportunity), maps if several else None)
    yield Section(
        "Opportunity",
        part="E1",
        figures=_some(*figures, stage_gallery(opportunity)),
        legend=LEGEND,
        sheets=(
            build.opportunity_sheet(opportunity),
            build.means_sheet(opportunity),
            build.stages_sheet(opportunity),
            build.audit_sheet(opportunity),
        ),
    )
    yield Section(
        "Concentration",
        part="E1",
        figures=_some(concentration_gallery(opportunity)),
        sheets=(
            build.concentration_sheet(opportunity),
            build.reversal_sheet(opportunity),
            build.pairs_sheet(opportunity),
        ),
    )


def _some(*figures: ReportFigure | Gallery | None) -> tuple[ReportFigure | Gallery, ...]:
    """Those with something in them."""
    return tuple(f for f in figures if f is not None and (isinstance(f, ReportFigure) or f.figures))


def _detection_sections(findings: Findings) -> Iterator[Section]:
    """Native decoders first, with what has no numbers; the revision extension apart."""
    detection = findings.detection
    if detection is None:
        return
    native, extension = detection.of(extension=False), detection.of(extension=True)
    both = concentration_detection_sheet(native)
    sheets = (*detection_tables.sheets(native), both, detection_tables.missing_sheet(detection))
    shown = _some(setting_gallery(findings.opportunity, native))
    yield Section("Diagnostics", part="E2, E3", figures=shown, sheets=sheets)
    if extension.cells:
        yield Section(
            f"Diagnostics: {_APART}",
            EXTENSION,
            part="E2, E3",
            figures=_some(setting_gallery(findings.opportunity, extension, "-revision")),
            sheets=(
                *detection_tables.sheets(extension, "-revision"),
                concentration_detection_sheet(extension, "-revision"),
            ),
        )


def _learned_sections(findings: Findings) -> Iterator[Section]:
    """What it comes to first; the revision extension has tables of its own and no part in the sentence."""
    learned = findings.learned
    if learned is None:
        return
    native, extension = learned.of(extension=False), learned.of(extension=True)
    apart = learned_tables.sheets(extension, "-revision") if extension.cells else ()
    sheets = (*learned_tables.sheets(native), *apart, learned_tables.learned_missing_sheet(learned))
    yield Section("Learned detector", " ".join(helps(findings.opportunity, learned)), part="E3", sheets=sheets)


def _end_to_end_sections(findings: Findings) -> Iterator[Section]:
    """The same order; then what goes beyond the paper."""
    end_to_end, build = findings.end_to_end, end_to_end_tables
    if end_to_end is None:
        return
    native, extension = end_to_end.of(extension=False), end_to_end.of(extension=True)
    sheets = (build.full_sheet(native), build.axes_sheet(native), build.controls_sheet(native))
    shown = tuple(gain_figures(findings.opportunity, native))
    yield Section("End to end", part="E4", figures=shown, sheets=(*sheets, build.missing_sheet(end_to_end)))
    if readings := tuple(_reading_sheets(end_to_end)):
        title, beside = "End to end: what depends on a choice of ours", tuple(readings_figures(end_to_end))
        yield Section(title, READINGS, part="E4", figures=beside, sheets=readings)
    if extension.cells:
        apart = (build.axes_sheet(extension, "-revision"), build.controls_sheet(extension, "-revision"))
        yield Section(f"End to end: {_APART}", EXTENSION, part="E4", sheets=apart)
    if end_to_end.joints:
        title = "End to end: all axes together, beyond the paper"
        yield Section(title, BEYOND, part="E4", sheets=(build.joint_sheet(end_to_end),))
    if end_to_end.searches:
        beyond = (searches_sheet(end_to_end.searches),)
        yield Section("End to end: searches, beyond the paper", part="E4", sheets=beyond)


def _reading_sheets(end_to_end: EndToEndFindings) -> Iterator[AnySheet]:
    if end_to_end.readings:
        yield readings_sheet(end_to_end.readings)
    if end_to_end.headlines:
        yield gate_tables.headlines_sheet(end_to_end)
    if end_to_end.gates:
        yield gate_tables.gates_sheet(end_to_end)
