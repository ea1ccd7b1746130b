"""Constrained JSON Fill."""

from unmask.tasks.constructed.constrained_json.generator import TASK

__all__ = ["TASK"]
