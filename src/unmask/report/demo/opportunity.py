"""What hindsight could add at one step, axis by axis: the study's first answer as one picture."""

import pandas as pd
from matplotlib.axes import Axes

from unmask.lab.analysis import Findings
from unmask.lab.analysis.load import MEAN
from unmask.report.study_tables import opportunity_settings
from unmask.report.themed import AXIS_COLOURS, FAINT, INK, PAPER, plain_axes, themed_svg
from unmask.report.trade_off import drawable

_LONGEST = 60
"""Characters of a task's name that fit."""


def opportunity_svg(findings: Findings) -> str:
    """Draw a line for each axis, task by task; empty where nothing was measured."""
    cells = _measured(findings)
    if cells.empty:
        return ""
    height = max(4.1, 0.9 + 0.3 * (len(cells) + cells["group"].nunique()))
    return themed_svg(lambda fig: _draw(fig.subplots(), cells), (6.4, height))


def opportunity_words(findings: Findings) -> str:
    """Describe the picture for those who do not see it."""
    cells = _measured(findings)
    if cells.empty:
        return "Nothing was measured."
    best = cells.loc[cells["delta"].idxmax()]
    return (
        "What the best choice at one step would add to the utility, for each task and axis, with 95 % intervals. The "
        f"largest is {best['axis']} on {best['task']}: {best['delta']:.3f}, from {best['delta_low']:.3f} to "
        f"{best['delta_high']:.3f}."
    )


def _measured(findings: Findings) -> pd.DataFrame:
    cells = opportunity_settings(findings)
    if "delta" not in cells:
        return cells[:0]
    cells = cells[(cells["task"] != MEAN) & cells["delta"].notna()]
    several = cells["model"].nunique() > 1
    names = cells["model"] + ": " + cells["task"] if several else cells["task"]
    return cells.assign(group=[drawable(name, _LONGEST) for name in names])


def _draw(ax: Axes, cells: pd.DataFrame) -> None:
    place, names, groups = 0.0, {}, {}
    for cell in cells.itertuples():
        if cell.group not in groups:
            groups[cell.group] = place
            place += 1
        names[place] = drawable(cell.axis)
        colour = AXIS_COLOURS.get(cell.axis, INK)
        if pd.notna(cell.delta_low):
            dashes = (0, (3, 2)) if cell.unreliable else "solid"
            ax.plot([cell.delta_low, cell.delta_high], [place, place], color=colour, lw=1.8, ls=dashes, zorder=2)
        face = PAPER if cell.unreliable else colour
        ax.plot([cell.delta], [place], "o", ms=6.5, mfc=face, mec=colour, mew=1.5, zorder=3)
        place += 1
    ax.axvline(0, color=FAINT, lw=1)
    ax.set_yticks(list(names), list(names.values()), size=9)
    for group, at in groups.items():
        ax.text(0.01, at, group, transform=ax.get_yaxis_transform(), weight="bold", color=INK, va="center", size=9)
    ax.set_ylim(place - 0.4, -0.6)
    ax.set_xlabel("gain in utility from the best choice at one step, 95 % interval", color=INK)
    plain_axes(ax)
    ax.yaxis.grid(False)
    ax.tick_params(axis="y", labelcolor=INK)
