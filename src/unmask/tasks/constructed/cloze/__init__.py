"""Multi-Span Cloze."""

from unmask.tasks.constructed.cloze.generator import LINKS, TASK

__all__ = ["LINKS", "TASK"]
