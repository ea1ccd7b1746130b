"""The ten tasks, in the order of the paper's table."""

from collections.abc import Mapping
from types import MappingProxyType

from unmask.base.errors import UnknownName
from unmask.tasks.base import Task
from unmask.tasks.constructed import carry, cloze, constrained_json, csv_cells, html_tags, sparse, unique_list
from unmask.tasks.official import gsm8k, humaneval, json_mode_eval


def _by_name(*tasks: Task) -> Mapping[str, Task]:
    return MappingProxyType({task.name: task for task in tasks})


TASKS = _by_name(
    csv_cells.TASK,
    humaneval.TASK,
    cloze.TASK,
    gsm8k.TASK,
    carry.TASK,
    sparse.TASK,
    json_mode_eval.TASK,
    constrained_json.TASK,
    unique_list.TASK,
    html_tags.TASK,
)
CONTROLS = _by_name(sparse.CLUSTERED)
"""Diagnostic tasks outside the suite of ten."""


def find(name: str | Task) -> Task:
    """A task by its name; a task is itself, which is how tasks outside the suite get about."""
    if isinstance(name, Task):
        return name
    task = TASKS.get(name) or CONTROLS.get(name)
    if task is None:
        raise UnknownName("task", name, [*TASKS, *CONTROLS])
    return task
