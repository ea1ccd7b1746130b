"""The ten-task suite: prompts with one right answer each, and utilities in [0, 1]. Works without torch."""

from unmask.tasks import official, words
from unmask.tasks.draw import Draw, canonical_json, digest
from unmask.tasks.extract import normalise_spaces
from unmask.tasks.files import example_values, export_tasks, score_predictions, write_example_line
from unmask.tasks.official import ChangedData, MissingData
from unmask.tasks.own import check_scorer, is_file_or_code, open_task, own_task
from unmask.tasks.registry import CONTROLS, TASKS, find_task
from unmask.tasks.scorers import (
    explain_verdict,
    score_closing_tags,
    score_items,
    score_json_object,
    score_number,
    score_spans,
)
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
