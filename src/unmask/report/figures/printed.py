"""Figures for a paper: the same values as on the page, drawn by matplotlib as PDF, SVG or PNG in the paper's layout.

As wide as a text column of the paper, type of its size, no title inside: a paper has captions.
"""

import io
import re
from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any
from warnings import catch_warnings, filterwarnings

from unmask.look.page import asset
from unmask.report.figures.chart import Chart, ChartLine, HeatMap, Lines, ReportFigure, Whiskers

IMAGES = ("pdf", "svg", "png")
_WIDTH, _ROW, _PANEL = 5.5, 0.13, 1.9
"""Inches: of the paper's text; of a row of dots; of a panel's height."""
_COLUMNS, _ENTRIES = 3, 8
"""Panels side by side; names that a legend has room for."""
_SHAPES = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v", "hexagon": "h"}
_DASHES = {"solid": "-", "dot": ":", "dash": "--"}
_STYLE: Any = {
    "font.size": 7,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "unmask",
}


def printed(figure: ReportFigure, image: str = "pdf") -> bytes:
    """The figure as a file; the same bytes for the same numbers and version of matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE), catch_warnings():
        # A letter that the font has not becomes a box; nobody has to be told.
        filterwarnings("ignore", message="Glyph")
        columns = 2 if len(figure.panels) == 4 else min(_COLUMNS, len(figure.panels))
        rows = ceil(len(figure.panels) / columns)
        heights = [_height(chart, columns) for chart in figure.panels]
        height = sum(max(heights[k * columns : (k + 1) * columns]) for k in range(rows))
        fig = Figure((_WIDTH, height), facecolor="white", layout="constrained")
        for at, chart in enumerate(figure.panels):
            ax = fig.add_subplot(rows, columns, at + 1)
            _draw(ax, chart, columns)
            ax.set_title(chart.title, size=7, loc="left", parse_math=False)
        fig.draw_without_rendering()  # what is around panels gets its room in two rounds
        out = io.BytesIO()
        dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
        fig.savefig(out, format=image, dpi=200, metadata=dates[image])
    return out.getvalue()


def _height(chart: Chart, columns: int) -> float:
    if isinstance(chart, Whiskers):
        return 0.8 + _ROW * sum(len(dots) + 0.7 for _, dots in chart.rows)
    return 0.7 + 0.22 * len(chart.rows) if isinstance(chart, HeatMap) else _PANEL + 0.17 * _legend(chart, columns)


def _draw(ax: Any, chart: Chart, columns: int) -> None:
    if isinstance(chart, Whiskers):
        _whiskers(ax, chart)
    elif isinstance(chart, HeatMap):
        _heat(ax, chart)
    else:
        _lines(ax, chart, columns)


def _whiskers(ax: Any, chart: Whiskers) -> None:
    y, ticks, shown = 0.0, [], set()
    for name, dots in chart.rows:
        ticks.append((y + (len(dots) - 1) / 2, name))
        for dot in dots:
            colour, value = _colour(dot.colour), dot.value
            ax.plot([value.low, value.high], [y, y], color=colour, lw=0.9, solid_capstyle="butt")
            look = {"mfc": "white" if dot.doubt else colour, "mec": colour, "ms": 3.6, "mew": 0.8}
            label = "" if dot.series in shown else dot.series
            ax.plot([value.value], [y], _SHAPES[dot.shape], label=_plain(label) or None, **look)
            shown.add(dot.series)
            y += 1
        y += 0.7
    for name, shape in chart.shapes.items():
        ax.plot([], [], _SHAPES[shape], label=_plain(name), color=_colour("--soft"), ms=3.6)
    ax.axvline(0, color=_colour("--rule"), lw=0.6, zorder=0)
    ax.set_yticks([at for at, _ in ticks], [_plain(name) for _, name in ticks])
    ax.set_ylim(y - 0.2, -0.8)
    ax.set_xlabel(_plain(chart.x))
    if len(shown) + len(chart.shapes) > 1:
        ax.figure.legend(loc="outside upper center", ncols=4)


def _lines(ax: Any, chart: Lines, columns: int) -> None:
    for line in chart.lines:
        _line(ax, line)
    for name, level in chart.levels.items():
        ax.axhline(level, color=_colour("--ink"), lw=0.7, ls="--")
        ax.annotate(_plain(name), (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    if chart.remark:
        ax.annotate(_plain(chart.remark), (0.5, 0.5), xycoords="axes fraction", ha="center")
    if chart.ticks:
        ax.set_xticks(range(len(chart.ticks)), [_plain(name) for name in chart.ticks])
    percent = lambda share, _: f"{share:.0%}"  # noqa: E731 - a formatter takes a place, too
    if chart.x_share:
        ax.set_xlim(0, 1)
        ax.xaxis.set_major_formatter(percent)
    if chart.y_share:
        ax.yaxis.set_major_formatter(percent)
    ax.set_xlabel(_plain(chart.x))
    ax.set_ylabel(_plain(chart.y))
    if _legend(chart, columns):
        beside = {"ncols": _beside(columns), "handlelength": 1.6, "columnspacing": 1, "borderpad": 0}
        ax.legend(loc="upper left", bbox_to_anchor=(0, -0.32), **beside)


def _beside(columns: int) -> int:
    """Names side by side under a panel."""
    return {1: 4, 2: 2}.get(columns, 1)


def _legend(chart: Lines, columns: int) -> int:
    """Lines of the legend; none where there is nothing to tell apart, or too much."""
    drawn = sum(bool(line.width) for line in chart.lines)
    return ceil(drawn / _beside(columns)) if 1 < drawn <= _ENTRIES else 0


def _line(ax: Any, line: ChartLine) -> None:
    colour = _colour(line.colour)
    if line.low and not line.shape:
        ax.fill_between(line.x, line.low, line.high, color=colour, alpha=0.14, lw=0)
    if line.low and line.shape:
        ax.vlines(line.x, line.low, line.high, color=colour, lw=0.8)
    if line.width:
        look = {"mfc": "white" if line.doubt else colour, "mec": colour, "ms": 3.4, "mew": 0.8}
        ls = _DASHES[line.dash] if line.joined else ""
        marker = _SHAPES.get(line.shape, "")
        ax.plot(
            line.x, line.y, color=colour, lw=0.55 * line.width, ls=ls, marker=marker, label=_plain(line.name), **look
        )


def _heat(ax: Any, chart: HeatMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    values = [[float("nan") if value is None else value.value for value in row] for row in chart.values]
    most = max((abs(z) for row in values for z in row if z == z), default=0.0) or 1.0
    colours = LinearSegmentedColormap.from_list("unmask", [_colour("--region"), "#ffffff", _colour("--score")])
    ax.imshow(values, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    for y, row in enumerate(values):
        for x, z in enumerate(row):
            if z == z:
                ink = "white" if abs(z) > 0.6 * most else "black"
                ax.text(x, y, f"{z:.3f}", ha="center", va="center", color=ink, size=6.5)
    ax.set_xticks(range(len(chart.columns)), [_plain(name) for name in chart.columns])
    ax.set_yticks(range(len(chart.rows)), [_plain(name) for name in chart.rows])


def _plain(text: str) -> str:
    """Not as mathematics."""
    return text.replace("$", r"\$")


@cache
def _light() -> dict[str, str]:
    """The page's colours on white paper: of each name the first."""
    style: Sequence[tuple[str, str]] = re.findall(
        r"(--[\w-]+): (#[0-9a-f]{3,6})\b", asset("base.css") + asset("report.css", "unmask.report")
    )
    return dict(reversed(style))


def _colour(name: str) -> str:
    return _light()[name]
