"""GSM8K and HumanEval as LLaDA's authors put them to a model: whole data sets, their wording, their solved examples.

The tasks of the suite have prompts and splits of the study's protocol; a published figure is about these instead.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from unmask.api import LoadedModel
from unmask.core import Denoiser
from unmask.lab.published import PublishedRun
from unmask.models import Codec, Prompt
from unmask.tasks.base import DataDir, Draft, Example, Numbered, OwnExample, Task, TaskJudge, Verdict, canonical, digest
from unmask.tasks.official import gsm8k, humaneval
from unmask.tasks.official.data import DataFile, Row, rows
from unmask.tasks.scoring.utility import number
from unmask.tasks.splits import named, rank
from unmask.tasks.table import TASKS

WHOLE = "evaluation"
"""The split that holds all problems of a data set."""
Turn = dict[str, str]

SOLVED = (7364, 1708, 669, 6724)
"""Rows of GSM8K's training file that the authors show, in their order."""
_WORKING = re.compile(r"<<.*?>>")


@dataclass(frozen=True)
class Asked:
    """The problems of a data set, and what a model is shown before each."""

    files: tuple[DataFile, ...]
    problems: tuple[Numbered, ...]
    turns: tuple[Turn, ...]
    judge: TaskJudge


def asked(task: str, data_dir: DataDir = None) -> Asked:
    """A data set by the name of its task."""
    return _ASKED[task](data_dir)


def task_of(run: PublishedRun, problems: Asked, shots: int) -> Task:
    """All problems as one split, in an order of which the first n are a fair sample; `shots` solved ones are shown."""
    suite = TASKS[run.task]
    drafts = {one.id: one.draft for one in problems.problems}
    members = tuple(
        OwnExample(**vars(named(drafts[id], id, run.name, WHOLE)), judge=problems.judge)
        for id in rank(run.task, drafts)
    )
    shown: Any = [list(turn.items()) for turn in problems.turns[: 2 * shots]]
    return replace(
        suite,
        name=run.name,
        horizon=run.new_tokens,
        judge=problems.judge,
        counts=MappingProxyType({WHOLE: len(members)}),
        version=f"{suite.version}-{digest(canonical(shown), *(e.prompt for e in members)).hex()[:16]}",
        members=MappingProxyType({WHOLE: members}),
    )


def _question(row: Row) -> str:
    return f"Question: {row['question']}\nLet's think step by step\nAnswer:"


def _solution(row: Row) -> str:
    """A solution of the training file without its calculator's notes, as the authors show it."""
    return _WORKING.sub("", row["answer"]).replace("#### ", "The answer is ") + "\n"


def _number(text: str, example: Example) -> Verdict:
    """The final number of an answer that may go on to a question of its own."""
    verdict = number(text.split("Question:")[0], example)
    return replace(verdict, extraction=replace(verdict.extraction, raw=text))


def _gsm8k(data_dir: DataDir) -> Asked:
    train = rows(gsm8k.TRAIN, data_dir)
    turns = [
        turn
        for at in SOLVED
        for turn in (
            {"role": "user", "content": _question(train[at])},
            {"role": "assistant", "content": _solution(train[at])},
        )
    ]
    problems = [
        Numbered(one.id, replace(one.draft, prompt=_question(row)))
        for one, row in zip(gsm8k.read(data_dir), rows(gsm8k.TEST, data_dir), strict=True)
    ]
    return Asked((gsm8k.TEST, gsm8k.TRAIN), tuple(problems), tuple(turns), TaskJudge("binary", _number))


def _humaneval(data_dir: DataDir) -> Asked:
    def put(draft: Draft) -> Draft:
        return replace(draft, prompt=f"Complete the following python code:\n{draft.constraints['prompt']}")

    problems = tuple(Numbered(one.id, put(one.draft)) for one in humaneval.read(data_dir))
    return Asked((humaneval.FILE,), problems, (), humaneval.TASK.judge)


_ASKED: dict[str, Callable[[DataDir], Asked]] = {gsm8k.TASK.name: _gsm8k, humaneval.TASK.name: _humaneval}


@dataclass(frozen=True)
class FewShotCodec:
    """A codec that puts earlier turns before every prompt."""

    codec: Codec
    turns: tuple[Turn, ...]

    @property
    def mask(self) -> str:
        return self.codec.mask

    @property
    def closing(self) -> tuple[int, ...]:
        return self.codec.closing

    def encode(self, prompt: Prompt) -> list[int]:
        last = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return self.codec.encode([*self.turns, *last])

    def canvas(self, text: str) -> list[int]:
        return self.codec.canvas(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.codec.decode(tokens)

    def answer(self, tokens: Sequence[int]) -> str:
        return self.codec.answer(tokens)

    def text(self, tokens: Sequence[int]) -> str:
        return self.codec.text(tokens)


@dataclass(frozen=True)
class AskedModel:
    """A model with another codec."""

    name: str
    denoiser: Denoiser
    codec: Codec
    options: Any
    max_length: int | None
    reference: str
    fingerprint: str


def shown_first(model: LoadedModel, turns: Sequence[Turn]) -> LoadedModel:
    """The model, shown these turns before every prompt."""
    if not turns:
        return model
    codec = FewShotCodec(model.codec, tuple(turns))
    of_model = (model.options, model.max_length, model.reference, model.fingerprint)
    return AskedModel(model.name, model.denoiser, codec, *of_model)
