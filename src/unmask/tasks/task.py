"""A task is three functions: `examples` of a split, a `training` stream, and `score`, from an output to a verdict."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from unmask.base.errors import ConfigError, UnknownName, require
from unmask.base.files import storable
from unmask.tasks.draw import Draw, Json

DataDir: TypeAlias = str | os.PathLike[str] | None
"""Folder with the files of official tasks. None: the folder that UNMASK_DATA names, else the hub."""

LEVELS = (1, 2, 3, 4)
SPLITS = ("development", "validation", "evaluation")
TRAINING = "training"

SCORINGS = ("ours", "paper")
"""Ways to count surplus parts of an answer. ours: as wrong parts; paper: not at all, as in the paper's equation."""

TEXT_LIMIT = 1 << 18
"""Longest output that is read, in characters; a longer one scores 0. Our answers have at most 256 tokens."""
TOO_LONG = "too long"


@dataclass(frozen=True)
class Example:
    """A prompt with all that is needed to score an answer to it."""

    prompt: str
    """All that the model is shown. Prompts of the ten tasks ask for the answer inside `<answer>...</answer>`."""
    target: str
    """The right answer as it would stand between the answer tags."""
    parts: tuple[str, ...]
    """The K parts of the target, in order, that are scored one by one (Eq. (eq:part_credit))."""
    constraints: Mapping[str, Json]
    """Plain JSON values that the scorer needs besides the parts: a schema, tests. Generators add notes for readers."""
    level: int
    """Difficulty, 1 to 4."""
    id: str = ""
    task: str = ""
    split: str = ""
    has_blanks: bool = False
    """Whether the prompt is a text with blanks to fill (`[MASK]`, `[MASK*5]`) rather than a request. The output then
    holds the text that was filled in, with one line for each run of blanks."""
    scorer: "Scorer | None" = field(default=None, repr=False, compare=False)
    """Scorer of its task. An example of a user's own task is scored where nobody can look that task up by name. A
    generator leaves this, id, task and split empty; the task fills them in."""


@dataclass(frozen=True)
class Extraction:
    """The answer found in an output, before and after normalisation."""

    raw: str
    how: str
    """Name of the rule that found the answer."""
    extracted: str
    """The part of the output that the rule found."""
    normalised: str


@dataclass(frozen=True)
class Part:
    """One part of a target, and the answer given for it."""

    name: str
    expected: str
    given: str | None
    right: bool


@dataclass(frozen=True)
class Verdict:
    """Utility of an output, with the reason and the steps that led to it."""

    id: str
    utility: float | None
    """In [0, 1]; None if the scorer could not tell, which is not the same as wrong."""
    reason: str
    extraction: Extraction
    parts: tuple[Part, ...]
    surplus: int = 0
    """Number of parts beyond those that were asked for, where the utility counts them as wrong."""

    @property
    def paper_utility(self) -> float | None:
        """Utility by the paper's Eq. (eq:part_credit), which ignores surplus parts."""
        if not (self.utility and self.surplus):
            return self.utility
        return sum(part.right for part in self.parts) / len(self.parts)


Answers: TypeAlias = Sequence[tuple[str, Example]]
OnVerdict: TypeAlias = Callable[[Verdict], object]
Generator: TypeAlias = Callable[[Draw, int], Example]
"""Function that makes an example of a level. Equal draws give the same example on every machine, now and later."""


@dataclass(frozen=True, eq=False)
class Scorer:
    """The rule that turns an output into a verdict. Its name is recorded by studies and listings."""

    name: str
    score: Callable[[str, Example], Verdict]
    """Scores one output of bounded length. It never raises because of the output, and takes time linear in it."""
    score_many: Callable[[Answers, int, OnVerdict], list[Verdict]] | None = None
    """Scores many outputs with several workers side by side; only scorers that take long have it."""


