"""Quality against cost, a panel for each task: points with intervals, the Pareto front as a step line.

Members of the front are named beside their points; the others have numbers, which the foot of the figure explains.
"""

import io
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, cos, isfinite, pi, sin
from typing import Any
from warnings import catch_warnings, filterwarnings

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox

from unmask.stats import Estimate

INK, FAINT, GRID, BAR = "#222222", "#666666", "#E9E9E9", "#C4C4C4"
FRONT, OTHER, OWN = "#0072B2", "#8A8A8A", "#D55E00"
_COLUMNS, _PANEL, _LEGEND_ROW = 3, (5.0, 3.9), 0.2
"""Panels side by side; width and height of one and of a line of the legend, in inches."""
_LONGEST = 30
_MARK = 5.5


@dataclass(frozen=True)
class CostPoint:
    """One policy on one panel."""

    policy: str
    cost: float
    utility: Estimate
    front: bool = False
    sure: bool = False
    """On the front beyond noise."""
    reference: bool = False
    own: bool = False
    """A method of the user's own: always named, and marked with a star."""

    @property
    def has_name(self) -> bool:
        """Whether the name stands beside the point; others have a number."""
        return self.front or self.reference or self.own

    @property
    def is_drawable(self) -> bool:
        """Whether cost and utility are numbers that the axes can show."""
        return isfinite(self.cost) and self.cost > 0 and isfinite(self.utility.value)


@dataclass(frozen=True)
class CostPanel:
    """One task, or the mean over tasks."""

    title: str
    points: tuple[CostPoint, ...]


