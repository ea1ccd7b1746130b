"""What an example of a task is, and what every generator of examples promises."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from unmask.tasks.draw import Draw
    from unmask.tasks.scoring.verdict import Verdict

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

LEVELS = (1, 2, 3, 4)
SPLITS = ("development", "validation", "evaluation")
TRAINING = "training"


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
class Example(Draft):
    """One prompt of a task with all that is needed to score an answer to it."""

    id: str
    task: str
    split: str


@dataclass(frozen=True)
class OwnExample(Example):
    """A prompt of a task outside the suite, which brings its judge along."""

    judge: "Callable[[str, Example], Verdict]" = field(repr=False, compare=False)


class Generator(Protocol):
    """A module that makes examples of one constructed task.

    `generate` is pure: the same draws and level give the same draft on every machine, now and later. A change of
    what it returns comes with a new `VERSION`, which also moves the task to other draws.
    """

    NAME: str
    TITLE: str
    HORIZON: int
    VERSION: str

    def generate(self, draw: "Draw", level: int) -> Draft: ...


@dataclass(frozen=True, eq=False)
class Task:
    """One line of the paper's table of tasks (tab:task_details), and where its examples come from."""

    name: str
    title: str
    horizon: int
    """Tokens that a model has for its output."""
    source: str
    output: str
    utility: str
    counts: Mapping[str, int]
    """Examples per split."""
    version: str
    """Of the prompts; part of the ids of constructed tasks, so that predictions never meet another version."""
    generator: Generator | None = field(default=None, repr=False)
    """None for official tasks, whose examples are read from files."""
    twin: str = ""
    """A task whose draws and splits this one shares, number by number, so that the two can be compared in pairs."""
    members: Mapping[str, tuple[OwnExample, ...]] | None = field(default=None, repr=False)
    """By split, of a task outside the suite; see `own`."""

    @property
    def lineage(self) -> str:
        """The name that draws and splits are made with."""
        return self.twin or self.name


def canonical(value: Json) -> str:
    """The one spelling of a JSON value: keys sorted, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def digest(*parts: str) -> bytes:
    """A SHA-256 of several texts that does not confuse ("ab", "c") with ("a", "bc")."""
    return hashlib.sha256(canonical(list(parts)).encode("ascii")).digest()
