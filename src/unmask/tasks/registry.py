"""The ten tasks, in the order of the paper's table, and their controls."""

from collections.abc import Mapping
from types import MappingProxyType

from unmask.base.errors import UnknownName
from unmask.tasks.constructed import carry, cloze, constrained_json, csv_cells, html_tags, sparse, unique_list
from unmask.tasks.official import GSM8K, HUMANEVAL, JSON_MODE_EVAL
from unmask.tasks.task import Task

TASKS: Mapping[str, Task] = MappingProxyType(
    {
        task.name: task
        for task in (
            csv_cells.TASK,
            HUMANEVAL,
            cloze.TASK,
            GSM8K,
            carry.TASK,
            sparse.TASK,
            JSON_MODE_EVAL,
            constrained_json.TASK,
            unique_list.TASK,
            html_tags.TASK,
        )
    }
)
CONTROLS: Mapping[str, Task] = MappingProxyType({sparse.CLUSTERED.name: sparse.CLUSTERED})
"""Diagnostic tasks outside the suite of ten."""


def find_task(name: str) -> Task:
    """Return a task or control of the suite by its name."""
    task = TASKS.get(name) or CONTROLS.get(name)
    if task is None:
        raise UnknownName("task", name, [*TASKS, *CONTROLS])
    return task
