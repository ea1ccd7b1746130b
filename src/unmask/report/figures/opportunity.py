"""A study's figures as inline SVG. Colours come from the page's style, so that they are right on light and dark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isnan, log10

from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings, OpportunityMean
from unmask.policies.candidates import AXES
from unmask.report.tables.opportunity import mark, number, partial_mean, share
from unmask.stats import COVERAGES, Estimate, Opportunity

WIDTH = 860
_LEFT, _RIGHT = 250, 180
"""Room for names and for numbers."""
_ROW, _GROUP, _TOP, _BOTTOM = 19, 12, 10, 44

Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


@dataclass(frozen=True)
class WhiskerRow:
    """A dot with its interval."""

    axis: str
    """Names it, and gives shape and colour."""
    value: Estimate
    doubt: bool
    """Hollow and dashed."""
    signs: str = ""


Groups = Sequence[tuple[str, Sequence[WhiskerRow]]]
"""Rows under a common head."""


def gap_figure(found: OpportunityFindings, model: str, at: int) -> str:
    """Δ_adapt of every task and axis: a dot and its interval; hollow and dashed where that is unreliable."""
    groups = [
        (
            head,
            [
                WhiskerRow(r.axis, r.overall.delta, bool(r.overall.unreliable), mark(r.overall, _partial(found, r)))
                for r in rows
            ],
        )
        for head, rows in _groups(found, model)
    ]
    title = f"Adaptation opportunity of {model} by task and axis"
    return whiskers(f"gap-{at}", groups, title, "Δ_adapt: gain over the fixed action, with 95 % interval")


def whiskers(name: str, groups: Groups, title: str, foot: str) -> str:
    """Dots and intervals of all rows on one scale."""
    scale = AxisScale.over([row.value for _, group in groups for row in group], _LEFT, WIDTH - _RIGHT)
    bottom = _TOP + sum(_ROW * len(group) + _GROUP for _, group in groups)
    parts = list(_grid(scale, bottom))
    y = float(_TOP)
    for head, group in groups:
        parts.append(label(0, y + _ROW / 2, head, "head"))
        for row in group:
            parts += _whisker(row, y + _ROW / 2, scale)
            y += _ROW
        y += _GROUP
    parts.append(label(_LEFT, bottom + 36, foot, "soft"))
    told = "; ".join(f"{head}, {row.axis}: {number(row.value)}" for head, group in groups for row in group)
    return svg(name, bottom + _BOTTOM, title, told, parts)


def concentration_figure(found: OpportunityFindings, model: str, at: int) -> str:
    """C*(c) of every task, a panel for each axis; empty where no axis has any opportunity."""
    panels: dict[str, tuple[list[OpportunityCell], list[OpportunityMean]]] = {}
    for axis in AXES:
        lines = [c for c in found.of(model) if c.axis == axis and _known(c.overall)]
        means = [m for m in found.means if (m.model, m.axis) == (model, axis) and len(m.tasks) > 1]
        if lines:
            panels[axis] = (lines, [m for m in means if _known(m.overall)])
    if not panels:
        return ""
    shown = [c.overall for lines, _ in panels.values() for c in lines]
    shown += [m.overall for _, means in panels.values() for m in means]
    most = max(1.0, *(o.concentration[c].value for o in shown for c in COVERAGES))
    wide, high, gap = 174, 150, 36
    parts: list[str] = []
    told = []
    for k, (axis, (lines, means)) in enumerate(panels.items()):
        left = 44 + k * (wide + gap)
        box = (float(left), 30.0, float(left + wide), 30.0 + high)
        parts += [label(left, 16, axis, "head"), *_panel(box, most, first=k == 0)]
        parts += [_curve(c.overall, f"{c.task}, {c.axis}", axis, box, most, "thin") for c in lines]
        parts += [_curve(m.overall, f"mean over tasks, {m.axis}", axis, box, most, "thick") for m in means]
        told += [f"{c.task}, {axis}: top 10 % of states hold {share(c.overall.concentration[0.1])}" for c in lines]
    parts.append(label(44, 30 + high + 38, "share of states in %, best first", "soft"))
    title = f"Concentration of opportunity of {model}: share held by the best states"
    return svg(f"concentration-{at}", 30 + high + 48, title, "; ".join(told), parts)


def _groups(
    found: OpportunityFindings, model: str
) -> Iterator[tuple[str, Sequence[OpportunityCell | OpportunityMean]]]:
    cells = found.of(model)
    for task in dict.fromkeys(c.task for c in cells):
        yield task, [c for c in cells if c.task == task]
    means = [m for m in found.means if m.model == model]
    if any(len(m.tasks) > 1 for m in means):
        yield "mean over tasks", means


def _partial(found: OpportunityFindings, row: OpportunityCell | OpportunityMean) -> str:
    return row.partial if isinstance(row, OpportunityCell) else partial_mean(found, row)


def _known(opportunity: Opportunity) -> bool:
    """C* exists: there is opportunity to share out."""
    return not any(isnan(held.value) for held in opportunity.concentration.values())


@dataclass(frozen=True)
class AxisScale:
    """A straight axis from one tick to another, drawn between two places."""

    ticks: Sequence[float]
    left: float
    right: float

    @classmethod
    def over(cls, shown: Sequence[Estimate], left: float, right: float) -> "AxisScale":
        """Wide enough for all intervals and zero."""
        return cls.spanning([x for e in shown for x in (e.value, e.low, e.high)], left, right)

    @classmethod
    def spanning(cls, shown: Sequence[float], left: float, right: float) -> "AxisScale":
        """Wide enough for all numbers and zero."""
        seen = [0.0, *(x for x in shown if not isnan(x))]
        low, high = min(seen), max(seen)
        if high - low < 1e-6:
            high = low + 0.01
        step = _step(high - low)
        # Whole multiples of the step: -0.3 + 3 * 0.1 is not 0.
        return cls([k * step for k in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1)], left, right)

    def __call__(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return self.left + (self.right - self.left) * (value - low) / (high - low)


def _step(span: float) -> float:
    """1, 2 or 5 times a power of ten, four to eight to the span."""
    base = 10.0 ** floor(log10(span / 4))
    return next(base * k for k in (5, 2, 1) if span / (base * k) >= 4)


def _grid(scale: AxisScale, bottom: float) -> Iterator[str]:
    for tick in scale.ticks:
        x = scale(tick)
        zero = " zero" if abs(tick) < 1e-12 else ""
        yield f'<line class="grid{zero}" x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{bottom:.1f}"/>'
        yield label(x, bottom + 16, f"{tick + 0.0:.4g}", "soft", "middle")


def _whisker(row: WhiskerRow, y: float, scale: AxisScale) -> Iterator[str]:
    value, doubt = row.value, " doubt" if row.doubt else ""
    yield label(_LEFT - 12, y, row.axis, "", "end")
    yield f'<g class="axis-{row.axis}{doubt}"><title>{escape(f"{row.axis}: {number(value)} {row.signs}")}</title>'
    if not isnan(value.low):
        low, high = scale(value.low), scale(value.high)
        yield f'<line class="whisker" x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}"/>'
    yield f"{'' if isnan(value.value) else marker(row.axis, scale(value.value), y)}</g>"
    yield label(WIDTH - _RIGHT + 14, y, f"{number(value)} {row.signs}", "")


def marker(axis: str, x: float, y: float) -> str:
    """A shape for each axis: colour alone does not reach everybody."""
    if axis == "score":
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.6"/>'
    shapes = {
        "region": [(-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)],
        "cardinality": [(0, -5.8), (5.8, 0), (0, 5.8), (-5.8, 0)],
        "commitment": [(0, -5.4), (5.4, 4.2), (-5.4, 4.2)],
        "mean": [(-5.6, 0), (-2.8, -4.8), (2.8, -4.8), (5.6, 0), (2.8, 4.8), (-2.8, 4.8)],
    }
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shapes[axis])
    return f'<polygon class="dot" points="{points}"/>'


def _panel(box: Box, most: float, first: bool) -> Iterator[str]:
    left, top, right, bottom = box
    for part in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * part / most
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        if first:
            yield label(left - 6, y, f"{part:.0%}", "soft", "end")
    for part in (0.1, 0.2, 0.5, 1.0):
        yield label(left + (right - left) * part, bottom + 14, f"{100 * part:.0f}", "soft", "middle")
    even = bottom - (bottom - top) / most
    yield f'<line class="even" x1="{left}" y1="{bottom}" x2="{right}" y2="{even:.1f}"/>'


def _curve(opportunity: Opportunity, named: str, axis: str, box: Box, most: float, weight: str) -> str:
    left, top, right, bottom = box
    points = [(0.0, 0.0), *((c, opportunity.concentration[c].value) for c in COVERAGES)]
    drawn = " ".join(
        f"{left + (right - left) * c:.1f},{bottom - (bottom - top) * value / most:.1f}" for c, value in points
    )
    doubt = " doubt" if opportunity.unreliable else ""
    told = f"{named}: top 10 % of states hold {share(opportunity.concentration[0.1])}"
    return (
        f'<g class="axis-{axis}{doubt}"><title>{escape(told)}</title>'
        f'<polyline class="curve {weight}" points="{drawn}"/></g>'
    )


def label(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    look = f' class="{kind}"' if kind else ""
    return f'<text{look} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" dy="0.35em">{escape(text)}</text>'


def svg(name: str, height: float, title: str, told: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(told)}</desc>'
        f"{''.join(parts)}</svg>"
    )
