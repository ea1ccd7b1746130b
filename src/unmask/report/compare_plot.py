"""Utility against forwards, drawn with letters: what a terminal can show of the figure."""

import math
import string
from collections.abc import Sequence

from unmask.lab.compare_summary import MACRO, CompareSummary, PolicyLine
from unmask.report.compare_screen import shown_name

HEIGHT, NARROWEST, WIDEST = 10, 24, 72
_LETTERS = string.ascii_lowercase + string.ascii_uppercase
_EDGE = 8
"""Columns of the numbers beside the plot."""


def plot(summary: CompareSummary, width: int) -> list[str]:
    """Lines of a plot with a letter for each policy, and which letter is whose; nothing with fewer than two policies.

    It shows the mean over tasks, or the only task.
    """
    task = MACRO if summary.macro else next(iter(summary.shown), "")
    points = [
        line for line in summary.of(task) if math.isfinite(line.utility.value) and math.isfinite(line.forwards.value)
    ]
    if len(points) < 2 or len(points) > len(_LETTERS):
        return []
    columns = max(NARROWEST, min(WIDEST, width - _EDGE - 2))
    title = "mean over tasks" if task == MACRO else task
    return [f"utility against forwards per answer ({title})", *_drawn(points, columns), *_names(points, width)]


def _drawn(points: Sequence[PolicyLine], columns: int) -> list[str]:
    low, high = _range([line.utility.value for line in points])
    # Forwards begin at none: half the way is half the cost.
    most = max(line.forwards.value for line in points)
    grid = [[" "] * columns for _ in range(HEIGHT)]
    for letter, line in zip(_LETTERS, points, strict=False):
        row = round((high - line.utility.value) / (high - low) * (HEIGHT - 1))
        column = round(line.forwards.value / most * (columns - 1)) if most else 0
        # Two at one place stand side by side.
        free = [at for at in sorted(range(columns), key=lambda at: abs(at - column)) if grid[row][at] == " "]
        if free:
            grid[row][free[0]] = letter
    marks = {0: high, HEIGHT - 1: low}
    lines = [f"{marks[n]:>{_EDGE - 2}.3f} │" if n in marks else " " * (_EDGE - 1) + "│" for n in range(HEIGHT)]
    axis = f"0{f'{most:.1f} forwards':>{columns - 1}}"
    return [
        *(f"{head}{''.join(row)}".rstrip() for head, row in zip(lines, grid, strict=True)),
        " " * (_EDGE - 1) + "└" + "─" * columns,
        " " * _EDGE + axis,
    ]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Ends of an axis that are never the same."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (max(0.0, low - 0.05), min(1.0, high + 0.05))


def _names(points: Sequence[PolicyLine], width: int) -> list[str]:
    """Which letter is whose, as many on a line as fit."""
    names = [f"{letter} {shown_name(line)}" for letter, line in zip(_LETTERS, points, strict=False)]
    lines = [""]
    for name in names:
        longer = f"{lines[-1]}   {name}" if lines[-1] else name
        if len(longer) > width and lines[-1]:
            lines.append(name)
        else:
            lines[-1] = longer
    return lines
