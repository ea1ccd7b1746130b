"""Prompts in, utilities out: the examples that a run takes of each task, their requests, and the scores of answers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import NamedTuple, Protocol, TypeAlias

import pandas as pd

from unmask.api import LoadedModel, Request, infill_request, prompt_request
from unmask.base.errors import ConfigError, SchemaError, UnknownName, require
from unmask.base.files import storable
from unmask.lab.study.config import FRESH, StudyConfig
from unmask.tasks import DataDir, Example, Task, Verdict, score_all

FRESH_FROM = 10**15
"""Index in the training stream where fresh prompts begin; training takes a stretch of 10**9 per seed."""
FRESH_PROMPTS = 500
"""Number of fresh prompts where none is given."""


def select_examples(
    task: Task, split: str, *, start: int = 0, prompts: int | None = None, data_dir: DataDir = None
) -> tuple[Example, ...]:
    """Return up to `prompts` examples of a split from the one at `start` on; by default all, or 500 fresh ones."""
    if split != FRESH:
        return tuple(task.examples(split, data_dir)[start : None if prompts is None else start + prompts])
    if task.generator is None:
        raise ConfigError(f"{task.name} has no {FRESH} prompts; allowed: constructed tasks; use one of its splits")
    return tuple(islice(task.training(FRESH_FROM + start), prompts or FRESH_PROMPTS))


def load_examples(
    study: StudyConfig, data_dir: DataDir = None
) -> tuple[dict[str, dict[str, list[Example]]], dict[str, str]]:
    """Read the examples of a study by task and role; and say which tasks have no data on this machine, and why."""
    tasks: dict[str, dict[str, list[Example]]] = {}
    unavailable = {}
    for name in study.tasks:
        task, roles = study.task(name), {}
        try:
            for role, part in study.splits.items():
                roles[role] = list(
                    select_examples(task, part.split, start=part.start, prompts=part.prompts, data_dir=data_dir)
                )
                # "Up to" so many: JSON Mode Eval has fewer prompts than others.
                require(bool(roles[role]), f"{part.split} prompts of {name}", 0, "one or more", "start earlier")
        except (ConfigError, SchemaError) as error:
            unavailable[name] = str(error)
            continue
        # What is chosen on a prompt must not be measured on it, so no prompt may stand in two roles.
        seen: dict[str, str] = {}
        for role, example in ((role, example) for role, members in roles.items() for example in members):
            other, hint = seen.setdefault(example.prompt, role), "choose stretches that do not overlap"
            require(other == role, f"prompt {example.id} of {name}", f"in {other} and {role}", "in one of them", hint)
        tasks[name] = roles
    if not tasks:
        name, reason = next(iter(unavailable.items()))
        raise ConfigError(f"no task of the study has data: {name}: {reason}")
    return tasks, unavailable


def example_request(model: LoadedModel, task: Task, steps: int, example: Example) -> Request:
    """Make the decoding request of an example, on the same canvas as `generate` and `infill`.

    The answer to a text with blanks is the text from its first blank to its last, and takes at most a step per blank.
    """
    if example.has_blanks:
        request = infill_request(model, example.prompt, steps)
        blanks = [at for at, given in enumerate(request.given) if not given]
        answer = (blanks[0], blanks[-1] + 1)
        return replace(request, id=example.id, steps=min(steps, len(blanks)), answer=answer)
    return prompt_request(model, example.prompt, task.max_new_tokens, steps, example.id)


class ScoredAnswer(NamedTuple):
    """The text of an answer with its utility and the reason for it."""

    text: str
    utility: float
    """In [0, 1]; NaN if the evaluator could not tell."""
    reason: str


class AnswerCodec(Protocol):
    """The part of a codec that turns the tokens of an answer into its text."""

    def answer(self, tokens: Sequence[int], /) -> str: ...


def answer_text(codec: AnswerCodec, request: Request | None, tokens: Sequence[int]) -> str:
    """Return the text of an answer. For a text with several runs of blanks, one line for each run that was filled."""
    given = () if request is None else request.given[slice(*request.answer)]
    if not any(given):
        return storable(codec.answer(list(tokens)))
    runs = groupby(zip(given, tokens, strict=True), key=lambda pair: pair[0])
    fills = [codec.answer([token for _, token in run]) for is_given, run in runs if not is_given]
    return storable("\n".join(fill.replace("\n", " ") for fill in fills))


Known: TypeAlias = dict[tuple[str, str], tuple[float, str]]
"""Utility and reason of answers by prompt and text."""
Score: TypeAlias = Callable[[Sequence[tuple[str, Example]], int | None, str], Sequence[tuple[float, str]]]
"""Utility and reason of each answer, as `score_texts` gives them."""


def add_texts(frame: pd.DataFrame, requests: Sequence[Request], codec: AnswerCodec) -> pd.DataFrame:
    """Add the column `text` to a frame with columns `prompt` and `answer`; equal answers are spelled once."""
    by_id = {request.id: request for request in requests}
    answers = list(zip(frame["prompt"], frame["answer"], strict=True))
    texts = {key: answer_text(codec, by_id.get(key[0]), key[1]) for key in dict.fromkeys(answers)}
    return frame.assign(text=[texts[key] for key in answers])


def score_answers(
    frame: pd.DataFrame,
    examples: Sequence[Example],
    requests: Sequence[Request] = (),
    codec: AnswerCodec | None = None,
    *,
    workers: int | None = None,
    scoring: str = "ours",
    known: Known | None = None,
    score: Score | None = None,
) -> pd.DataFrame:
    """Add `text`, `utility` and `reason` to a frame with columns `prompt` (an example's id) and `answer` (its tokens).

    Each distinct answer to a prompt is scored once, and never one that is in `known`, where scores by prompt and text
    are kept. A utility is NaN if the evaluator could not tell. `requests` are needed for texts with blanks: they say
    which tokens were filled in. A frame that has texts already needs no codec. `scoring` is "ours", or "paper", where
    parts that nobody asked for cost nothing; `workers` programs run side by side (HumanEval). `score` stands in for
    `score_texts` where another process scores.
    """
    if "text" not in frame:
        assert codec is not None, "a frame of tokens needs a codec"
        frame = add_texts(frame, requests, codec)
    by_id, known = {example.id: example for example in examples}, {} if known is None else known
    answers = list(zip(frame["prompt"], frame["text"], strict=True))
    new = [key for key in dict.fromkeys(answers) if key not in known]
    scores = (score or score_texts)([(text, by_id[prompt]) for prompt, text in new], workers, scoring)
    known.update(zip(new, scores, strict=True))
    utility, reason = zip(*(known[key] for key in answers), strict=True) if answers else ((), ())
    return frame.assign(utility=pd.Series(utility, frame.index, float), reason=list(reason))


def score_texts(
    pairs: Sequence[tuple[str, Example]], workers: int | None, scoring: str = "ours"
) -> list[tuple[float, str]]:
    """Return utility and reason of each text as an answer to its example; NaN where the evaluator is missing."""
    try:
        return [_with_reason(verdict, scoring) for verdict in score_all(pairs, workers)]
    except UnknownName:
        # A misspelt setting of the sandbox: no answer was scored, and none could be.
        raise
    except ConfigError as error:
        # Something that scoring needs is not installed. Answers that can be scored without it get their verdict.
        return [_score_alone(pair, error, scoring) for pair in pairs]


def _score_alone(pair: tuple[str, Example], error: ConfigError, scoring: str) -> tuple[float, str]:
    try:
        (verdict,) = score_all([pair], 1)
    except ConfigError:
        return math.nan, str(error)
    return _with_reason(verdict, scoring)


def _with_reason(verdict: Verdict, scoring: str) -> tuple[float, str]:
    utility = verdict.paper_utility if scoring == "paper" else verdict.utility
    return math.nan if utility is None else utility, verdict.reason
