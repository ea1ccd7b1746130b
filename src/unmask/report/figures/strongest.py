"""One figure for all models and tasks: the opportunity of each pair's strongest axis."""

from collections.abc import Mapping
from math import isnan

from unmask.axes import AXES
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings
from unmask.lab.choose import is_extension
from unmask.report.figures.svg import WhiskerRow, whiskers
from unmask.report.tables.shared import FEW, mark

CAPTION = (
    "Of each model and task the axis with the largest Δ_adapt, of those that the model's native decoder has: the shape "
    "is the axis, the colour the model. The largest of several estimates looks better than it is. Lines are 95 % "
    f"intervals over prompts; hollow and dashed: {FEW}."
)
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa7722", "#aa3377", "#2299aa")
"""Of models in their order; they begin anew where there are more."""


def strongest(findings: OpportunityFindings) -> Mapping[tuple[str, str], OpportunityCell]:
    """By model and task: the cell with the largest opportunity; of equal ones the first."""
    references = {spec["name"]: str(spec["reference"]) for spec in findings.manifest["study"]["models"]}
    best: dict[tuple[str, str], OpportunityCell] = {}
    for cell in findings.cells:
        usable = cell.axis in AXES and not is_extension(references[cell.model], cell.axis)
        if not usable or isnan(cell.overall.delta.value):
            continue
        known = best.get((cell.model, cell.task))
        if known is None or cell.overall.delta.value > known.overall.delta.value:
            best[cell.model, cell.task] = cell
    return best


def strongest_figure(findings: OpportunityFindings) -> str:
    """Grouped by task; empty where fewer than two pairs have numbers, or where one axis is all there is."""
    best = strongest(findings)
    if len(best) < 2 or len({cell.axis for cell in findings.cells}) < 2:
        return ""
    colours = {model: COLOURS[at % len(COLOURS)] for at, model in enumerate(findings.models)}
    tasks = dict.fromkeys(task for _, task in best)
    groups = [
        (task, [_row(best[model, task], colours[model]) for model in findings.models if (model, task) in best])
        for task in tasks
    ]
    title = "Adaptation opportunity of the strongest axis of every model and task"
    return whiskers("strongest", groups, title, "Δ_adapt of the strongest axis, with 95 % interval")


def _row(cell: OpportunityCell, colour: str) -> WhiskerRow:
    overall = cell.overall
    signs = mark(overall, cell.partial)
    return WhiskerRow(cell.axis, overall.delta, bool(overall.unreliable), signs, f"{cell.model}: {cell.axis}", colour)
