"""The ten tasks, in the order of the paper's table."""

from types import MappingProxyType

from unmask.errors import UnknownName
from unmask.tasks.base import SPLITS, Generator, Task
from unmask.tasks.constructed import carry, cloze, constrained_json, csv_cells, html_tags, sparse, unique_list
from unmask.tasks.official import VERSIONS


def _counts(development: int, validation: int, evaluation: int) -> MappingProxyType[str, int]:
    return MappingProxyType(dict(zip(SPLITS, (development, validation, evaluation), strict=True)))


# Examples per split: development, validation, evaluation. An id's split follows from these numbers, so they stay.
CONSTRUCTED = _counts(100, 100, 500)
COUNTS = {
    "gsm8k": _counts(100, 200, 1019),
    "humaneval": _counts(24, 40, 100),
    "json-mode-eval": _counts(16, 16, 68),
}


def _constructed(generator: Generator, output: str, utility: str, twin: str = "") -> Task:
    g = generator
    return Task(g.NAME, g.TITLE, g.HORIZON, "constructed", output, utility, CONSTRUCTED, g.VERSION, g, twin)


def _official(name: str, title: str, horizon: int, source: str, output: str, utility: str) -> Task:
    return Task(name, title, horizon, source, output, utility, COUNTS[name], VERSIONS[name])


TASKS = MappingProxyType(
    {
        task.name: task
        for task in (
            _constructed(csv_cells, "one cell", "binary"),
            _official("humaneval", "HumanEval", 256, "official", "Python completion", "test pass"),
            _constructed(cloze, "indexed spans", "partial"),
            _official("gsm8k", "GSM8K", 256, "official", "numeric answer", "binary"),
            _constructed(carry, "three carry bits", "partial"),
            _constructed(sparse, "three spans", "partial"),
            _official("json-mode-eval", "JSON Mode Eval", 128, "public", "schema JSON", "field credit"),
            _constructed(constrained_json, "constrained JSON", "partial"),
            _constructed(unique_list, "ordered list", "partial"),
            _constructed(html_tags, "closing-tag suffix", "exact/partial"),
        )
    }
)

CONTROLS = MappingProxyType(
    {
        task.name: task
        for task in (_constructed(sparse.CLUSTERED, "three spans", "partial", twin=sparse.CLUSTERED.SAME_DRAWS_AS),)
    }
)
"""Diagnostic tasks outside the suite of ten."""


def find(name: str | Task) -> Task:
    """A task by its name; a task is itself, which is how tasks outside the suite get about."""
    if isinstance(name, Task):
        return name
    task = TASKS.get(name) or CONTROLS.get(name)
    if task is None:
        raise UnknownName("task", name, [*TASKS, *CONTROLS])
    return task
