"""The sections of a study's report: its figures and its tables, in the order of the page."""

from collections.abc import Iterator

from unmask.lab.analysis.detection import DetectionFindings
from unmask.lab.analysis.end_to_end import EndToEndFindings
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.figures.detection import CAPTION as SETTING_CAPTION
from unmask.report.figures.detection import setting_figure
from unmask.report.figures.end_to_end import CAPTION as END_TO_END_CAPTION
from unmask.report.figures.end_to_end import end_to_end_figure
from unmask.report.figures.opportunity import CONCENTRATION_CAPTION, GAP_CAPTION, concentration_figure, gap_figure
from unmask.report.figures.strongest import CAPTION as STRONGEST_CAPTION
from unmask.report.figures.strongest import strongest_figure
from unmask.report.report import Gallery, ReportFigure, Section
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
from unmask.report.verdicts import chosen_cells
from unmask.report.words.detection import EXTENSION
from unmask.report.words.end_to_end import BEYOND, READINGS
from unmask.report.words.learned import helps
from unmask.report.words.phrases import model_name

_APART = "revision extension of a monotone native decoder"


def sections(findings: Findings) -> Iterator[Section]:
    opportunity = findings.opportunity
    if drawn := strongest_figure(opportunity):
        yield Section("Strongest axes", figures=(ReportFigure(drawn, caption=STRONGEST_CAPTION),))
    for at, model in enumerate(opportunity.models):
        yield Section(model_name(opportunity, model), figures=tuple(_model_figures(opportunity, model, at)))
    sheets = (*opportunity_tables.sheets(opportunity), *inventory_tables.sheets(opportunity))
    yield Section("Tables", legend=LEGEND, sheets=sheets)
    if findings.methods is not None:
        yield Section("Methods", sheets=methods_tables.sheets(findings.methods))
    diagnostics = tuple(_detection_sections(findings))
    yield from diagnostics
    yield from _learned_sections(findings)
    # Figures are numbered through.
    yield from _end_to_end_sections(findings, len(diagnostics))
    beside = beside_paper_sheet(findings)
    if beside.items:
        yield Section("Beside the paper", sheets=(beside,))


def _model_figures(opportunity: OpportunityFindings, model: str, at: int) -> Iterator[ReportFigure]:
    yield ReportFigure(gap_figure(opportunity, model, at), caption=GAP_CAPTION)
    curves = concentration_figure(opportunity, model, at)
    if curves:
        yield ReportFigure(curves, caption=CONCENTRATION_CAPTION)


def _detection_sections(findings: Findings) -> Iterator[Section]:
    """Native decoders first, with what has no numbers; the revision extension apart."""
    detection = findings.detection
    if detection is None:
        return
    native, extension = detection.of(extension=False), detection.of(extension=True)
    both = concentration_detection_sheet(native)
    sheets = (*detection_tables.sheets(native), both, detection_tables.missing_sheet(detection))
    yield Section("Diagnostics", gallery=_gallery(findings.opportunity, native, "setting-0"), sheets=sheets)
    if extension.cells:
        yield Section(
            f"Diagnostics: {_APART}",
            EXTENSION,
            gallery=_gallery(findings.opportunity, extension, "setting-1"),
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
    yield Section("Learned detector", " ".join(helps(findings.opportunity, learned)), sheets=sheets)


def _gallery(opportunity: OpportunityFindings, detection: DetectionFindings, name: str) -> Gallery:
    shown = tuple(
        ReportFigure(
            setting_figure(cell, f"{name}-{at}"),
            f"{model_name(opportunity, cell.model)}: {cell.diagnostic} on {cell.task}",
        )
        for at, cell in enumerate(detection.cells)
    )
    pairs = "pair" if len(shown) == 1 else "pairs"
    return Gallery(SETTING_CAPTION, f"{len(shown)} task-axis\n{pairs}, the diagnostics' own actions", shown)


def _end_to_end_sections(findings: Findings, first: int) -> Iterator[Section]:
    """The same order; then what goes beyond the paper."""
    end_to_end, build = findings.end_to_end, end_to_end_tables
    if end_to_end is None:
        return
    native, extension = end_to_end.of(extension=False), end_to_end.of(extension=True)
    sheets = (build.full_sheet(native), build.axes_sheet(native), build.controls_sheet(native))
    shown = tuple(_gain_figures(findings.opportunity, native, f"end-to-end-{first}"))
    yield Section("End to end", figures=shown, sheets=(*sheets, build.missing_sheet(end_to_end)))
    if readings := tuple(_reading_sheets(end_to_end)):
        yield Section("End to end: what depends on a choice of ours", READINGS, sheets=readings)
    if extension.cells:
        apart = (build.axes_sheet(extension, "-revision"), build.controls_sheet(extension, "-revision"))
        yield Section(f"End to end: {_APART}", EXTENSION, sheets=apart)
    if end_to_end.joints:
        title = "End to end: all axes together, beyond the paper"
        yield Section(title, BEYOND, sheets=(build.joint_sheet(end_to_end),))
    if end_to_end.searches:
        yield Section("End to end: searches, beyond the paper", sheets=(searches_sheet(end_to_end.searches),))


def _reading_sheets(end_to_end: EndToEndFindings) -> Iterator[AnySheet]:
    if end_to_end.readings:
        yield readings_sheet(end_to_end.readings)
    if end_to_end.headlines:
        yield gate_tables.headlines_sheet(end_to_end)
    if end_to_end.gates:
        yield gate_tables.gates_sheet(end_to_end)


def _gain_figures(opportunity: OpportunityFindings, native: EndToEndFindings, name: str) -> Iterator[ReportFigure]:
    for at, model in enumerate(dict.fromkeys(c.model for c in chosen_cells(native))):
        drawn = end_to_end_figure(native, model, f"{name}-{at}")
        yield ReportFigure(drawn, model_name(opportunity, model), END_TO_END_CAPTION)
