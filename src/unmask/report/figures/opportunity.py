"""The figures of E1: opportunity by model, task and axis, by stage, and how concentrated it is."""

from collections.abc import Iterator, Sequence
from math import isnan

from unmask.axes import STUDY_AXES
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings, OpportunityMean
from unmask.report.figures.chart import (
    SOFT,
    ChartLine,
    Dot,
    Gallery,
    HeatMap,
    Lines,
    ReportFigure,
    Whiskers,
    colour_of,
    shape_of,
)
from unmask.report.formats import counted, share
from unmask.report.tables.opportunity import partial_mean
from unmask.report.tables.shared import FEW, MEAN, STAGE_NAMES
from unmask.report.words.phrases import model_name
from unmask.stats import COVERAGES
from unmask.stats.measures import Opportunity

GAP_CAPTION = (
    f"Dots are estimates on evaluation prompts, lines 95 % intervals over prompts. Hollow: {FEW}, not to be relied on."
)
HEAT_CAPTION = "The same numbers at a glance: Δ_adapt of each task and axis. An empty cell has no number."
STAGE_CAPTION = (
    "Δ_adapt by how much of the answer is still masked, from the start of decoding on the left to its end; lines are "
    f"95 % intervals over prompts. Hollow: {FEW}."
)
CONCENTRATION_CAPTION = (
    "C*(c), the Lorenz curve of opportunity: the share of all of it that the best c per cent of states hold. Thin: a "
    f"task; thick: mean over tasks; dotted: opportunity spread evenly over states. Dashed: {FEW}, not to be relied on. "
    "An axis without any opportunity has no curve."
)
_Measured = OpportunityCell | OpportunityMean


def counted_in(overall: Opportunity, partial: str = "") -> tuple[str, ...]:
    """What a number rests on, in lines."""
    rests = f"n: {counted(overall.prompts, 'prompt')}, {counted(overall.states, 'state')}"
    few = (f"not to be relied on: {overall.unreliable}",) if overall.unreliable else ()
    return (rests, *few, *((f"not complete: {partial}",) if partial else ()))


# By model, task and axis


def gap_gallery(findings: OpportunityFindings) -> Gallery:
    """Δ_adapt of every task and axis, a figure for each model."""
    figures = tuple(
        ReportFigure(
            f"e1-gap-{at}",
            f"Opportunity by task and axis: {model_name(findings, model)}",
            (Whiskers(list(_rows(findings, model)), "gain in utility (Δ_adapt)"),),
            GAP_CAPTION,
            choice=model_name(findings, model),
        )
        for at, model in enumerate(findings.models)
        if findings.of(model)
    )
    return Gallery("e1-gap", "Opportunity by task and axis", GAP_CAPTION, "Model", figures, "opportunity")


def _rows(findings: OpportunityFindings, model: str) -> Iterator[tuple[str, Sequence[Dot]]]:
    cells = findings.of(model)
    for task in dict.fromkeys(c.task for c in cells):
        yield task, [_dot(findings, c) for c in cells if c.task == task]
    means = _means(findings, model)
    if means:
        yield MEAN, [_dot(findings, m) for m in means]


def _means(findings: OpportunityFindings, model: str) -> list[OpportunityMean]:
    """Means over several tasks; of one task it would be the same again."""
    means = [m for m in findings.means if m.model == model]
    return means if any(len(m.tasks) > 1 for m in means) else []


def _dot(findings: OpportunityFindings, row: _Measured) -> Dot:
    partial = row.partial if isinstance(row, OpportunityCell) else partial_mean(findings, row)
    where = row.task if isinstance(row, OpportunityCell) else MEAN
    fixed = (f"fixed action: {row.fixed_name}",) if isinstance(row, OpportunityCell) else ()
    about = (f"{where}, {row.axis}", *counted_in(row.overall, partial), *fixed)
    shape, colour = shape_of(row.axis), colour_of(row.axis)
    return Dot(row.axis, row.overall["delta"], shape, colour, bool(row.overall.unreliable), about)


def heat_gallery(findings: OpportunityFindings) -> Gallery:
    """Tasks by axes, a map for each model."""
    figures = tuple(
        ReportFigure(
            f"e1-map-{at}",
            f"Where the opportunity is: {model_name(findings, model)}",
            (_heat(findings, model),),
            HEAT_CAPTION,
            choice=model_name(findings, model),
        )
        for at, model in enumerate(findings.models)
        if findings.of(model)
    )
    return Gallery("e1-map", "Where the opportunity is: task by axis", HEAT_CAPTION, "Model", figures, "opportunity")


