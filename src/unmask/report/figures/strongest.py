"""One figure for all models and tasks: the opportunity of each pair's strongest axis (the paper's fig:e1-all)."""

from collections.abc import Iterator, Mapping
from math import isnan

from unmask.axes import AXES
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings
from unmask.lab.choose import is_extension
from unmask.report.figures.chart import MODELS, Dot, ReportFigure, Whiskers, shape_of
from unmask.report.figures.opportunity import counted_in
from unmask.report.tables.shared import FEW

CAPTION = (
    "Of each model and task the axis with the largest Δ_adapt, of those that the model's native decoder has: the shape "
    "is the axis, the colour the model. The largest of several estimates looks better than it is. Lines are 95 % "
    f"intervals over prompts; hollow: {FEW}."
)


def strongest(findings: OpportunityFindings) -> Mapping[tuple[str, str], OpportunityCell]:
    """By model and task: the cell with the largest opportunity; of equal ones the first."""
    references = {spec["name"]: str(spec["reference"]) for spec in findings.manifest["study"]["models"]}
    best: dict[tuple[str, str], OpportunityCell] = {}
    for cell in findings.cells:
        usable = cell.axis in AXES and not is_extension(references[cell.model], cell.axis)
        if not usable or isnan(cell.overall["delta"].value):
            continue
        known = best.get((cell.model, cell.task))
        if known is None or cell.overall["delta"].value > known.overall["delta"].value:
            best[cell.model, cell.task] = cell
    return best


def strongest_figures(findings: OpportunityFindings) -> Iterator[ReportFigure]:
    """Grouped by task; none where fewer than two pairs have numbers, or where one axis is all there is."""
    best = strongest(findings)
    if len(best) < 2 or len({cell.axis for cell in findings.cells}) < 2:
        return
    colours = {model: MODELS[at % len(MODELS)] for at, model in enumerate(findings.models)}
    rows = [
        (task, [_dot(best[model, task], colours[model]) for model in findings.models if (model, task) in best])
        for task in dict.fromkeys(task for _, task in best)
    ]
    shapes = {axis: shape_of(axis) for axis in AXES if any(cell.axis == axis for cell in best.values())}
    chart = Whiskers(rows, "gain in utility (Δ_adapt)", shapes=shapes)
    yield ReportFigure("e1-all", "Opportunity of the strongest axis", (chart,), CAPTION, "opportunity")


def _dot(cell: OpportunityCell, colour: str) -> Dot:
    overall = cell.overall
    about = (f"{cell.model}, {cell.task}: {cell.axis}", *counted_in(overall, cell.partial))
    return Dot(cell.model, overall["delta"], shape_of(cell.axis), colour, bool(overall.unreliable), about)
