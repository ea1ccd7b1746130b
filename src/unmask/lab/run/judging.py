"""What answers are worth: one way from tokens to text, utility and reason, for studies, gates and `compare`."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from unmask.errors import ConfigError
from unmask.request import TextModel
from unmask.tasks import Example, Verdict, score_all
from unmask.text import storable


class JudgedAnswer(NamedTuple):
    """An answer and what it is worth."""

    text: str
    utility: float
    """In [0, 1]; NaN if the evaluator could not tell."""
    reason: str
    """How the utility came about, or why there is none."""


class Judge:
    """Judges answers to the prompts of `members`, each once however often it is given: many decoders agree.

    `jobs` programs run side by side (HumanEval). `scoring` is "ours", or "paper": parts nobody asked for cost nothing.
    """

    def __init__(self, model: TextModel, members: Sequence[Example], jobs: int | None = None, scoring: str = "ours"):
        self.model, self.jobs, self.scoring = model, jobs, scoring
        self.members = {example.id: example for example in members}
        self._judged: dict[tuple[str, tuple[int, ...]], JudgedAnswer] = {}

    def judge(self, answers: Sequence[tuple[str, Sequence[int]]]) -> list[JudgedAnswer]:
        """Of each prompt's id and the tokens of an answer to it."""
        keys = [(prompt, tuple(tokens)) for prompt, tokens in answers]
        new = [key for key in dict.fromkeys(keys) if key not in self._judged]
        texts = [storable(self.model.codec.answer(list(tokens))) for _, tokens in new]
        pairs = [(text, self.members[prompt]) for text, (prompt, _) in zip(texts, new, strict=True)]
        for key, text, (utility, reason) in zip(new, texts, scores(pairs, self.jobs, self.scoring), strict=True):
            self._judged[key] = JudgedAnswer(text, utility, reason)
        return [self._judged[key] for key in keys]


def scores(pairs: Sequence[tuple[str, Example]], jobs: int | None, scoring: str = "ours") -> list[tuple[float, str]]:
    """Utility and reason of each answer; NaN where the evaluator is not there."""
    try:
        verdicts = score_all(pairs, jobs)
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