def _heat(findings: OpportunityFindings, model: str) -> HeatMap:
    cells = {(c.task, c.axis): c for c in findings.of(model)}
    tasks = tuple(dict.fromkeys(task for task, _ in cells))
    axes = tuple(axis for axis in STUDY_AXES if any(key[1] == axis for key in cells))
    known = [[cells.get((task, axis)) for axis in axes] for task in tasks]
    return HeatMap(
        title="",
        rows=tasks,
        columns=axes,
        values=[[None if cell is None else cell.overall["delta"] for cell in row] for row in known],
        about=[[() if cell is None else _dot(findings, cell).about for cell in row] for row in known],
    )


# By stage


def stage_gallery(findings: OpportunityFindings) -> Gallery:
    """Δ_adapt along the run: the means of each model first, then its tasks."""
    figures: list[ReportFigure] = []
    for model in findings.models:
        groups: dict[str, Sequence[_Measured]] = {}
        if means := _means(findings, model):
            groups[MEAN] = means
        for cell in findings.of(model):
            groups[cell.task] = [*groups.get(cell.task, ()), cell]
        for where, rows in groups.items():
            name = f"e1-stages-{len(figures)}"
            title = f"Opportunity by stage: {model_name(findings, model)}, {where}"
            choice = where if len(findings.models) == 1 else f"{model_name(findings, model)}: {where}"
            figures.append(ReportFigure(name, title, (_stages(rows),), STAGE_CAPTION, choice=choice))
    return Gallery("e1-stages", "Opportunity by stage", STAGE_CAPTION, "Task", tuple(figures), "stages")


def _stages(rows: Sequence[_Measured]) -> Lines:
    lines = []
    for at, row in enumerate(rows):
        parts = row.stages
        ends = [parts[k]["delta"] for k in parts]
        # Beside each other, so that intervals do not hide one another.
        shift = 0.08 * (at - (len(rows) - 1) / 2)
        lines.append(
            ChartLine(
                row.axis,
                [k + shift for k in parts],
                [e.value for e in ends],
                colour_of(row.axis),
                [e.low for e in ends],
                [e.high for e in ends],
                shape=shape_of(row.axis),
                doubt=bool(row.overall.unreliable),
                about=(row.axis, *counted_in(row.overall)),
            )
        )
    return Lines("", "masked share of the answer", "Δ_adapt", lines, ticks=[_short(name) for name in STAGE_NAMES])


def _short(stage: str) -> str:
    return stage.removeprefix("masked ")


# How concentrated


def concentration_gallery(findings: OpportunityFindings) -> Gallery:
    """C*(c) of every task, a panel for each axis that has any opportunity."""
    figures = []
    for at, model in enumerate(findings.models):
        panels = tuple(panel for axis in STUDY_AXES for panel in _panels(findings, model, axis))
        if panels:
            name = model_name(findings, model)
            title = f"Concentration of opportunity: {name}"
            figures.append(ReportFigure(f"e1-concentration-{at}", title, panels, CONCENTRATION_CAPTION, choice=name))
    title = "Concentration of opportunity"
    return Gallery("e1-concentration", title, CONCENTRATION_CAPTION, "Model", tuple(figures), "concentration")


def _panels(findings: OpportunityFindings, model: str, axis: str) -> Iterator[Lines]:
    """One, where there is opportunity on that axis."""
    cells = [c for c in findings.of(model) if c.axis == axis and _known(c.overall)]
    means = [m for m in _means(findings, model) if m.axis == axis and _known(m.overall)]
    if not cells:
        return
    even = ChartLine("spread evenly", (0.0, 1.0), (0.0, 1.0), SOFT, width=1.0, dash="dot", about=("spread evenly",))
    thin = [_curve(c.overall, c.task, axis, 1.2) for c in cells]
    thick = [_curve(m.overall, MEAN, axis, 3.0) for m in means]
    x, y = "share of states, best first", "share of the opportunity"
    yield Lines(axis, x, y, (even, *thin, *thick), x_share=True, y_share=True)


def _known(opportunity: Opportunity) -> bool:
    """C* exists: there is opportunity to share out."""
    return not any(isnan(opportunity["concentration", c].value) for c in COVERAGES)


def _curve(opportunity: Opportunity, name: str, axis: str, width: float) -> ChartLine:
    held = share(opportunity["concentration", 0.1])
    about = (f"{name}, {axis}", f"top 10 % of states hold {held}", *counted_in(opportunity))
    ys = (0.0, *(opportunity["concentration", c].value for c in COVERAGES))
    dash = "dash" if opportunity.unreliable else "solid"
    return ChartLine(name, (0.0, *COVERAGES), ys, colour_of(axis), width=width, dash=dash, about=about)
