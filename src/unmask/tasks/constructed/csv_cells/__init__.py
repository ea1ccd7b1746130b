"""CSV Missing Cells."""

from unmask.tasks.constructed.csv_cells.generator import KINDS, TASK

__all__ = ["KINDS", "TASK"]
