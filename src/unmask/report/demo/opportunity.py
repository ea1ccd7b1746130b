"""What hindsight could add at one step, axis by axis: the study's first answer as one picture."""

from collections.abc import Sequence
from math import isfinite

from matplotlib.axes import Axes

from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings
from unmask.report.demo.themed import AXIS_COLOURS, FAINT, INK, PAPER, plain_axes, themed_svg
from unmask.report.trade_off import drawable

_LONGEST = 60
"""Characters of a task's name that fit."""


def opportunity_svg(findings: OpportunityFindings) -> str:
    """A line for each axis, task by task; empty where nothing was measured."""
    cells = _cells_with_estimates(findings)
    if not cells:
        return ""
    groups = dict.fromkeys(_group(findings, cell) for cell in cells)
    height = max(4.1, 0.9 + 0.3 * (len(cells) + len(groups)))
    return themed_svg(lambda fig: _draw(fig.subplots(), findings, cells), (6.4, height))


def opportunity_words(findings: OpportunityFindings) -> str:
    """For those who do not see the picture."""
    best = max(_cells_with_estimates(findings), key=lambda c: c.overall["delta"].value, default=None)
    if best is None:
        return "Nothing was measured."
    delta = best.overall["delta"]
    return (
        "What the best choice at one step would add to the utility, for each task and axis, with 95 % intervals. The "
        f"largest is {best.axis} on {best.task}: {delta.value:.3f}, from {delta.low:.3f} to {delta.high:.3f}."
    )


def _cells_with_estimates(findings: OpportunityFindings) -> list[OpportunityCell]:
    return [cell for cell in findings.cells if isfinite(cell.overall["delta"].value)]


def _group(findings: OpportunityFindings, cell: OpportunityCell) -> str:
    return drawable(cell.task if len(findings.models) == 1 else f"{cell.model}: {cell.task}", _LONGEST)


def _draw(ax: Axes, findings: OpportunityFindings, cells: Sequence[OpportunityCell]) -> None:
    place, names, groups = 0.0, {}, {}
    for cell in cells:
        group = _group(findings, cell)
        if group not in groups:
            groups[group] = place
            place += 1
        names[place] = drawable(cell.axis)
        _row(ax, cell, place)
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


def _row(ax: Axes, cell: OpportunityCell, y: float) -> None:
    delta, colour = cell.overall["delta"], AXIS_COLOURS.get(cell.axis, INK)
    if isfinite(delta.low):
        dashes = (0, (3, 2)) if cell.overall.unreliable else "solid"
        ax.plot([delta.low, delta.high], [y, y], color=colour, lw=1.8, ls=dashes, zorder=2)
    face = PAPER if cell.overall.unreliable else colour
    ax.plot([delta.value], [y], "o", ms=6.5, mfc=face, mec=colour, mew=1.5, zorder=3)
