"""The prompts of a comparison, encoded once for all policies and cut into batches."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from unmask.api import LoadedModel, Request
from unmask.base.errors import ConfigError, SchemaError
from unmask.core import Denoiser
from unmask.lab.study.prompts import example_request, select_examples
from unmask.tasks import SPLITS, DataDir, Example, Task

MOST_ROWS = 256
MOST_LOGITS = {"cuda": 1 << 30, "cpu": 1 << 24}
"""Numbers in the logits of one forward: the default batch is cut to this."""


@dataclass(frozen=True)
class TaskRun:
    """What was decoded of one task."""

    task: str
    horizon: int
    steps: int
    prompts: int = 0
    """Decoded by every policy."""
    skipped: int = 0
    """Left out: their canvas is longer than the model's limit."""
    unavailable: str = ""
    """Why nothing was decoded; empty if something was."""


@dataclass(frozen=True)
class PromptBatch:
    """Rows that are decoded together, from the same start by every policy."""

    members: tuple[Example, ...]
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class PreparedTask:
    """One task's prompts."""

    run: TaskRun
    batches: tuple[PromptBatch, ...] = ()
    place: Mapping[str, int] = field(default_factory=dict)
    """Rank of each prompt in the split."""

    @property
    def members(self) -> list[Example]:
        return [example for batch in self.batches for example in batch.members]

    @property
    def rows(self) -> int:
        """Of the largest batch."""
        return max((len(batch.members) for batch in self.batches), default=0)


def prepare(
    model: LoadedModel,
    task: Task,
    *,
    steps: int,
    split: str,
    prompts: int | None = None,
    batch: int | None = None,
    data_dir: DataDir = None,
) -> PreparedTask:
    """The first `prompts` prompts of a split that fit into the model, `batch` of similar length at a time."""
    run = TaskRun(task.name, task.max_new_tokens, steps)
    try:
        members = select_examples(task, split, prompts=prompts, data_dir=data_dir)
    except (ConfigError, SchemaError) as error:
        return PreparedTask(replace(run, unavailable=str(error)))
    if not members:
        there = [other for other in SPLITS if select_examples(task, other, prompts=1, data_dir=data_dir)]
        lacking = f"it has no {split} prompts; allowed: {' or '.join(there)}; name it with --split"
        return PreparedTask(replace(run, unavailable=lacking))
    encoded = [(example_request(model, task, run.steps, example), example) for example in members]
    fits = [(r, e) for r, e in encoded if model.max_length is None or len(r.canvas) <= model.max_length]
    run = replace(run, prompts=len(fits), skipped=len(encoded) - len(fits))
    if not fits:
        lacking = f"no prompt leaves room for {task.max_new_tokens} tokens in {model.max_length}"
        remedy = "load a model with a longer context, or leave the task out"
        return PreparedTask(replace(run, unavailable=f"{lacking}; {remedy}"))
    size = batch or rows_at_once(model.denoiser, task.max_new_tokens)
    fits.sort(key=lambda pair: len(pair[0].canvas))
    parts = [fits[at : at + size] for at in range(0, len(fits), size)]
    batches = [PromptBatch(tuple(e for _, e in part), tuple(r for r, _ in part)) for part in parts]
    return PreparedTask(run, tuple(batches), {example.id: at for at, example in enumerate(members)})


def rows_at_once(denoiser: Denoiser, horizon: int) -> int:
    """Rows whose logits, all of the answer masked, stay within the limit."""
    limit = MOST_LOGITS.get(denoiser.device.type, MOST_LOGITS["cpu"])
    return max(1, min(MOST_ROWS, limit // (horizon * denoiser.vocabulary.size)))
