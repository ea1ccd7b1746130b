"""Figures of matplotlib as SVG that follows the reader's light or dark setting, and as files for a paper."""

import base64
import html
import io
import re
from collections.abc import Callable
from warnings import catch_warnings, filterwarnings

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from unmask.axes import AXES
from unmask.report.pages import asset

_USED = ("ink", "soft", "line", "rule", "paper", *AXES)


def _palette() -> dict[str, tuple[str, str]]:
    """Colours of every page by name, light and dark: a picture of its own cannot read the page's style."""
    # Print has a third block.
    themes = re.findall(r":root \{(.*?)\}", asset("base.css"), re.S)[:2]
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]+);", theme)) for theme in themes)
    return {name: (to_hex(light[name]), to_hex(dark[name])) for name in _USED}


PALETTE = _palette()
INK, FAINT, GRID, EDGE, PAPER = (PALETTE[name][0] for name in _USED[:5])
"""These, and the colours of axes, change with the theme; every other colour is shown as it is."""
AXIS_COLOURS = {axis: PALETTE[axis][0] for axis in AXES}
_NAMES = {light: f"--{name}" for name, (light, _) in PALETTE.items()}
_FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Verdana is as wide, so that labels which were placed with the one fit with the other."""


def _draw(draw: Callable[[Figure], None], size: tuple[float, float], image: str) -> bytes:
    """Draw a figure of so many inches; the same drawing gives the same bytes."""
    with (
        matplotlib.rc_context(
            {
                "font.size": 9.5,
                "font.family": "DejaVu Sans",
                "axes.edgecolor": FAINT,
                "text.color": INK,
                "axes.labelcolor": INK,
                # Names are shown as they are, whatever dollar signs they have.
                "text.parse_math": False,
                "svg.fonttype": "none",
                "svg.hashsalt": "unmask",
                "pdf.fonttype": 42,
            }
        ),
        catch_warnings(),
    ):
        # A letter that the font has not becomes a box; nobody has to be told.
        filterwarnings("ignore", message="Glyph")
        # A `Figure` of its own, not pyplot: the backend of whoever imports this stays as it is.
        fig = Figure(
            size,
            facecolor="none" if image == "svg" else "white",
            layout=ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.04),
        )
        draw(fig)
        out = io.BytesIO()
        dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
        fig.savefig(out, format=image, dpi=200, metadata=dates[image])
    return out.getvalue()


def themed_svg(draw: Callable[[Figure], None], size: tuple[float, float]) -> str:
    """Return an SVG with what `draw` puts on a figure, in the colours of the reader's light or dark setting."""
    return _apply_theme(_draw(draw, size, "svg").decode("utf-8"))


def save_figure(draw: Callable[[Figure], None], size: tuple[float, float], image: str) -> bytes:
    """Return the same figure for a paper, as pdf, svg or png on white."""
    return _draw(draw, size, image)


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


def _apply_theme(svg: str) -> str:
    """Colours as variables of the picture's own style, and fonts that other machines have, too."""
    light, dark = (" ".join(f"--{name}: {both[at]};" for name, both in PALETTE.items()) for at in (0, 1))
    style = f"<style>:root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}</style>"
    found = re.compile("|".join(_NAMES), re.IGNORECASE)
    coloured = found.sub(lambda match: f"var({_NAMES[match[0].lower()]})", svg)
    named = coloured.replace("'DejaVu Sans'", _FONTS)
    return re.sub(r"(<svg\b[^>]*>)", lambda match: f"{match[1]}\n{style}", named, count=1)
