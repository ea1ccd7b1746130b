"""What a forward buys: the utility of each policy against the denoiser forwards it takes, with the best trade-offs."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import cos, hypot, pi, sin

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from unmask.report.demo.summary import DemoSummary
from unmask.report.themed import EDGE, FAINT, INK, PAPER, plain_axes, themed_svg
from unmask.report.trade_off import drawable

# Okabe and Ito's palette, which the colour-blind can tell apart.
COLOURS = {
    "llada": "#0072B2",
    "dream": "#E69F00",
    "fixed": "#009E73",
    "wino": "#D55E00",
    "core": "#CC79A7",
    "info-gain": "#56B4E9",
    "revised": "#8A8A8A",
}
BASELINE = FAINT


def trade_off_svg(summaries: Sequence[DemoSummary]) -> str:
    """The same text for the same comparison and version of matplotlib."""

    def draw(fig: Figure) -> None:
        ax = fig.subplots()
        _trade_off(ax, summaries)
        fig.draw_without_rendering()
        # From here on nothing moves, or labels would be placed against a layout that is no more.
        fig.set_layout_engine("none")
        _place_labels(ax, summaries)

    return themed_svg(draw, (6.4, 4.1))


def trade_off_words(summaries: Sequence[DemoSummary]) -> str:
    """For those who do not see the picture."""
    shown = sorted(_points_to_draw(summaries), key=lambda s: s.spent)
    best = [f"{s.label} {s.utility:.2f} with {s.spent:.1f}" for s in shown if s.frontier]
    return (
        f"Expected utility of {len(shown)} policies against forwards per answer. None does better for as many "
        f"forwards than these: {'; '.join(best)}."
    )


def _trade_off(ax: Axes, summaries: Sequence[DemoSummary]) -> None:
    shown = _points_to_draw(summaries)
    xs, ys = _frontier(shown)
    ax.step(xs, ys, where="post", color=EDGE, lw=1)
    ax.axhline(1.0, color=FAINT, lw=0.8, ls=(0, (4, 3)))
    ax.text(xs[-1], 1.004, "most probable answer ", ha="right", va="bottom", color=FAINT, size=9)
    for s in shown:
        colour = COLOURS.get(s.method, BASELINE)
        face, edge = (PAPER, colour) if s.baseline else (colour, PAPER)
        marker, size = ("o", 7) if s.deterministic else ("D", 6)
        if not s.deterministic:
            ax.errorbar([s.spent], [s.utility], yerr=s.stderr, color=colour, elinewidth=0.9, capsize=2, zorder=2)
        ax.plot([s.spent], [s.utility], marker=marker, ms=size, mfc=face, mec=edge, mew=0.8, zorder=3)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    low = min(s.utility - s.stderr for s in shown)
    ax.set(xlim=(0.85 * xs[0], xs[-1]), ylim=(low - 0.08 * (1 - low), 1 + 0.08 * (1 - low)))
    ax.set_xlabel("forwards per answer (fewer is cheaper)", color=INK)
    ax.set_ylabel("expected utility (1 is the best answer)", color=INK)
    plain_axes(ax)


def _points_to_draw(summaries: Sequence[DemoSummary]) -> list[DemoSummary]:
    """Select the policies that have a place on the axis of forwards."""
    return [s for s in summaries if s.forwards is not None]


def _frontier(shown: Sequence[DemoSummary]) -> tuple[list[float], list[float]]:
    """Corners of the best utility that so many forwards buy, up to the right end of the axis."""
    best = sorted((s.spent, s.utility) for s in shown if s.frontier)
    end = 1.25 * max(s.spent for s in shown)
    return [*(x for x, _ in best), end], [*(y for _, y in best), best[-1][1]]


def _place_labels(ax: Axes, summaries: Sequence[DemoSummary]) -> None:
    """Beside each point, at the nearest place that covers no point, error bar, line or other label."""
    scale = ax.figure.dpi / 72
    shown = _points_to_draw(summaries)
    points = {s.label: _footprint(ax, s, scale) for s in shown}
    taken = [*points.values(), *_lines(ax, shown, scale), *(text.get_window_extent() for text in ax.texts)]
    frame = ax.get_window_extent()
    for s in sorted(shown, key=lambda s: -s.utility):
        colour = COLOURS.get(s.method, BASELINE)
        note = ax.annotate(drawable(s.label), (s.spent, s.utility), (0, 0), textcoords="offset points", size=9.5)
        note.set_color(INK)
        for x, y in _offsets():
            note.set_position((x, y))
            note.set(
                ha="left" if x > 1 else "right" if x < -1 else "center",
                va="center" if abs(y) < 5 else "bottom" if y > 0 else "top",
            )
            box = note.get_window_extent()
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box.padded(1.5 * scale))
        nearest = min(points, key=lambda label: _gap(box, points[label]))
        if nearest != s.label or _gap(box, points[s.label]) > 12 * scale:
            _leader(ax, s, (x, y), colour)


def _leader(ax: Axes, s: DemoSummary, at: tuple[float, float], colour: str) -> None:
    """A thin line from a label to its point."""
    style = {"arrowstyle": "-", "color": colour, "lw": 0.7, "shrinkA": 0, "shrinkB": 3}
    ax.annotate("", (s.spent, s.utility), at, textcoords="offset points", arrowprops=style)


def _gap(one: Bbox, other: Bbox) -> float:
    """Distance between two boxes, in pixels."""
    x = max(one.x0 - other.x1, other.x0 - one.x1, 0.0)
    y = max(one.y0 - other.y1, other.y0 - one.y1, 0.0)
    return hypot(x, y)


def _lines(ax: Axes, shown: Sequence[DemoSummary], scale: float) -> list[Bbox]:
    """Boxes that the frontier covers: its level parts, and its rises."""
    xs, ys = _frontier(shown)
    boxes = []
    for i in range(len(xs) - 1):
        (left, low), (right, high) = ax.transData.transform([(xs[i], ys[i]), (xs[i + 1], ys[i + 1])])
        boxes.append(Bbox.from_extents(left, low - scale, right, low + scale))
        boxes.append(Bbox.from_extents(right - scale, low, right + scale, high))
    return boxes


def _footprint(ax: Axes, s: DemoSummary, scale: float) -> Bbox:
    """Box in pixels that a marker and its error bar cover."""
    x, low = ax.transData.transform((s.spent, s.utility - s.stderr))
    _, high = ax.transData.transform((s.spent, s.utility + s.stderr))
    return Bbox.from_extents(x - 4 * scale, low - 4 * scale, x + 4 * scale, high + 4 * scale)


def _offsets() -> Iterator[tuple[float, float]]:
    """Places around a point, in points of type: right and left first, then around, then farther away."""
    for radius, eighth in product((9, 15, 22, 30, 40, 52, 66, 82), (0, 4, 1, 7, 3, 5, 2, 6)):
        angle = eighth * pi / 4
        yield radius * cos(angle), radius * sin(angle)