def trade_off(
    panels: Sequence[CostPanel],
    policies: Sequence[str],
    *,
    title: str,
    cost: str,
    notes: Sequence[str],
    image: str = "svg",
) -> bytes:
    """The figure; the same bytes for the same numbers and version of matplotlib. `policies` fix the numbers."""
    numbers = {policy: at for at, policy in enumerate(policies, start=1)}
    style: Any = {"font.size": 9, "font.family": "DejaVu Sans", "axes.edgecolor": FAINT, "svg.hashsalt": "unmask"}
    with matplotlib.rc_context(style), catch_warnings():
        # A letter that the font has not becomes a box; nobody has to be told.
        filterwarnings("ignore", message="Glyph")
        columns = 2 if len(panels) in (2, 4) else min(_COLUMNS, max(len(panels), 1))
        rows = ceil(len(panels) / columns)
        width = max(columns * _PANEL[0], 2 * _PANEL[0])
        per_line = max(1, int(width / 2.5))
        foot = _LEGEND_ROW * (ceil(len(policies) / per_line) + len(notes) + 2)
        height = 0.6 + rows * _PANEL[1] + foot
        fig = Figure((width, height), dpi=100, facecolor="white")
        _words(fig, 0.35, height - 0.3, title, size=12, weight="bold")
        grid = fig.add_gridspec(
            max(rows, 1),
            columns,
            left=0.65 / width,
            right=1 - 0.2 / width,
            bottom=(foot + 0.55) / height,
            top=1 - 0.95 / height,
            wspace=0.2,
            hspace=0.42,
        )
        for at, panel in enumerate(panels):
            _panel(fig.add_subplot(grid[at // columns, at % columns]), panel, numbers, cost)
        _foot(fig, list(policies), notes, foot, per_line)
        out = io.BytesIO()
        # Neither times nor versions of programs: the same numbers are the same bytes.
        left_out = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}.get(
            image, ("Software",)
        )
        fig.savefig(out, format=image, metadata=dict.fromkeys(left_out))
    return out.getvalue()


def _foot(fig: Figure, policies: Sequence[str], notes: Sequence[str], foot: float, per_line: int) -> None:
    """Who has which number, and what the marks mean."""
    width = fig.get_figwidth()
    for at, policy in enumerate(policies):
        x = 0.35 + (width - 0.5) / per_line * (at % per_line)
        y = foot - _LEGEND_ROW * (at // per_line + 1)
        _words(fig, x, y, f"{at + 1:>2}  {drawable(policy)}", size=8)
    for at, note in enumerate(reversed(notes)):
        _words(fig, 0.35, 0.15 + _LEGEND_ROW * at, note, size=8, color=FAINT)


def _words(fig: Figure, x: float, y: float, text: str, color: str = INK, **look: Any) -> None:
    fig.text(
        x / fig.get_figwidth(),
        y / fig.get_figheight(),
        drawable(text, 200),
        color=color,
        parse_math=False,
        va="center",
        **look,
    )


def _panel(ax: Axes, panel: CostPanel, numbers: dict[str, int], cost: str) -> None:
    ax.set_title(drawable(panel.title, 70), loc="left", size=9.5, weight="bold", color=INK, parse_math=False)
    points = [point for point in panel.points if point.is_drawable]
    if not points:
        ax.text(0.5, 0.5, "no numbers", ha="center", color=FAINT, transform=ax.transAxes)
        ax.set_axis_off()
        return
    _axes(ax, points, cost)
    steps = _steps(points, ax.get_xlim()[1])
    ax.step(*steps, where="post", color=FRONT, lw=1.1, alpha=0.55, zorder=2)
    for point in points:
        _point(ax, point)
    _place_labels(ax, points, numbers, steps)


def _axes(ax: Axes, points: Sequence[CostPoint], cost: str) -> None:
    costs = [point.cost for point in points]
    ends = [y for p in points for y in (p.utility.value, p.utility.low, p.utility.high) if isfinite(y)]
    low, high = min(*ends, max(ends) - 0.1), max(ends)
    spread = high - low
    span = max(max(costs) / min(costs), 1.2)
    ax.set_xscale("log")
    ax.set(
        xlim=(min(costs) / span**0.2, max(costs) * span**0.22),
        ylim=(low - 0.1 * spread, high + 0.14 * spread),
    )
    ax.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if span < 60 else (1,), numticks=12))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(cost, color=INK, size=8.5)
    ax.set_ylabel("utility", color=INK, size=8.5)
    ax.grid(color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(which="both", colors=FAINT, length=0, labelsize=8)


def _steps(points: Sequence[CostPoint], end: float) -> tuple[list[float], list[float]]:
    """Corners of the best utility that so much buys, up to the right end of the axis."""
    best = sorted({(point.cost, point.utility.value) for point in points if point.front})
    return [*(x for x, _ in best), end], [*(y for _, y in best), best[-1][1]]


def _point(ax: Axes, point: CostPoint) -> None:
    value = point.utility
    if isfinite(value.low):
        ax.plot(
            [point.cost] * 2, [value.low, value.high], color=FRONT if point.front else BAR, lw=0.9, alpha=0.7, zorder=1
        )
    colour = INK if point.reference else FRONT if point.front else OTHER
    if point.own:
        colour, marker, size = OWN, "*", _MARK + 4
    elif point.reference:
        marker, size = "D", _MARK - 0.5
    else:
        marker, size = "o", _MARK if point.front else _MARK - 1
    ax.plot(
        [point.cost],
        [value.value],
        marker,
        ms=size,
        mfc=colour if point.sure or point.own else "white",
        mec=colour,
        mew=1.1,
        zorder=5 if point.reference else 4 if point.front else 3,
    )


def _place_labels(
    ax: Axes, points: Sequence[CostPoint], numbers: dict[str, int], steps: tuple[list[float], list[float]]
) -> None:
    """Names of the front and numbers of the others, where they cover no point and no other label."""
    scale = ax.figure.dpi / 72
    taken = [_mark_box(ax, point, 0.55 * _MARK * scale) for point in points]
    lines = [*_front_boxes(ax, steps, scale), *(_bar_box(ax, point, scale) for point in points)]
    groups = _groups(ax, points, scale)
    for group in sorted(groups, key=lambda group: (not group[0].has_name, -group[0].utility.value)):
        front = group[0].has_name
        text = (
            "\n".join(drawable(p.policy) for p in group) if front else _join_numbers([numbers[p.policy] for p in group])
        )
        note = ax.annotate(
            text,
            (group[0].cost, group[0].utility.value),
            (0, 0),
            textcoords="offset points",
            size=8 if front else 7,
            color=_label_colour(group),
            parse_math=False,
            zorder=5,
        )
        box, place, far = _place_label(ax, note, taken, lines)
        taken.append(box.padded(1.8 * scale))
        if far:
            style = {"arrowstyle": "-", "color": FRONT if front else BAR, "lw": 0.6, "shrinkA": 0, "shrinkB": 2}
            ax.annotate(
                "", (group[0].cost, group[0].utility.value), place, textcoords="offset points", arrowprops=style
            )


def _label_colour(group: Sequence[CostPoint]) -> str:
    if any(point.own for point in group):
        return OWN
    return INK if group[0].reference else FRONT if group[0].has_name else FAINT


def _place_label(
    ax: Axes, note: Annotation, taken: list[Bbox], lines: list[Bbox]
) -> tuple[Bbox, tuple[float, float], bool]:
    """Move a label to the nearest place that is free; where none is, to where it covers the least."""
    frame = ax.get_window_extent()
    tries: list[tuple[float, tuple[float, float]]] = []
    for at, place in enumerate(_offsets()):
        box = _move(note, place)
        inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 + 12 and frame.y0 <= box.y0 and box.y1 <= frame.y1 + 4
        faults = 100 * (not inside) + 10 * sum(box.overlaps(other) for other in taken)
        faults += min(sum(box.overlaps(other) for other in lines), 3)
        # Far away is bad too: a circle outwards for each quarter of a line that is not crossed.
        tries.append((faults + 0.25 * (at // 8), place))
    best = min(range(len(tries)), key=lambda at: tries[at][0])
    return _move(note, tries[best][1]), tries[best][1], best >= 16


def _move(note: Annotation, place: tuple[float, float]) -> Bbox:
    x, y = place
    note.set_position(place)
    note.set(
        ha="left" if x > 1 else "right" if x < -1 else "center",
        va="center" if abs(y) < 4 else "bottom" if y > 0 else "top",
    )
    return note.get_window_extent()


def _groups(ax: Axes, points: Sequence[CostPoint], scale: float) -> list[list[CostPoint]]:
    """Points that lie on each other have one label; the front and the others apart."""
    groups: list[list[CostPoint]] = []
    for point in points:
        here = ax.transData.transform((point.cost, point.utility.value))
        for group in groups:
            there = ax.transData.transform((group[0].cost, group[0].utility.value))
            if group[0].has_name == point.has_name and max(abs(here - there)) < 2.5 * scale:
                group.append(point)
                break
        else:
            groups.append([point])
    return groups


def _front_boxes(ax: Axes, steps: tuple[list[float], list[float]], scale: float) -> Iterator[Bbox]:
    """Boxes that the line of the front covers: its level parts, and its rises."""
    xs, ys = steps
    for i in range(len(xs) - 1):
        (left, low), (right, high) = ax.transData.transform([(xs[i], ys[i]), (xs[i + 1], ys[i + 1])])
        yield Bbox.from_extents(left, low - scale, right, low + scale)
        yield Bbox.from_extents(right - scale, low, right + scale, high)


def _bar_box(ax: Axes, point: CostPoint, scale: float) -> Bbox:
    """Box that an interval covers."""
    ends = [y if isfinite(y) else point.utility.value for y in (point.utility.low, point.utility.high)]
    (x, low), (_, high) = ax.transData.transform([(point.cost, y) for y in ends])
    return Bbox.from_extents(x - 0.5 * scale, low, x + 0.5 * scale, high)


def _mark_box(ax: Axes, point: CostPoint, half: float) -> Bbox:
    """Box that a mark covers."""
    x, y = ax.transData.transform((point.cost, point.utility.value))
    return Bbox.from_extents(x - half, y - half, x + half, y + half)


def _offsets() -> Iterator[tuple[float, float]]:
    """Places around a point, in points of type: above left first, where the front leaves room, then farther away."""
    for radius, eighth in product((5, 8, 13, 19, 27, 36, 48, 62), (3, 2, 1, 0, 4, 7, 6, 5)):
        angle = eighth * pi / 4
        yield radius * cos(angle), radius * sin(angle)


def _join_numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def drawable(text: str, longest: int = _LONGEST) -> str:
    """A name as a font can draw it and an SVG can hold it."""
    drawn = "".join("?" if unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn", "Cf") else c for c in text)
    return drawn if len(drawn) <= longest else f"{drawn[: longest - 1]}…"