@dataclass(frozen=True, eq=False)
class Task:
    """One row of the paper's table of tasks (tab:task_details), or a task of a user's own.

    `unmask.tasks.splits.constructed_task`, `unmask.tasks.official` and `unmask.tasks.own_task` make them.
    """

    name: str
    title: str
    max_new_tokens: int
    """Longest output, in tokens."""
    source: str
    output: str
    scorer: Scorer = field(repr=False)
    counts: Mapping[str, int]
    """Examples per split. The split of an example follows from these numbers, so they must stay."""
    version: str
    """Version of prompts and scoring, which results record. Raise it when the worth of any answer changes."""
    prompts_version: str
    """Version of the prompts alone, part of the ids of constructed tasks: predictions never meet other prompts."""
    make_splits: Callable[[DataDir], Mapping[str, tuple[Example, ...]]] = field(repr=False)
    make_training: Callable[[int, DataDir], Iterator[Example]] | None = field(default=None, repr=False)
    generator: Generator | None = field(default=None, repr=False)
    """Function that makes new examples without end; only constructed tasks have one."""

    def examples(self, split: str = "evaluation", data_dir: DataDir = None) -> tuple[Example, ...]:
        """Return all examples of a split, ordered by a hash of their ids, so that the first n are a fair sample."""
        if split not in SPLITS:
            raise UnknownName("split", split, SPLITS)
        return self.make_splits(data_dir)[split]

    def training(self, start: int = 0, data_dir: DataDir = None) -> Iterator[Example]:
        """Iterate over training examples from number `start` on. None of them has the prompt of a split.

        A constructed task never runs out of them; an official task has those of its training file. Example i does not
        depend on `start`, so that a training run can be resumed or shared out.
        """
        require(start >= 0, "start", start, "0 or more", "count from 0")
        if self.make_training is None:
            raise ConfigError(
                f"{self.name} has no training examples: its prompts are for evaluation; allowed: a constructed task or "
                "one with a training file; train on one of those"
            )
        return self.make_training(start, data_dir)

    def score(self, text: str, example: Example) -> Verdict:
        """Score an output for one of this task's examples."""
        return score(text, example)


def score(text: str, example: Example) -> Verdict:
    """Score one output with the scorer of its example. Never raises because of the output."""
    (verdict,) = score_all([(text, example)], workers=1)
    return verdict


def score_all(
    answers: Answers, workers: int | None = None, on_verdict: OnVerdict = lambda verdict: None
) -> list[Verdict]:
    """Score outputs, each with its example, and return the verdicts in the same order.

    Programs run side by side, `workers` at a time (default: one per core). `on_verdict` is called
    with each verdict as soon as it is known.
    """
    workers = workers if workers is not None else os.cpu_count() or 1
    require(workers >= 1, "jobs", workers, "1 or more", "use one at least")
    verdicts: dict[int, Verdict] = {}
    slow: dict[Scorer, list[int]] = {}
    for at, (text, example) in enumerate(answers):
        scorer = example.scorer
        if scorer is None:
            raise ConfigError("an example has no scorer; allowed: examples that a task returned; call Task.examples")
        if len(text) <= TEXT_LIMIT and scorer.score_many is not None:
            # Set aside and scored together: programs run side by side only if they are asked for in one call.
            slow.setdefault(scorer, []).append(at)
            continue
        verdicts[at] = (
            scorer.score(storable(text), example) if len(text) <= TEXT_LIMIT else _score_too_long(text, example)
        )
        on_verdict(verdicts[at])
    for scorer, places in slow.items():
        assert scorer.score_many is not None
        pairs = [(storable(text), example) for text, example in (answers[at] for at in places)]
        verdicts |= zip(places, scorer.score_many(pairs, workers, on_verdict), strict=True)
    return [verdicts[at] for at in range(len(answers))]


def _score_too_long(text: str, example: Example) -> Verdict:
    reason = f"{len(text)} characters; at most {TEXT_LIMIT} are read"
    parts = tuple(Part(str(k), part, None, False) for k, part in enumerate(example.parts, 1))
    return Verdict(example.id, 0.0, reason, Extraction(storable(text), TOO_LONG, "", ""), parts)


def split_counts(development: int, validation: int, evaluation: int) -> Mapping[str, int]:
    """Make the table of the number of examples in each split."""
    return MappingProxyType(dict(zip(SPLITS, (development, validation, evaluation), strict=True)))
