"""The ten-task suite: prompts with one right answer each, and utilities in [0, 1]. Works without torch."""

from unmask.tasks.base import LEVELS, SPLITS, TRAINING, Draft, Example, Task
from unmask.tasks.explanation import explain
from unmask.tasks.extract import Extraction
from unmask.tasks.official import ChangedData, MissingData
from unmask.tasks.suite import (
    LevelSummary,
    Scores,
    Summary,
    examples,
    export,
    listing,
    score_all,
    score_predictions,
    show,
    training,
)
from unmask.tasks.table import CONTROLS, TASKS, find
from unmask.tasks.utility import score
from unmask.tasks.verdict import Part, Verdict

__all__ = [
    "CONTROLS",
    "LEVELS",
    "SPLITS",
    "TASKS",
    "TRAINING",
    "ChangedData",
    "Draft",
    "Example",
    "Extraction",
    "LevelSummary",
    "MissingData",
    "Part",
    "Scores",
    "Summary",
    "Task",
    "Verdict",
    "examples",
    "explain",
    "export",
    "find",
    "listing",
    "score",
    "score_all",
    "score_predictions",
    "show",
    "training",
]
