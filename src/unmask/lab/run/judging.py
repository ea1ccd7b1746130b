"""What answers are worth: one way from tokens to text, utility and reason, for studies, gates and `compare`."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol, TypeAlias

from unmask.api import Request
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
    """Answers that were turned into text where the model is, by the prompt's id and the answer's tokens."""

    texts: dict[tuple[str, tuple[int, ...]], str]


def texts_of(model: Speaker, answers: Iterable[tuple[Request, Sequence[int]]]) -> AnswerTexts:
    """Spell answers of the model, each once."""
    distinct = {(request.id, tuple(tokens)): request for request, tokens in answers}
    return AnswerTexts({key: spell_answer(model, request, key[1]) for key, request in distinct.items()})


def spell_answer(model: Speaker, request: Request | None, tokens: Sequence[int]) -> str:
    """Write the tokens of an answer as text. Of a text with several runs of blanks, one line for each run."""
    answer = model.codec.answer
    if request is None or all(not given for given in request.given[slice(*request.answer)]):
        return storable(answer(list(tokens)))
    runs = groupby(zip(request.given[slice(*request.answer)], tokens, strict=True), key=lambda pair: pair[0])
    fills = [answer([token for _, token in run]) for given, run in runs if not given]
    return storable("\n".join(fill.replace("\n", " ") for fill in fills))


class Judge:
    """Judges answers to the prompts of `members`, each once however often it is given: many decoders agree.

    `jobs` programs run side by side (HumanEval). `scoring` is "ours", or "paper": parts nobody asked for cost nothing.
    Whoever scores elsewhere gives the function that does. `requests` are needed for texts with blanks: they say which
    tokens were filled in.
    """

    def __init__(
        self,
        model: "Speaker | AnswerTexts",
        members: Sequence[Example],
        jobs: int | None = None,
        scoring: str = "ours",
        score: "Score | None" = None,
        requests: Iterable[Request] = (),
    ):
        self.model, self.jobs, self.scoring, self.score = model, jobs, scoring, score
        self.members = {example.id: example for example in members}
        self.requests = {request.id: request for request in requests}
        self._judged: dict[tuple[str, tuple[int, ...]], JudgedAnswer] = {}

    def judge(self, answers: Sequence[tuple[str, Sequence[int]]]) -> list[JudgedAnswer]:
        """Of each prompt's id and the tokens of an answer to it."""
        keys = [(prompt, tuple(tokens)) for prompt, tokens in answers]
        new = [key for key in dict.fromkeys(keys) if key not in self._judged]
        texts = [self._text(key) for key in new]
        pairs = [(text, self.members[prompt]) for text, (prompt, _) in zip(texts, new, strict=True)]
        judged = (self.score or scores)(pairs, self.jobs, self.scoring)
        for key, text, (utility, reason) in zip(new, texts, judged, strict=True):
            self._judged[key] = JudgedAnswer(text, utility, reason)
        return [self._judged[key] for key in keys]

    def _text(self, key: tuple[str, tuple[int, ...]]) -> str:
        if isinstance(self.model, AnswerTexts):
            return self.model.texts[key]
        return spell_answer(self.model, self.requests.get(key[0]), key[1])


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
