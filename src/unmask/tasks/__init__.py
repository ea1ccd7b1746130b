"""The ten-task suite: prompts with one right answer each, and utilities in [0, 1]. Works without torch."""

from unmask.tasks.base import (
    LEVELS,
    SPLITS,
    TRAINING,
    Draft,
    Example,
    Extraction,
    Part,
    Task,
    TaskJudge,
    Verdict,
)
from unmask.tasks.official import ChangedData, MissingData
from unmask.tasks.scoring.explanation import explain
from unmask.tasks.suite import (
    LevelSummary,
    Scores,
    ScoreSummary,
    examples,
    export,
    listing,
    score,
    score_all,
    score_predictions,
    show,
    training,
)
from unmask.tasks.table import CONTROLS, TASKS, find

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
    "ScoreSummary",
    "Scores",
    "Task",
    "TaskJudge",
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
