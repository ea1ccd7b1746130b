"""TD07 Sparse Mask, and its control with the blanks side by side."""

from unmask.tasks.constructed.sparse.generator import CLUSTERED, TASK

__all__ = ["CLUSTERED", "TASK"]
