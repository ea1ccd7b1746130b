"""The order in which each policy filled the same canvas."""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle

from unmask.lab.demo import DemoComparison, Reveal
from unmask.report.themed import FAINT, GRID, INK, PAPER, themed_svg
from unmask.report.trade_off import drawable

_ON_LIGHT, _ON_DARK = "#1f1f1f", "#fefefe"
"""Ink on cells, whose colours do not change with the theme."""


def order_svg(comparison: DemoComparison, labels: Sequence[str]) -> str:
    """`labels` in the order of the rows."""
    height = 0.7 + 0.27 * len(comparison.reveals)
    return themed_svg(lambda fig: _order(fig.subplots(), comparison, labels), (6.4, height))


def order_words(comparison: DemoComparison) -> str:
    """For those who do not see the picture."""
    return (
        f"The step at which each of {len(comparison.reveals)} policies filled each position of one canvas "
        f"({comparison.example}), and the utility of its answer."
    )


def _order(ax: Axes, comparison: DemoComparison, labels: Sequence[str]) -> None:
    reveals = sorted(comparison.reveals, key=lambda reveal: labels.index(reveal.label))
    length, last = len(reveals[0].step), max(max(reveal.step) for reveal in reveals)
    shades = matplotlib.colormaps["Blues"]
    for y, reveal in enumerate(reveals):
        for x, step in enumerate(reveal.step):
            colour = GRID if step == 0 else to_hex(shades(0.12 + 0.8 * (step - 1) / max(last - 1, 1)))
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=PAPER, lw=1.5))
            _write_cell(ax, x, y, reveal, colour)
        ax.text(length - 0.3, y, f"{reveal.utility:.2f}", va="center", size=8.5, color=INK)
    ax.set(xlim=(-0.5, length + 0.6), ylim=(len(reveals) - 0.5, -0.5))
    ax.set_yticks(range(len(reveals)), [drawable(reveal.label) for reveal in reveals], color=INK, size=9)
    prompt = sum(step == 0 for step in reveals[0].step)
    names = {(prompt - 1) / 2: "prompt", length + 0.05: "utility"}
    names |= {float(x): str(x - prompt + 1) for x in range(prompt, length)}
    ax.set_xticks(list(names), list(names.values()), color=FAINT, size=8.5)
    ax.set_xlabel("position in the answer; in the cell: the step that filled it", color=INK)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _write_cell(ax: Axes, x: int, y: int, reveal: Reveal, colour: str) -> None:
    step, again = reveal.step[x], reveal.remasked[x]
    if step == 0:
        ax.text(x, y, drawable(reveal.text[x]), ha="center", va="center", size=8.5, color=FAINT)
        return
    red, green, blue = to_rgb(colour)
    ink = _ON_DARK if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else _ON_LIGHT
    ax.text(x, y, f"{step}", ha="center", va="center", size=8.5, color=ink)
    if again:
        ax.text(x + 0.42, y - 0.38, "↺", ha="right", va="top", size=7.5, color=ink)
