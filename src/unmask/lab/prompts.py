"""Which prompts a run takes of a task: a stretch of one of its splits, or fresh ones that no split has."""

from itertools import islice

from unmask.base.errors import ConfigError
from unmask.tasks import DataDir, Example, Task

FRESH = "fresh"
"""A split without end: prompts of a constructed task that are in no split and that no training run draws."""
FRESH_FROM = 10**15
"""Where in the training stream they begin; training takes a stretch of 10**9 per seed."""
FRESH_PROMPTS = 500
"""How many of them, where nobody says."""


def prompts_from(
    task: Task, split: str, *, start: int = 0, prompts: int | None = None, data_dir: DataDir = None
) -> tuple[Example, ...]:
    """Up to `prompts` of them (default: all of the split, or 500 fresh ones), from the one at `start` on."""
    if split != FRESH:
        return tuple(task.examples(split, data_dir)[start : None if prompts is None else start + prompts])
    if task.generator is None:
        raise ConfigError(f"{task.name} has no {FRESH} prompts; allowed: constructed tasks; use one of its splits")
    return tuple(islice(task.training(FRESH_FROM + start), prompts or FRESH_PROMPTS))
