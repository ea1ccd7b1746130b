"""The comparison's figure: utility against forwards, and the order in which an example was filled in."""

import io
from collections.abc import Iterator, Sequence
from itertools import product
from math import cos, hypot, pi, sin

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from unmask.lab.demo import DemoComparison, Reveal
from unmask.report.demo.summary import DemoSummary, summarise

# Okabe and Ito's palette, which the colour-blind can tell apart.
COLOURS = {
    "llada": "#0072B2",
    "dream": "#E69F00",
    "fixed": "#009E73",
    "wino": "#D55E00",
    "core": "#CC79A7",
    "info-gain": "#56B4E9",
    "revised": "#6B6B6B",
}
BASELINE = "#555555"
Colour = str | tuple[float, float, float, float]
INK, FAINT, GRID = "#222222", "#767676", "#E6E6E6"


def figure(comparison: DemoComparison) -> bytes:
    """A PNG, the same bytes for the same comparison and version of matplotlib."""
    summaries = summarise(comparison.rows)
    with matplotlib.rc_context({"font.size": 10, "font.family": "DejaVu Sans", "axes.edgecolor": FAINT}):
        fig = Figure((11.6, 6.2), dpi=170, facecolor="white", layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        left, right = fig.subplots(1, 2, width_ratios=(1.35, 1))
        _trade_off(left, summaries)
        _order(right, comparison, [s.label for s in summaries if not s.baseline])
        _title(left, "What a forward buys", f"Mean of {_count(comparison)} problems. {_legend(summaries)}")
        _title(
            right,
            "When each position got its token",
            f"{comparison.example}: step of the last reveal; ↺ re-masked before",
        )
        fig.draw_without_rendering()
        # From here on nothing moves, or labels would be placed against a layout that is no more.
        fig.set_layout_engine("none")
        _place_labels(left, summaries)
        png = io.BytesIO()
        fig.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def _count(comparison: DemoComparison) -> int:
    return len({row.problem for row in comparison.rows})


def _legend(summaries: Sequence[DemoSummary]) -> str:
    drawn = [s.seeds for s in summaries if not s.deterministic]
    return f"Circles: exact. Diamonds: {max(drawn)} seeds, ± standard error." if drawn else "All exact."


def _title(ax: Axes, title: str, below: str) -> None:
    ax.set_title(title, loc="left", weight="bold", size=12, color=INK, pad=24)
    ax.annotate(below, (0, 1), (0, 9), "axes fraction", "offset points", size=9, color=FAINT)


def _trade_off(ax: Axes, summaries: Sequence[DemoSummary]) -> None:
    shown = _shown(summaries)
    xs, ys = _frontier(shown)
    ax.step(xs, ys, where="post", color="#BDBDBD", lw=1)
    ax.axhline(1.0, color=FAINT, lw=0.8, ls=(0, (4, 3)))
    ax.text(xs[-1], 1.004, "most probable answer ", ha="right", va="bottom", color=FAINT, size=9)
    for s in shown:
        colour = COLOURS.get(s.method, BASELINE)
        face, edge = ("white", colour) if s.baseline else (colour, "white")
        marker, size = ("o", 7) if s.deterministic else ("D", 6)
        if not s.deterministic:
            ax.errorbar([s.spent], [s.utility], yerr=s.stderr, color=colour, elinewidth=0.9, capsize=2, zorder=2)
        ax.plot([s.spent], [s.utility], marker=marker, ms=size, mfc=face, mec=edge, mew=0.8, zorder=3)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    low = min(s.utility - s.stderr for s in shown)
    ax.set(xlim=(0.85 * xs[0], xs[-1]), ylim=(low - 0.08 * (1 - low), 1 + 0.08 * (1 - low)))
    ax.set_xlabel("denoiser forwards per answer", color=INK)
    ax.set_ylabel("expected utility", color=INK)
    ax.grid(color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(which="both", colors=FAINT, length=0)


def _shown(summaries: Sequence[DemoSummary]) -> list[DemoSummary]:
    """Those with a place on the axis of forwards."""
    return [s for s in summaries if s.forwards is not None]


def _frontier(shown: Sequence[DemoSummary]) -> tuple[list[float], list[float]]:
    """Corners of the best utility that so many forwards buy, up to the right end of the axis."""
    best = sorted((s.spent, s.utility) for s in shown if s.frontier)
    end = 1.25 * max(s.spent for s in shown)
    return [*(x for x, _ in best), end], [*(y for _, y in best), best[-1][1]]


def _place_labels(ax: Axes, summaries: Sequence[DemoSummary]) -> None:
    """Beside each point, at the nearest place that covers no point, error bar, line or other label."""
    scale = ax.figure.dpi / 72
    shown = _shown(summaries)
    points = {s.label: _footprint(ax, s, scale) for s in shown}
    taken = [*points.values(), *_lines(ax, shown, scale), *(text.get_window_extent() for text in ax.texts)]
    frame = ax.get_window_extent()
    for s in sorted(shown, key=lambda s: -s.utility):
        colour = COLOURS.get(s.method, BASELINE)
        note = ax.annotate(s.label, (s.spent, s.utility), (0, 0), textcoords="offset points", size=9.5)
        note.set_color(_darker(colour))
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


def _darker(colour: str) -> str:
    """For type: the palette's light colours are hard to read on white."""
    red, green, blue = to_rgb(colour)
    return to_hex((0.72 * red, 0.72 * green, 0.72 * blue))


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
    """What the frontier covers: its level parts, and its rises."""
    xs, ys = _frontier(shown)
    boxes = []
    for i in range(len(xs) - 1):
        (left, low), (right, high) = ax.transData.transform([(xs[i], ys[i]), (xs[i + 1], ys[i + 1])])
        boxes.append(Bbox.from_extents(left, low - scale, right, low + scale))
        boxes.append(Bbox.from_extents(right - scale, low, right + scale, high))
    return boxes


def _footprint(ax: Axes, s: DemoSummary, scale: float) -> Bbox:
    """What a marker and its error bar cover, in pixels."""
    x, low = ax.transData.transform((s.spent, s.utility - s.stderr))
    _, high = ax.transData.transform((s.spent, s.utility + s.stderr))
    return Bbox.from_extents(x - 4 * scale, low - 4 * scale, x + 4 * scale, high + 4 * scale)


def _offsets() -> Iterator[tuple[float, float]]:
    """Places around a point, in points of type: right and left first, then around, then farther away."""
    for radius, eighth in product((9, 15, 22, 30, 40, 52, 66, 82), (0, 4, 1, 7, 3, 5, 2, 6)):
        angle = eighth * pi / 4
        yield radius * cos(angle), radius * sin(angle)


def _order(ax: Axes, comparison: DemoComparison, labels: Sequence[str]) -> None:
    reveals = sorted(comparison.reveals, key=lambda reveal: labels.index(reveal.label))
    length, last = len(reveals[0].step), max(max(reveal.step) for reveal in reveals)
    shades = matplotlib.colormaps["Blues"]
    for y, reveal in enumerate(reveals):
        for x, step in enumerate(reveal.step):
            colour: Colour = "#F2F2F2" if step == 0 else shades(0.12 + 0.8 * (step - 1) / max(last - 1, 1))
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", lw=1.5))
            _write_cell(ax, x, y, reveal, colour)
        ax.text(length - 0.3, y, f"{reveal.utility:.2f}", va="center", size=9, color=INK)
    ax.set(xlim=(-0.5, length + 0.6), ylim=(len(reveals) - 0.5, -0.5))
    ax.set_yticks(range(len(reveals)), [reveal.label for reveal in reveals], color=INK, size=9.5)
    prompt = sum(step == 0 for step in reveals[0].step)
    names = {(prompt - 1) / 2: "prompt", length + 0.05: "utility"}
    names |= {float(x): str(x - prompt + 1) for x in range(prompt, length)}
    ax.set_xticks(list(names), list(names.values()), color=FAINT, size=9)
    ax.set_xlabel("position in the answer", color=INK)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _write_cell(ax: Axes, x: int, y: int, reveal: Reveal, colour: Colour) -> None:
    step, again = reveal.step[x], reveal.remasked[x]
    if step == 0:
        ax.text(x, y, reveal.text[x], ha="center", va="center", size=9, color=FAINT)
        return
    red, green, blue = to_rgb(colour)
    ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else INK
    ax.text(x, y, f"{step}", ha="center", va="center", size=9, color=ink)
    if again:
        ax.text(x + 0.42, y - 0.38, "↺", ha="right", va="top", size=8, color=ink)
