"""Which prompts a task has, and which split each belongs to.

A constructed task has as many prompts as its split counts add up to. Prompt i is drawn from a key made of the task,
the version of its generator and i, so it is the same wherever and whenever it is made. Ids are then ranked by a hash
and the ranking is cut by count: development first, then validation, then evaluation. Examples of a split come in
the order of the ranking, so the first n of them are a fair sample.

Training prompts come from keys of another kind, without end, and never repeat a prompt of a split.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import count

from unmask.base.errors import ConfigError, ContractError, UnknownName, require
from unmask.tasks.base import LEVELS, SPLITS, TRAINING, DataDir, Draft, Example, Task, digest
from unmask.tasks.draw import Draw
from unmask.tasks.scoring.extract import squeeze
from unmask.tasks.table import TASKS

REDRAWS = 1000
"""How often a prompt that exists already is drawn again before the generator is called too narrow."""


def universe(task: Task, n: int) -> list[Draft]:
    """The first n drafts of a constructed task, no two with the same prompt."""
    seen: set[str] = set()
    drafts = []
    for index in range(n):
        draft = _fresh(task, "split", index, seen)
        seen.add(squeeze(draft.prompt))
        drafts.append(draft)
    return drafts


def _fresh(task: Task, kind: str, index: int, taken: "frozenset[str] | set[str]") -> Draft:
    """Draft number `index`, drawn again until its prompt is not taken."""
    assert task.generator is not None
    level = LEVELS[index % len(LEVELS)]
    for attempt in range(REDRAWS):
        key = digest("unmask", kind, task.lineage, task.prompts_version, str(index), str(attempt))
        draft = task.generator(Draw(key), level)
        if squeeze(draft.prompt) not in taken:
            return draft
    raise ContractError(
        f"{task.name} gave {REDRAWS} prompts in a row that exist already; allowed: new prompts without end; "
        "give its generator more words or frames"
    )


def cut(task: str, ids: Sequence[str], counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Rank ids by hash and cut the ranking by count."""
    require(
        sum(counts.values()) == len(ids),
        f"number of examples of {task}",
        len(ids),
        f"{sum(counts.values())}",
        "make the counts add up",
    )
    ranked = rank(task, ids)
    start = 0
    parts = {}
    for split in SPLITS:
        parts[split] = ranked[start : start + counts[split]]
        start += counts[split]
    return parts


def rank(task: str, ids: Iterable[str]) -> list[str]:
    """Ids in the order of a hash."""
    return sorted(ids, key=lambda id: (digest("rank", task, id), id))


def named(draft: Draft, id: str, task: str, split: str) -> Example:
    """A draft with its id, its task and its split."""
    return Example(**{field.name: getattr(draft, field.name) for field in fields(Draft)}, id=id, task=task, split=split)


def examples(task: Task, split: str, data_dir: DataDir = None) -> tuple[Example, ...]:
    """The examples of one split, in the order of the ranking."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if task.members is not None:
        return task.members[split]
    if task.reader:
        return _ranked(task, split, {numbered.id: numbered.draft for numbered in task.reader(data_dir)})
    return _drawn_split(task, split)


def _ranked(task: Task, split: str, drafts: Mapping[str, Draft]) -> tuple[Example, ...]:
    ids = cut(task.lineage, list(drafts), task.counts)[split]
    return tuple(named(drafts[id], id.replace(task.lineage, task.name, 1), task.name, split) for id in ids)


@lru_cache(maxsize=64)
def _drawn_split(task: Task, split: str) -> tuple[Example, ...]:
    return _ranked(task, split, _constructed(task))


@lru_cache(maxsize=32)
def _constructed(task: Task) -> Mapping[str, Draft]:
    drafts = universe(task, sum(task.counts.values()))
    return {f"{task.lineage}-v{task.prompts_version}-{index:04d}": draft for index, draft in enumerate(drafts)}


@lru_cache(maxsize=32)
def _taken(task: Task) -> frozenset[str]:
    return frozenset(squeeze(draft.prompt) for draft in _constructed(task).values())


def training(task: Task, start: int = 0, data_dir: DataDir = None) -> Iterator[Example]:
    """Training examples from number `start` on: without end for a constructed task, else those of its training file.

    Example i does not depend on `start`, so a run can be resumed or shared out. None has the prompt of an example of
    the three splits; two training examples may have the same prompt, though that is rare.
    """
    require(start >= 0, "start", start, "0 or more", "count from 0")
    if task.generator:
        return _drawn(task, start)
    if task.training_reader:
        rows = task.training_reader(data_dir)[start:]
        return iter([named(row.draft, row.id, task.name, TRAINING) for row in rows])
    trainable = " or ".join(["a constructed task", *(task.name for task in TASKS.values() if task.training_reader)])
    raise ConfigError(
        f"{task.name} has no training examples: its data set is for evaluation; "
        f"allowed: {trainable}; train on one of those"
    )


def _drawn(task: Task, start: int) -> Iterator[Example]:
    taken = _taken(task)
    for index in count(start):
        draft = _fresh(task, TRAINING, index, taken)
        yield named(draft, f"{task.name}-v{task.prompts_version}-{TRAINING}-{index}", task.name, TRAINING)
