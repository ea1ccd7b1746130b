"""One record: what is given, what follows from it, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from unmask.tasks.draw import Json

Object = dict[str, Json]


@dataclass(frozen=True)
class JsonRecord:
    """One record: what the prompt tells, what follows, and how it is told."""

    given: Mapping[str, Json]
    gold: Mapping[str, Json]
    rules: tuple[str, ...]
    prose: str
    """The given fields as a sentence or two, without the rules."""
