"""What answers are worth: one way from tokens to text, utility and reason, for studies, gates and `compare`."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from unmask.base.errors import ConfigError, UnknownName
from unmask.base.files import storable
from unmask.tasks import Example, Verdict, score_all


class JudgedAnswer(NamedTuple):
    """An answer and what it is worth."""

    text: str
    utility: float
    """In [0, 1]; NaN if the evaluator could not tell."""
    reason: str
    """How the utility came about, or why there is none."""


class Speaks(Protocol):
    """What turns the tokens of an answer into its text."""

    def answer(self, tokens: Sequence[int], /) -> str: ...


class Speaker(Protocol):
    """A model, as far as a judge needs it."""

    @property
    def codec(self) -> Speaks: ...


@dataclass(frozen=True)
class AnswerTexts:
    """Answers that were turned into text where the model is."""

    texts: dict[tuple[int, ...], str]

    @property
    def codec(self) -> "AnswerTexts":
        return self

    def answer(self, tokens: Sequence[int], /) -> str:
        """The text of tokens that are known."""
        return self.texts[tuple(tokens)]


def texts_of(model: Speaker, answers: Iterable[Sequence[int]]) -> AnswerTexts:
    """Of answers of the model, each once."""
    return AnswerTexts({tokens: storable(model.codec.answer(list(tokens))) for tokens in set(map(tuple, answers))})


class Judge:
    """Judges answers to the prompts of `members`, each once however often it is given: many decoders agree.

    `jobs` programs run side by side (HumanEval). `scoring` is "ours", or "paper": parts nobody asked for cost nothing.
    Whoever scores elsewhere gives the function that does.
    """

    def __init__(
        self,
        model: "Speaker",
        members: Sequence[Example],
        jobs: int | None = None,
        scoring: str = "ours",
        score: "Score | None" = None,
    ):
        self.model, self.jobs, self.scoring, self.score = model, jobs, scoring, score
        self.members = {example.id: example for example in members}
        self._judged: dict[tuple[str, tuple[int, ...]], JudgedAnswer] = {}

    def judge(self, answers: Sequence[tuple[str, Sequence[int]]]) -> list[JudgedAnswer]:
        """Of each prompt's id and the tokens of an answer to it."""
        keys = [(prompt, tuple(tokens)) for prompt, tokens in answers]
        new = [key for key in dict.fromkeys(keys) if key not in self._judged]
        texts = [storable(self.model.codec.answer(list(tokens))) for _, tokens in new]
        pairs = [(text, self.members[prompt]) for text, (prompt, _) in zip(texts, new, strict=True)]
        judged = (self.score or scores)(pairs, self.jobs, self.scoring)
        for key, text, (utility, reason) in zip(new, texts, judged, strict=True):
            self._judged[key] = JudgedAnswer(text, utility, reason)
        return [self._judged[key] for key in keys]


Score: TypeAlias = Callable[[Sequence[tuple[str, Example]], int | None, str], Sequence[tuple[float, str]]]
"""Utility and reason of each answer, as `scores` gives them."""


def scores(pairs: Sequence[tuple[str, Example]], jobs: int | None, scoring: str = "ours") -> list[tuple[float, str]]:
    """Utility and reason of each answer; NaN where the evaluator is not there."""
    try:
        verdicts = score_all(pairs, jobs)
    except UnknownName:
        # A misspelt setting of the sandbox: no answer was judged, and none could be.
        raise
    except ConfigError as error:
        # Something that scoring needs is not installed. Answers it does not take to judge get their verdict.
        return [_score(pair, error, scoring) for pair in pairs]
    return [(_worth(verdict, scoring), verdict.reason) for verdict in verdicts]


def _score(pair: tuple[str, Example], error: ConfigError, scoring: str) -> tuple[float, str]:
    try:
        (verdict,) = score_all([pair], 1)
    except ConfigError:
        return math.nan, str(error)
    return _worth(verdict, scoring), verdict.reason


def _worth(verdict: Verdict, scoring: str) -> float:
    utility = verdict.paper_utility if scoring == "paper" else verdict.utility
    return math.nan if utility is None else utility
