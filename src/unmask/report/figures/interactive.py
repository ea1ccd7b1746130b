"""Figures for a page: plain values that plotly draws in the browser. No plotly is needed to make them.

A colour is a name of the page's style, such as `--score`, or with per cent of opacity `--score/14`; the page's script
puts in what it is on light and on dark. Text from outside is escaped: plotly reads some markup in what it shows.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import isfinite
from textwrap import wrap
from typing import Any

from unmask.report.figures.chart import Chart, ChartLine, Dot, HeatMap, Lines, Whiskers
from unmask.report.formats import number

_ROW, _GROUP = 15, 0.7
"""Pixels of a row; rows of room between groups."""
_LONGEST = 60
"""Letters of a line that is shown beside a point."""
_LEGEND = 7
"""Curves that a legend has room for; who points at one is told its name anyway."""


def panel(chart: Chart, command: Sequence[str]) -> dict[str, Any]:
    """What plotly takes: traces and layout. Who points at a number is shown the command that made it."""
    if isinstance(chart, Whiskers):
        traces, layout = _whiskers(chart, command)
    elif isinstance(chart, HeatMap):
        traces, layout = _heat(chart, command)
    else:
        traces, layout = list(_lines(chart, command)), _frame(chart)
    return {"title": chart.title, "data": traces, "layout": layout}


def _text(text: str) -> str:
    """Text that plotly shows as it is: no markup, and no place for a value."""
    return escape(text, quote=False).replace("%{", "%&#123;")


def _hover(lines: Sequence[str], command: Sequence[str]) -> str:
    """Lines that are short enough to stand beside a point."""
    short = (part for line in (*lines, *command) for part in wrap(line, _LONGEST, break_long_words=False) or [""])
    return "<br>".join(_text(part) for part in short)


def _number(value: float) -> float | None:
    """Six digits are more than a picture shows; JSON has no NaN."""
    return float(f"{value:.6g}") if isfinite(value) else None


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [_number(value) for value in values]


# Dots with intervals


def _whiskers(chart: Whiskers, command: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    placed, ticks, y = [], [], 0.0
    for name, dots in chart.rows:
        ticks.append((y + (len(dots) - 1) / 2, name))
        placed += [(y + at, dot) for at, dot in enumerate(dots)]
        y += len(dots) + _GROUP
    series = dict.fromkeys(dot.series for _, dot in placed)
    traces = [_series(name, [one for one in placed if one[1].series == name], command) for name in series]
    traces += [_key(name, shape) for name, shape in chart.shapes.items()]
    layout = {
        "height": round(max(150, 90 + _ROW * y)),
        "showlegend": len(traces) > 1,
        "xaxis": {"title": {"text": _text(chart.x)}, "zeroline": True, "range": _range([dot for _, dot in placed])},
        "yaxis": {
            "tickvals": [at for at, _ in ticks],
            "ticktext": [_text(name) for _, name in ticks],
            "range": [y - _GROUP, -1],
            "zeroline": False,
            "showgrid": False,
        },
    }
    return traces, layout


def _range(dots: Sequence[Dot]) -> list[float]:
    """Wide enough for all intervals and zero, with some room at both sides."""
    ends = [end for dot in dots for end in (dot.value.value, dot.value.low, dot.value.high) if isfinite(end)]
    low, high = min(0.0, *ends, 0.0), max(0.0, *ends, 0.0)
    room = 0.04 * (high - low) or 0.01
    return [float(f"{end:.6g}") for end in (low - room, high + room)]


def _series(name: str, placed: Sequence[tuple[float, Dot]], command: Sequence[str]) -> dict[str, Any]:
    dots = [dot for _, dot in placed]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": _text(name),
        "x": _numbers([dot.value.value for dot in dots]),
        "y": [y for y, _ in placed],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": _numbers([dot.value.high - dot.value.value for dot in dots]),
            "arrayminus": _numbers([dot.value.value - dot.value.low for dot in dots]),
            "color": dots[0].colour,
            "thickness": 1.6,
            "width": 3,
        },
        "marker": {
            "color": [dot.colour for dot in dots],
            "symbol": [f"{dot.shape}-open" if dot.doubt else dot.shape for dot in dots],
            "size": 9,
            "line": {"width": 1.6},
        },
        "hoverinfo": "text",
        "hovertext": [_hover([dot.about[0], number(dot.value), *dot.about[1:]], command) for dot in dots],
    }


def _key(name: str, shape: str) -> dict[str, Any]:
    """What a shape means: in the legend alone."""
    look = {"symbol": shape, "color": "--soft", "size": 9}
    return {"type": "scatter", "mode": "markers", "name": _text(name), "x": [None], "y": [None], "marker": look}


# Curves


def _lines(chart: Lines, command: Sequence[str]) -> Iterator[dict[str, Any]]:
    for line in chart.lines:
        whiskers = bool(line.shape) and bool(line.low)
        if line.low and not whiskers:
            yield _band(line)
        if line.width:
            yield _line(chart, line, whiskers, command)


def _band(line: ChartLine) -> dict[str, Any]:
    """Forth along the upper end and back along the lower."""
    ends = [(x, low, high) for x, low, high in zip(line.x, line.low, line.high, strict=True) if isfinite(low + high)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _text(line.name),
        "x": _numbers([x for x, _, _ in ends] + [x for x, _, _ in reversed(ends)]),
        "y": _numbers([high for _, _, high in ends] + [low for _, low, _ in reversed(ends)]),
        "fill": "toself",
        "fillcolor": f"{line.colour}/14",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _line(chart: Lines, line: ChartLine, whiskers: bool, command: Sequence[str]) -> dict[str, Any]:
    mode = "+".join(["lines"] * line.joined + ["markers"] * bool(line.shape))
    x = "%{x:.0%}: " if chart.x_share else "" if chart.ticks else "%{x:.0f}: "
    y = "%{y:.1%}" if chart.y_share else "%{y:.4f}"
    drawn: dict[str, Any] = {
        "type": "scatter",
        "mode": mode,
        "name": _text(line.name),
        "x": _numbers(line.x),
        "y": _numbers(line.y),
        "line": {"color": line.colour, "width": line.width, "dash": line.dash},
        "hovertemplate": f"{x}{y}<br>{_hover(line.about, command)}<extra></extra>",
    }
    if line.shape:
        shape = f"{line.shape}-open" if line.doubt else line.shape
        drawn["marker"] = {"color": line.colour, "symbol": shape, "size": 8, "line": {"width": 1.6}}
    if whiskers:
        up = [high - y for high, y in zip(line.high, line.y, strict=True)]
        down = [y - low for y, low in zip(line.y, line.low, strict=True)]
        ends = {"array": _numbers(up), "arrayminus": _numbers(down)}
        drawn["error_y"] = {"type": "data", "symmetric": False, **ends, "color": line.colour, "width": 3}
        shown = [
            _hover([*line.about[:1], f"{y:.4f} [{low:.4f}, {high:.4f}]", *line.about[1:]], command)
            for y, low, high in zip(line.y, line.low, line.high, strict=True)
        ]
        drawn |= {"hovertext": shown, "hoverinfo": "text", "hovertemplate": None}
    return drawn


def _frame(chart: Lines) -> dict[str, Any]:
    x: dict[str, Any] = {"title": {"text": _text(chart.x)}, "zeroline": False}
    y: dict[str, Any] = {"title": {"text": _text(chart.y)}, "zeroline": True}
    if chart.ticks:
        x |= {"tickvals": list(range(len(chart.ticks))), "ticktext": [_text(name) for name in chart.ticks]}
        x |= {"range": [-0.5, len(chart.ticks) - 0.5]}
    if chart.x_share:
        x |= {"tickformat": ".0%", "range": [0, 1]}
    if chart.y_share:
        y |= {"tickformat": ".0%"}
    shown = [line for line in chart.lines if line.width]
    legend = 1 < len(shown) <= _LEGEND
    return {
        "height": 300 + 40 * legend,
        "showlegend": legend,
        "xaxis": x,
        "yaxis": y,
        "shapes": [_across(level) for level in chart.levels.values()],
        "annotations": [*(_named(name, level) for name, level in chart.levels.items()), *_remark(chart.remark)],
    }


def _across(level: float) -> dict[str, Any]:
    """A line from side to side."""
    look = {"color": "--ink", "dash": "dash", "width": 1.2}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level, "line": look}


def _named(name: str, level: float) -> dict[str, Any]:
    """Its name, at its right end."""
    where = {"xref": "paper", "x": 1, "xanchor": "right", "y": level, "yanchor": "bottom"}
    return {"text": _text(name), **where, "showarrow": False}


def _remark(text: str) -> list[dict[str, Any]]:
    where = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    return [{"text": _text(text), **where, "showarrow": False}] if text else []


# Maps


def _heat(chart: HeatMap, command: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    known = [[None if value is None else _number(value.value) for value in row] for row in chart.values]
    most = max((abs(z) for row in known for z in row if z is not None), default=0.0) or 1.0
    hover = [
        [
            _hover([*about[:1], number(value), *about[1:]], command) if value is not None else ""
            for value, about in zip(values, abouts, strict=True)
        ]
        for values, abouts in zip(chart.values, chart.about, strict=True)
    ]
    trace = {
        "type": "heatmap",
        "x": [_text(name) for name in chart.columns],
        "y": [_text(name) for name in chart.rows],
        "z": known,
        "zmin": -most,
        "zmax": most,
        "colorscale": [[0, "--region"], [0.5, "--paper"], [1, "--score"]],
        "showscale": False,
        "text": [["" if z is None else f"{z:.3f}" for z in row] for row in known],
        "texttemplate": "%{text}",
        "hovertext": hover,
        "hoverinfo": "text",
        "xgap": 2,
        "ygap": 2,
    }
    layout = {
        "height": round(110 + 30 * len(chart.rows)),
        "showlegend": False,
        "xaxis": {"type": "category", "showgrid": False},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
    }
    return [trace], layout
