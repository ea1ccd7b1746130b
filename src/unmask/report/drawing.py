"""Drawing with matplotlib: colours that follow the reader's light or dark setting, files for a paper, and panels of
quality against cost."""

import base64
import html
import io
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, cos, isfinite, pi, sin
from typing import Any
from warnings import catch_warnings, filterwarnings

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox

from unmask.axes import AXES
from unmask.report.pages import read_asset
from unmask.stats import Estimate

IMAGES = ("pdf", "svg", "png")
Draw = Callable[[Figure], None]
Size = tuple[float, float]
"""Width and height in inches."""


def _read_palette() -> dict[str, tuple[str, str]]:
    """Read the colours of every page by name, light and dark: an image cannot read the style of its page."""
    # The third block of the style sheet is for print.
    themes = re.findall(r":root \{(.*?)\}", read_asset("base.css"), re.DOTALL)[:2]
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]+);", theme)) for theme in themes)
    return {name: (to_hex(light[name]), to_hex(dark[name])) for name in ("ink", "soft", "line", "rule", "paper", *AXES)}


PALETTE = _read_palette()
INK, FAINT, GRID, EDGE, PAPER = (PALETTE[name][0] for name in ("ink", "soft", "line", "rule", "paper"))
"""These colours and those of the axes change with the theme; every other colour is shown as it is."""
AXIS_COLOURS = {axis: PALETTE[axis][0] for axis in AXES}
STYLE: Any = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": FAINT,
    "text.color": INK,
    "axes.labelcolor": INK,
    # Names are shown as they are, whatever dollar signs they hold.
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "unmask",
    "pdf.fonttype": 42,
}


def save_figure(draw: Draw, size: Size, image: str) -> bytes:
    """Return what `draw` puts on a figure, as pdf, svg or png; the same drawing gives the same bytes."""
    with matplotlib.rc_context(STYLE), catch_warnings():
        # A letter that the font lacks becomes a box.
        filterwarnings("ignore", message="Glyph")
        # A `Figure` of its own, without pyplot: the backend of whoever imports this stays as it is.
        fig = Figure(size, facecolor="none" if image == "svg" else "white")
        draw(fig)
        out = io.BytesIO()
        # Without dates and versions, so that equal numbers are equal bytes.
        absent = {"pdf": ("CreationDate",), "svg": ("Date", "Creator"), "png": ("Software",)}
        fig.savefig(out, format=image, dpi=200, metadata=dict.fromkeys(absent[image]))
    return out.getvalue()


def fit_layout(fig: Figure) -> Figure:
    """Let matplotlib make room for labels, which draws a figure twice; figures with margins of their own do without."""
    fig.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04))
    return fig


def themed_picture(draw: Draw, size: Size, words: str) -> str:
    """Return an image element that follows the reader's light or dark setting; `words` say what it shows."""
    svg = save_figure(draw, size, "svg").decode("utf-8")
    light, dark = (" ".join(f"--{name}: {both[at]};" for name, both in PALETTE.items()) for at in (0, 1))
    style = f"<style>:root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}</style>"
    names = {colours[0]: f"var(--{name})" for name, colours in PALETTE.items()}
    svg = re.sub("|".join(names), lambda found: names[found[0].lower()], svg, flags=re.IGNORECASE)
    # Verdana is as wide, so that labels which were placed with the one font fit with the other.
    svg = svg.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    svg = re.sub(r"(<svg\b[^>]*>)", lambda found: f"{found[1]}\n{style}", svg, count=1)
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{data}">'


