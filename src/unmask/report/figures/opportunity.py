"""The figures of E1 as inline SVG: opportunity by task and axis, and how concentrated it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import isnan

from unmask.axes import STUDY_AXES
from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings, OpportunityMean
from unmask.report.figures.svg import Box, WhiskerRow, coverage_ticks, label, svg, whiskers
from unmask.report.formats import share
from unmask.report.tables.opportunity import partial_mean
from unmask.report.tables.shared import FEW, MEAN, mark
from unmask.stats import COVERAGES, Opportunity

GAP_CAPTION = (
    "Dots are estimates on evaluation prompts, lines 95 % intervals over prompts. Hollow and dashed: "
    f"{FEW}, not to be relied on."
)
CONCENTRATION_CAPTION = f"""\
C*(c): share of all opportunity held by the best c per cent of states. Thin: a task; thick: mean over tasks;
dotted: opportunity spread evenly over states. Dashed: {FEW}, not to be relied on. \
An axis without any opportunity has no curve."""


def gap_figure(findings: OpportunityFindings, model: str, at: int) -> str:
    """Δ_adapt of every task and axis: a dot and its interval; hollow and dashed where that is unreliable."""
    groups = [(head, [_whisker_row(findings, row) for row in rows]) for head, rows in _groups(findings, model)]
    title = f"Adaptation opportunity of {model} by task and axis"
    return whiskers(f"gap-{at}", groups, title, "Δ_adapt: gain over the fixed action, with 95 % interval")


def _groups(
    findings: OpportunityFindings, model: str
) -> Iterator[tuple[str, Sequence[OpportunityCell | OpportunityMean]]]:
    cells = findings.of(model)
    for task in dict.fromkeys(c.task for c in cells):
        yield task, [c for c in cells if c.task == task]
    means = [m for m in findings.means if m.model == model]
    if any(len(m.tasks) > 1 for m in means):
        yield MEAN, means


def _whisker_row(findings: OpportunityFindings, row: OpportunityCell | OpportunityMean) -> WhiskerRow:
    partial = row.partial if isinstance(row, OpportunityCell) else partial_mean(findings, row)
    return WhiskerRow(row.axis, row.overall.delta, bool(row.overall.unreliable), mark(row.overall, partial))


@dataclass(frozen=True)
class CurvePanel:
    """The curves of one axis."""

    axis: str
    cells: Sequence[OpportunityCell]
    means: Sequence[OpportunityMean]

    @property
    def curves(self) -> list[Opportunity]:
        return [*(c.overall for c in self.cells), *(m.overall for m in self.means)]


def concentration_figure(findings: OpportunityFindings, model: str, at: int) -> str:
    """C*(c) of every task, a panel for each axis; empty where no axis has any opportunity."""
    panels = [panel for axis in STUDY_AXES for panel in _panels(findings, model, axis)]
    if not panels:
        return ""
    most = max(1.0, *(o.concentration[c].value for panel in panels for o in panel.curves for c in COVERAGES))
    wide, high, gap = 174, 150, 36
    parts: list[str] = []
    for k, panel in enumerate(panels):
        left = 44 + k * (wide + gap)
        box = (float(left), 30.0, float(left + wide), 30.0 + high)
        parts += [label(left, 16, panel.axis, "head"), *_frame(box, most, first=k == 0)]
        parts += [_curve(c.overall, f"{c.task}, {c.axis}", panel.axis, box, most, "thin") for c in panel.cells]
        parts += [_curve(m.overall, f"{MEAN}, {m.axis}", panel.axis, box, most, "thick") for m in panel.means]
    parts.append(label(44, 30 + high + 38, "share of states in %, best first", "soft"))
    title = f"Concentration of opportunity of {model}: share held by the best states"
    held = [_held(f"{c.task}, {panel.axis}", c.overall) for panel in panels for c in panel.cells]
    return svg(f"concentration-{at}", 30 + high + 48, title, "; ".join(held), parts)


def _panels(findings: OpportunityFindings, model: str, axis: str) -> Iterator[CurvePanel]:
    """One, where there is opportunity on that axis."""
    cells = [c for c in findings.of(model) if c.axis == axis and _known(c.overall)]
    means = [m for m in findings.means if (m.model, m.axis) == (model, axis) and len(m.tasks) > 1]
    if cells:
        yield CurvePanel(axis, cells, [m for m in means if _known(m.overall)])


def _known(opportunity: Opportunity) -> bool:
    """C* exists: there is opportunity to share out."""
    return not any(isnan(held.value) for held in opportunity.concentration.values())


def _held(name: str, opportunity: Opportunity) -> str:
    return f"{name}: top 10 % of states hold {share(opportunity.concentration[0.1])}"


def _frame(box: Box, most: float, first: bool) -> Iterator[str]:
    left, top, right, bottom = box
    for part in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * part / most
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        if first:
            yield label(left - 6, y, f"{part:.0%}", "soft", "end")
    yield from coverage_ticks(box)
    even = bottom - (bottom - top) / most
    yield f'<line class="even" x1="{left}" y1="{bottom}" x2="{right}" y2="{even:.1f}"/>'


def _curve(opportunity: Opportunity, name: str, axis: str, box: Box, most: float, weight: str) -> str:
    left, top, right, bottom = box
    points = [(0.0, 0.0), *((c, opportunity.concentration[c].value) for c in COVERAGES)]
    drawn = " ".join(
        f"{left + (right - left) * c:.1f},{bottom - (bottom - top) * value / most:.1f}" for c, value in points
    )
    doubt = " doubt" if opportunity.unreliable else ""
    return (
        f'<g class="axis-{axis}{doubt}"><title>{escape(_held(name, opportunity))}</title>'
        f'<polyline class="curve {weight}" points="{drawn}"/></g>'
    )
