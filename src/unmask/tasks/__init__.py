"""The ten-task suite: prompts with one right answer each, and utilities in [0, 1]. Works without torch."""

from unmask.tasks.files import example_line, example_record, export_tasks, read_predictions, score_predictions
from unmask.tasks.official import ChangedData, MissingData
from unmask.tasks.own import check_scorer, is_own, open_task, own_task
from unmask.tasks.registry import CONTROLS, TASKS, find_task
from unmask.tasks.scorers import explain
from unmask.tasks.splits import constructed
from unmask.tasks.task import (
    LEVELS,
    SCORINGS,
    SPLITS,
    TRAINING,
    DataDir,
    Example,
    Extraction,
    Part,
    Scorer,
    Task,
    Verdict,
    score,
    score_all,
)

__all__ = [
    "CONTROLS",
    "LEVELS",
    "SCORINGS",
    "SPLITS",
    "TASKS",
    "TRAINING",
    "ChangedData",
    "DataDir",
    "Example",
    "Extraction",
    "MissingData",
    "Part",
    "Scorer",
    "Task",
    "Verdict",
    "check_scorer",
    "constructed",
    "example_line",
    "example_record",
    "explain",
    "export_tasks",
    "find_task",
    "is_own",
    "open_task",
    "own_task",
    "read_predictions",
    "score",
    "score_all",
    "score_predictions",
]