def plain_axes(ax: Axes) -> None:
    """Leave only what is needed to read values."""
    ax.grid(color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(which="both", colors=FAINT, length=0)


def drawable(text: str, longest: int = 30) -> str:
    """Return a name as a font can draw it and an SVG can hold it."""
    drawn = "".join("?" if unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn", "Cf") else c for c in text)
    return drawn if len(drawn) <= longest else f"{drawn[: longest - 1]}…"


# Quality against cost

FRONT, OTHER, OWN = AXIS_COLOURS["score"], "#8a8a8a", "#d55e00"
_PANEL, _ROW = (5.0, 3.9), 0.2
"""Width and height of a panel and height of a line of the legend, in inches."""
_MARK = 5.5
"""Size of a mark, in points of type."""


@dataclass(frozen=True)
class CostPoint:
    """One policy on a panel of quality against cost."""

    policy: str
    cost: float
    utility: Estimate
    front: bool = False
    """Whether no other policy has at least this utility for no more cost."""
    sure: bool = False
    """Whether it is on the front beyond noise."""
    reference: bool = False
    own: bool = False
    """Whether it is a method of the user's own, which is marked with a star."""

    @property
    def has_name(self) -> bool:
        """Whether the name stands beside the point, where others have numbers."""
        return self.front or self.reference or self.own

    @property
    def is_drawable(self) -> bool:
        return isfinite(self.cost) and self.cost > 0 and isfinite(self.utility.value)


def trade_off(
    panels: Sequence[tuple[str, Sequence[CostPoint]]],
    policies: Sequence[str],
    title: str,
    cost: str,
    notes: Sequence[str],
) -> tuple[Draw, Size]:
    """Return a drawing of utility against cost and its size: a panel for each task, with its title and points.

    Policies on the front are named beside their points; the others have numbers, which the foot of the figure explains
    in the order of `policies`.
    """
    numbers = {policy: str(at) for at, policy in enumerate(policies, start=1)}
    columns = 2 if len(panels) in (2, 4) else min(3, max(len(panels), 1))
    rows = ceil(len(panels) / columns)
    width = max(columns, 2) * _PANEL[0]
    per_line = max(1, int(width / 2.5))
    foot = _ROW * (ceil(len(policies) / per_line) + len(notes) + 2)
    height = 0.6 + rows * _PANEL[1] + foot

    def draw(fig: Figure) -> None:
        margins = {"left": 0.65 / width, "right": 1 - 0.2 / width}
        margins |= {"bottom": (foot + 0.55) / height, "top": 1 - 0.95 / height, "wspace": 0.2, "hspace": 0.42}
        grid = fig.add_gridspec(max(rows, 1), columns, **margins)
        for at, (heading, points) in enumerate(panels):
            ax = fig.add_subplot(grid[at // columns, at % columns])
            ax.set_title(drawable(heading, 70), loc="left", size=9.5, weight="bold")
            draw_cost_panel(ax, points, numbers, cost)
        texts = [(0.35, height - 0.3, title, 12, INK)]
        for at, policy in enumerate(policies):
            x, y = 0.35 + (width - 0.5) / per_line * (at % per_line), foot - _ROW * (at // per_line + 1)
            texts.append((x, y, f"{at + 1:>2}  {drawable(policy)}", 8, INK))
        texts += [(0.35, 0.15 + _ROW * at, note, 8, FAINT) for at, note in enumerate(reversed(notes))]
        for x, y, text, points_high, colour in texts:
            fig.text(x / width, y / height, drawable(text, 200), size=points_high, color=colour, va="center")

    return draw, (width, height)


def draw_cost_panel(
    ax: Axes, points: Sequence[CostPoint], numbers: dict[str, str] | None, cost: str, utility: str = "utility"
) -> None:
    """Draw points with intervals, and the Pareto front as a step line. Without `numbers` every point has its name."""
    points = [point for point in points if point.is_drawable]
    if not points:
        ax.text(0.5, 0.5, "no numbers", ha="center", color=FAINT, transform=ax.transAxes)
        ax.set_axis_off()
        return
    costs = [point.cost for point in points]
    ends = [y for p in points for y in (p.utility.value, p.utility.low, p.utility.high) if isfinite(y)]
    low, high = min(*ends, max(ends) - 0.1), max(ends)
    span = max(max(costs) / min(costs), 1.2)
    ax.set_xscale("log")
    ax.set(xlim=(min(costs) / span**0.2, max(costs) * span**0.22))
    ax.set(ylim=(low - 0.1 * (high - low), high + 0.14 * (high - low)))
    ax.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if span < 60 else (1,), numticks=12))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(cost, size=8.5)
    ax.set_ylabel(utility, size=8.5)
    plain_axes(ax)
    ax.tick_params(which="both", labelsize=8)
    best = sorted({(point.cost, point.utility.value) for point in points if point.front})
    corners = [*best, (ax.get_xlim()[1], best[-1][1])] if best else []
    ax.step([x for x, _ in corners], [y for _, y in corners], where="post", color=FRONT, lw=1.1, alpha=0.55, zorder=2)
    for point in points:
        _draw_point(ax, point)
    _place_labels(ax, points, numbers, corners)


def _draw_point(ax: Axes, point: CostPoint) -> None:
    value, colour = point.utility, INK if point.reference else FRONT if point.front else OTHER
    marker, size = ("D", _MARK - 0.5) if point.reference else ("o", _MARK if point.front else _MARK - 1)
    if point.own:
        colour, marker, size = OWN, "*", _MARK + 4
    if isfinite(value.low):
        ax.plot([point.cost] * 2, [value.low, value.high], color=colour, lw=0.9, alpha=0.5, zorder=1)
    face = colour if point.sure or point.own else PAPER
    ax.plot([point.cost], [value.value], marker, ms=size, mfc=face, mec=colour, mew=1.1, zorder=4 + point.reference)


def _place_labels(
    ax: Axes, points: Sequence[CostPoint], numbers: dict[str, str] | None, corners: Sequence[tuple[float, float]]
) -> None:
    """Put names and numbers where they cover no point and no other label, or else where they cover the least.

    Points that lie on each other share a label. A label far from its point gets a line to it.
    """
    scale = ax.figure.dpi / 72
    places = {point.policy: ax.transData.transform((point.cost, point.utility.value)) for point in points}
    half = 0.55 * _MARK * scale
    taken = [Bbox.from_extents(x - half, y - half, x + half, y + half) for x, y in places.values()]
    lines = []
    for (left, low), (right, high) in pairwise(corners):
        (x0, y0), (x1, y1) = ax.transData.transform([(left, low), (right, high)])
        lines += [Bbox.from_extents(x0, y0 - scale, x1, y0 + scale), Bbox.from_extents(x1 - scale, y0, x1 + scale, y1)]
    named = {point.policy: numbers is None or point.has_name for point in points}
    groups: list[list[CostPoint]] = []
    for point in points:
        for group in groups:
            distance = abs(places[group[0].policy] - places[point.policy]).max()
            if named[group[0].policy] == named[point.policy] and distance < 2.5 * scale:
                group.append(point)
                break
        else:
            groups.append([point])
    for group in sorted(groups, key=lambda group: (not named[group[0].policy], -group[0].utility.value)):
        first, has_name = group[0], named[group[0].policy]
        text = "\n".join(drawable(point.policy) for point in group)
        if not has_name and numbers is not None:
            text = ",".join(numbers[point.policy] for point in group)
        colour = OWN if any(p.own for p in group) else INK if first.reference else FRONT if first.front else FAINT
        at = (first.cost, first.utility.value)
        note = ax.annotate(
            text, at, (0, 0), textcoords="offset points", size=8 if has_name else 7, color=colour, zorder=5
        )
        tries = []
        for index, offset in enumerate(_offsets()):
            box, frame = _move_label(note, offset), ax.get_window_extent()
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 + 12 and frame.y0 <= box.y0 and box.y1 <= frame.y1 + 4
            faults = 100 * (not inside) + 10 * sum(box.overlaps(other) for other in taken)
            faults += min(sum(box.overlaps(other) for other in lines), 3)
            # Distance is a fault, too: every circle outwards counts as a quarter of a crossed line.
            tries.append((faults + 0.25 * (index // 8), index, offset))
        _, index, offset = min(tries)
        taken.append(_move_label(note, offset).padded(1.8 * scale))
        if index >= 16:
            arrow = {"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 0, "shrinkB": 2}
            ax.annotate("", at, offset, textcoords="offset points", arrowprops=arrow)


def _move_label(note: Any, offset: tuple[float, float]) -> Bbox:
    """Move a label to an offset from its point, in points of type, and return the box that it covers there."""
    x, y = offset
    note.set_position(offset)
    note.set(ha="left" if x > 1 else "right" if x < -1 else "center")
    note.set(va="center" if abs(y) < 4 else "bottom" if y > 0 else "top")
    box: Bbox = note.get_window_extent()
    return box


def _offsets() -> Iterator[tuple[float, float]]:
    """Yield places around a point: above left first, where the front leaves room, then farther away."""
    for radius, eighth in product((5, 8, 13, 19, 27, 36, 48, 62), (3, 2, 1, 0, 4, 7, 6, 5)):
        yield radius * cos(eighth * pi / 4), radius * sin(eighth * pi / 4)
