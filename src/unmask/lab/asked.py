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
from unmask.tasks import (
    TASKS,
    DataDir,
    Example,
    Scorer,
    Task,
    Verdict,
    canonical,
    digest,
    official,
    rank_ids,
    score_number,
)

WHOLE = "evaluation"
"""The split that holds all problems of a data set."""
Turn = dict[str, str]

SOLVED = (7364, 1708, 669, 6724)
"""Rows of GSM8K's training file that the authors show, in their order."""
_WORKING = re.compile(r"<<.*?>>")


@dataclass(frozen=True)
class Asked:
    """The problems of a data set, and what a model is shown before each."""

    files: tuple[official.DataFile, ...]
    problems: tuple[Example, ...]
    turns: tuple[Turn, ...]
    scorer: Scorer


def asked(task: str, data_dir: DataDir = None) -> Asked:
    """A data set by the name of its task."""
    return _ASKED[task](data_dir)


def task_of(run: PublishedRun, problems: Asked, shots: int) -> Task:
    """All problems as one split, in an order of which the first n are a fair sample; `shots` solved ones are shown."""
    suite = TASKS[run.task]
    by_id = {one.id: one for one in problems.problems}
    members = tuple(
        replace(by_id[id], task=run.name, split=WHOLE, scorer=problems.scorer) for id in rank_ids(run.task, by_id)
    )
    shown: Any = [list(turn.items()) for turn in problems.turns[: 2 * shots]]
    return replace(
        suite,
        name=run.name,
        max_new_tokens=run.new_tokens,
        scorer=problems.scorer,
        counts=MappingProxyType({WHOLE: len(members)}),
        version=f"{suite.version}-{digest(canonical(shown), *(e.prompt for e in members)).hex()[:16]}",
        make_splits=lambda data_dir: {WHOLE: members},
    )


def _question(row: official.Row) -> str:
    return f"Question: {row['question']}\nLet's think step by step\nAnswer:"


def _solution(row: official.Row) -> str:
    """A solution of the training file without its calculator's notes, as the authors show it."""
    return _WORKING.sub("", row["answer"]).replace("#### ", "The answer is ") + "\n"


def _number(text: str, example: Example) -> Verdict:
    """The final number of an answer that may go on to a question of its own."""
    verdict = score_number(text.split("Question:")[0], example)
    return replace(verdict, extraction=replace(verdict.extraction, raw=text))


def _gsm8k(data_dir: DataDir) -> Asked:
    train = official.read_rows(official.GSM8K_TRAIN, data_dir)
    turns = [
        turn
        for at in SOLVED
        for turn in (
            {"role": "user", "content": _question(train[at])},
            {"role": "assistant", "content": _solution(train[at])},
        )
    ]
    problems = [
        replace(one, prompt=_question(row))
        for one, row in zip(
            official.read_examples(official.GSM8K_TEST, official.gsm8k_example, data_dir),
            official.read_rows(official.GSM8K_TEST, data_dir),
            strict=True,
        )
    ]
    files = (official.GSM8K_TEST, official.GSM8K_TRAIN)
    return Asked(files, tuple(problems), tuple(turns), Scorer("binary", _number))


def _humaneval(data_dir: DataDir) -> Asked:
    problems = tuple(
        replace(one, prompt=f"Complete the following python code:\n{one.constraints['prompt']}")
        for one in official.read_examples(official.HUMANEVAL_FILE, official.humaneval_example, data_dir)
    )
    return Asked((official.HUMANEVAL_FILE,), problems, (), official.HUMANEVAL.scorer)


_ASKED: dict[str, Callable[[DataDir], Asked]] = {
    official.GSM8K.name: _gsm8k,
    official.HUMANEVAL.name: _humaneval,
}


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
