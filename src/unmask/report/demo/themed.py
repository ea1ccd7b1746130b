"""Matplotlib's figures as SVG that follows the reader's light or dark setting, whatever page they stand on."""

import base64
import html
import io
import re
from collections.abc import Callable

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, FAINT, GRID, EDGE, PAPER = "#222222", "#6f6f6f", "#e6e6e6", "#bdbdbd", "#ffffff"
_DARK = {INK: "#e6e6e6", FAINT: "#a3a8ae", GRID: "#2e3237", EDGE: "#5a6067", PAPER: "#15171a"}
"""These five change with the theme; every other colour is shown as it is."""

AXIS_COLOURS = {"score": "#0072b2", "region": "#c24e00", "cardinality": "#00795a", "commitment": "#a23f7c"}
_DARK_AXES = {"score": "#56b4e9", "region": "#f0883e", "cardinality": "#2fc99b", "commitment": "#e08fbd"}
"""As in `look/base.css`, which a picture of its own cannot read."""

_DARK |= {colour: _DARK_AXES[axis] for axis, colour in AXIS_COLOURS.items()}
_NAMES = {colour: f"--c{at}" for at, colour in enumerate(_DARK)}
_FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Verdana is as wide, so that labels which were placed with the one fit with the other."""


def themed_svg(draw: Callable[[Figure], None], size: tuple[float, float]) -> str:
    """An SVG of so many inches with what `draw` puts on the figure; the same drawing, the same text."""
    with matplotlib.rc_context(
        {
            "font.size": 9.5,
            "font.family": "DejaVu Sans",
            "axes.edgecolor": FAINT,
            # Names are shown as they are, whatever dollar signs they have.
            "text.parse_math": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "unmask",
        }
    ):
        fig = Figure(size, facecolor="none", layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04))
        draw(fig)
        out = io.StringIO()
        fig.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _themed(out.getvalue())


def picture(svg: str, words: str) -> str:
    """An image inside the page; `words` say what it shows."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{data}">'


def plain_axes(ax: Axes) -> None:
    """Only what is needed to read values."""
    ax.grid(color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(which="both", colors=FAINT, length=0)


def _themed(svg: str) -> str:
    """Colours as variables of the picture's own style, and fonts that other machines have, too."""
    light = " ".join(f"{name}: {colour};" for colour, name in _NAMES.items())
    dark = " ".join(f"{_NAMES[colour]}: {other};" for colour, other in _DARK.items())
    style = f"<style>:root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}</style>"
    found = re.compile("|".join(_NAMES), re.IGNORECASE)
    coloured = found.sub(lambda match: f"var({_NAMES[match[0].lower()]})", svg)
    named = coloured.replace("'DejaVu Sans'", _FONTS)
    return re.sub(r"(<svg\b[^>]*>)", lambda match: f"{match[1]}\n{style}", named, count=1)
