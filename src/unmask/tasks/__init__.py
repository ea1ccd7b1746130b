"""The ten-task suite: prompts with one right answer each, and utilities in [0, 1]. Works without torch."""

from unmask.tasks import official, words
from unmask.tasks.draw import Draw, canonical, digest
from unmask.tasks.extract import squeeze
from unmask.tasks.files import example_line, example_record, export_tasks, score_predictions
from unmask.tasks.official import ChangedData, MissingData
from unmask.tasks.own import check_scorer, is_own, open_task, own_task
from unmask.tasks.registry import CONTROLS, TASKS, find_task
from unmask.tasks.scorers import explain, score_closing_tags, score_items, score_number, score_object, score_spans
from unmask.tasks.splits import constructed_task, rank_ids
from unmask.tasks.task import (
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
