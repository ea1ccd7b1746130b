"""What a study's figures are drawn with, as inline SVG: scales, labels, markers, and dots with their intervals.

Colours come from the page's style, so that they are right on light and dark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isnan, log10

from unmask.axes import STUDY_AXES
from unmask.report.formats import number
from unmask.stats import Estimate

WIDTH = 860
_LEFT, _RIGHT = 250, 180
"""Room for names and for numbers."""
_ROW, _GROUP, _TOP, _BOTTOM = 19, 12, 10, 44

Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""
Points = Sequence[tuple[float, float]]


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


def label(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    look = f' class="{kind}"' if kind else ""
    return f'<text{look} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" dy="0.35em">{escape(text)}</text>'


def coverage_ticks(box: Box) -> Iterator[str]:
    """Under a panel whose axis is a share of states."""
    left, _, right, bottom = box
    for part in (0.1, 0.2, 0.5, 1.0):
        yield label(left + (right - left) * part, bottom + 14, f"{100 * part:.0f}", "soft", "middle")


_DOT: Points = ()
_SHAPES: Sequence[Points] = (
    _DOT,
    [(-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)],
    [(0, -5.8), (5.8, 0), (0, 5.8), (-5.8, 0)],
    [(0, -5.4), (5.4, 4.2), (-5.4, 4.2)],
    [(0, 5.4), (5.4, -4.2), (-5.4, -4.2)],
)
"""One for each axis, by its place among `STUDY_AXES`; they begin anew where there are more."""
_MEAN: Points = [(-5.6, 0), (-2.8, -4.8), (2.8, -4.8), (5.6, 0), (2.8, 4.8), (-2.8, 4.8)]
"""For what is of no single axis."""


def marker(axis: str, x: float, y: float) -> str:
    """A shape for each axis: colour alone does not reach everybody."""
    shape = _SHAPES[STUDY_AXES.index(axis) % len(_SHAPES)] if axis in STUDY_AXES else _MEAN
    if shape is _DOT:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.6"/>'
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shape)
    return f'<polygon class="dot" points="{points}"/>'


@dataclass(frozen=True)
class WhiskerRow:
    """A dot with its interval."""

    axis: str
    """Gives shape and colour, and names it."""
    value: Estimate
    doubt: bool
    """Hollow and dashed."""
    signs: str = ""
    name: str = ""
    """What stands at its left, where that is not the axis."""
    colour: str = ""
    """Where that is not the axis's."""

    @property
    def label(self) -> str:
        return self.name or self.axis


Groups = Sequence[tuple[str, Sequence[WhiskerRow]]]
"""Rows under a common head."""


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
    values = "; ".join(f"{head}, {row.label}: {number(row.value)}" for head, group in groups for row in group)
    return svg(name, bottom + _BOTTOM, title, values, parts)


def _grid(scale: AxisScale, bottom: float) -> Iterator[str]:
    for tick in scale.ticks:
        x = scale(tick)
        zero = " zero" if abs(tick) < 1e-12 else ""
        yield f'<line class="grid{zero}" x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{bottom:.1f}"/>'
        yield label(x, bottom + 16, f"{tick + 0.0:.4g}", "soft", "middle")


def _whisker(row: WhiskerRow, y: float, scale: AxisScale) -> Iterator[str]:
    value, doubt = row.value, " doubt" if row.doubt else ""
    yield label(_LEFT - 12, y, row.label, "", "end")
    own = f' style="--own: {row.colour}"' if row.colour else ""
    title = escape(f"{row.label}: {number(value)} {row.signs}")
    yield f'<g class="axis-{row.axis}{doubt}"{own}><title>{title}</title>'
    if not isnan(value.low):
        low, high = scale(value.low), scale(value.high)
        yield f'<line class="whisker" x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}"/>'
    yield f"{'' if isnan(value.value) else marker(row.axis, scale(value.value), y)}</g>"
    yield label(WIDTH - _RIGHT + 14, y, f"{number(value)} {row.signs}", "")


def svg(name: str, height: float, title: str, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )
