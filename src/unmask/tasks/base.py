"""What an example of a task is, what a verdict on an answer to it is, and what every task declares."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from unmask.base.files import storable
from unmask.tasks.draw import Draw

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
DataDir: TypeAlias = str | os.PathLike[str] | None
"""Where the files of official tasks lie; None: where the environment says, else the hub."""

LEVELS = (1, 2, 3, 4)
SPLITS = ("development", "validation", "evaluation")
TRAINING = "training"

TEXT_LIMIT = 1 << 18
"""Characters. A longer output is no answer to any task here, whose horizons end at 256 tokens: it scores 0."""
TOO_LONG = "too long"
"""How the answer was found in such an output: not at all."""


# Examples


@dataclass(frozen=True)
class Draft:
    """What a generator returns: an example that has no id and no split yet."""

    prompt: str
    """All that the model is shown; asks for the final answer inside `<answer>...</answer>`."""
    target: str
    """The gold answer as it would stand between the answer tags."""
    parts: tuple[str, ...]
    """The K target parts of Eq. (eq:part_credit), in order."""
    constraints: Mapping[str, Json]
    """What the evaluator needs beyond the parts: a schema, a pool, tests. Plain JSON values."""
    level: int
    """Difficulty, 1 to 4."""


@dataclass(frozen=True)
class Numbered:
    """A draft with the id that its data set gives it."""

    id: str
    draft: Draft


@dataclass(frozen=True)
class Example(Draft):
    """One prompt of a task with all that is needed to score an answer to it."""

    id: str
    task: str
    split: str


@dataclass(frozen=True)
class OwnExample(Example):
    """A prompt of a task outside the suite: its task cannot be found by name, so it brings its judge along."""

    judge: "TaskJudge" = field(repr=False, compare=False)


# Verdicts


@dataclass(frozen=True)
class Extraction:
    """Every step from the output to what is compared."""

    raw: str
    """The output as it came."""
    how: str
    """Which rule found the answer."""
    extracted: str
    """The part of the output that the rule points at."""
    normalised: str
    """What is compared with the target."""


@dataclass(frozen=True)
class Part:
    """One of the K parts of a target and what became of it."""

    name: str
    expected: str
    given: str | None
    right: bool


SCORINGS = ("ours", "paper")
"""Whether a part that nobody asked for is one more, and wrong; or costs nothing, as in the paper's equation."""


@dataclass(frozen=True)
class Verdict:
    """What an output is worth, with every step that led there."""

    id: str
    utility: float | None
    """In [0, 1]; None if the evaluator could not tell, which is not the same as wrong."""
    reason: str
    extraction: Extraction
    parts: tuple[Part, ...]
    surplus: int = 0
    """Parts beyond those that were asked for, where the utility counts them."""

    @property
    def paper_utility(self) -> float | None:
        """Eq. (eq:part_credit) to the letter: divided by the K parts that were asked for, whatever else is there."""
        counts = self.utility and self.surplus
        return sum(part.right for part in self.parts) / len(self.parts) if counts else self.utility


# Tasks

Answers: TypeAlias = Sequence[tuple[str, Example]]
"""Outputs, each with the example it answers."""
Generator: TypeAlias = Callable[[Draw, int], Draft]
"""Makes an example of a level. Pure: the same draws and level give the same draft on every machine, now and later. A
change of what it returns comes with a new version of its task, which also moves the task to other draws."""
Reader: TypeAlias = Callable[[DataDir], Sequence[Numbered]]
"""Reads all examples of a file that somebody published, in the order of the file."""


@dataclass(frozen=True, eq=False)
class TaskJudge:
    """How answers to a task are scored."""

    name: str
    """What the paper's table calls the utility, or the rule of a task of one's own; studies record it."""
    one: Callable[[str, Example], Verdict]
    many: Callable[[Answers, int, Callable[[Verdict], None]], list[Verdict]] | None = None
    """For answers that take long and can be judged side by side, so many at a time."""

    def judge(self, text: str, example: Example) -> Verdict:
        """The verdict on one output. Never raises for the sake of the output, and takes time linear in it."""
        return self._too_long(text, example) or self.one(storable(text), example)

    def judge_all(self, answers: Answers, workers: int, on_done: Callable[[Verdict], None]) -> list[Verdict]:
        """Verdicts in the order of the answers; `on_done` hears of each as it falls."""
        verdicts: dict[int, Verdict] = {}
        for at, (text, example) in enumerate(answers):
            verdict = self._too_long(text, example) if self.many is not None else self.judge(text, example)
            if verdict is not None:
                verdicts[at] = verdict
                on_done(verdict)
        left = [at for at in range(len(answers)) if at not in verdicts]
        if self.many is not None and left:
            pairs = [(storable(answers[at][0]), answers[at][1]) for at in left]
            verdicts |= zip(left, self.many(pairs, workers, on_done), strict=True)
        return [verdicts[at] for at in range(len(answers))]

    def _too_long(self, text: str, example: Example) -> Verdict | None:
        if len(text) <= TEXT_LIMIT:
            return None
        return Verdict(
            example.id,
            0.0,
            f"{len(text)} characters; at most {TEXT_LIMIT} are read",
            Extraction(storable(text), TOO_LONG, "", ""),
            tuple(Part(str(k), part, None, False) for k, part in enumerate(example.parts, 1)),
        )


@dataclass(frozen=True, eq=False)
class Task:
    """One line of the paper's table of tasks (tab:task_details), and where its examples come from."""

    name: str
    title: str
    horizon: int
    """Tokens that a model has for its output."""
    source: str
    output: str
    judge: TaskJudge = field(repr=False)
    counts: Mapping[str, int]
    """Examples per split. An id's split follows from these numbers, so they stay."""
    version: str
    """Of prompts and scoring: results record it, and who changes what an answer is worth raises it."""
    generator: Generator | None = field(default=None, repr=False)
    """Of a constructed task; None for the others."""
    reader: Reader | None = field(default=None, repr=False)
    """Of an official task, whose examples are read from a file."""
    training_reader: Reader | None = field(default=None, repr=False)
    """Of an official task that comes with a file to train on."""
    twin: str = ""
    """A task whose draws and splits this one shares, number by number, so that the two can be compared in pairs."""
    members: Mapping[str, tuple[OwnExample, ...]] | None = field(default=None, repr=False)
    """By split, of a task outside the suite; see `own`."""
    drawn_as: str = ""
    """The version whose prompts these are, where only the scoring has changed since; empty if there is none."""

    @property
    def utility(self) -> str:
        """The name of the utility."""
        return self.judge.name

    @property
    def prompts_version(self) -> str:
        """Of the prompts alone; part of the ids of constructed tasks, so that predictions never meet other prompts."""
        return self.drawn_as or self.version

    @property
    def lineage(self) -> str:
        """The name that draws and splits are made with."""
        return self.twin or self.name


def split_counts(development: int, validation: int, evaluation: int) -> Mapping[str, int]:
    """How many examples each split has."""
    return MappingProxyType(dict(zip(SPLITS, (development, validation, evaluation), strict=True)))


# Hashes


def canonical(value: Json) -> str:
    """The one spelling of a JSON value: keys sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def digest(*parts: str) -> bytes:
    """A SHA-256 of several texts that does not confuse ("ab", "c") with ("a", "bc")."""
    return hashlib.sha256(canonical(list(parts)).encode("ascii")).digest()
