"""What the demonstration shows beside a study: methods on problems with known answers, and a few runs to look at.

Problems are small enough to know the right answer. The utility of an answer x to a prompt is P(x | prompt) / max P(x' |
prompt): 1 for the most probable answer. All prompts of a problem are decoded and weighted by their probability, so that
for a policy that draws no random numbers the expectation is exact; for the others it is a mean over seeds, with the
standard error of that mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import product
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from unmask.api import LoadedModel, start_trajectory
from unmask.base.environment import code_fingerprint, hash_source, versions
from unmask.base.errors import require
from unmask.base.files import atomic_write
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json, to_plain
from unmask.core import Noise, Policy, Search, State, Trajectory, row_key
from unmask.engine import decode
from unmask.lab.study import StudyConfig, decode_prompts
from unmask.lab.study.jobs import Examples
from unmask.lab.study.prompts import ScoredAnswer, example_request, score_answers
from unmask.methods import describe_policy, make_policy
from unmask.models import ExactDenoiser, JointDistribution, LetterCodec
from unmask.tasks import Example

FORMAT = "unmask-demo-1"

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "dense": "every two positions depend on each other",
        "chain": "each position depends on its neighbours",
        "pairs": "positions 1 and 2, 3 and 4, ... depend on each other and on nothing else",
        "far": "each position of the first half depends on its partner in the second half",
    }
)
"""Structures of dependence between positions, with what each means."""


@dataclass(frozen=True)
class DemoProblem:
    """A problem with a known answer: complete a prompt with the most probable tokens of a random joint distribution."""

    family: str
    seed: int
    """Number of the distribution in its family."""
    n: int = 10
    vocab: int = 3
    dependence: float = 2.0
    prompt_length: int = 2

    def __post_init__(self) -> None:
        fits = 1 <= self.prompt_length < self.n
        require(fits, "prompt_length", self.prompt_length, f"1 to {self.n - 1}", "leave room for an answer")

    @property
    def name(self) -> str:
        """Name of the problem: its family and seed."""
        return f"{self.family}/{self.seed}"

    @property
    def identity(self) -> str:
        """Settings as a text, part of every row key: random numbers follow from it, whatever the class is called."""
        settings = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"Problem({settings})"

    @property
    def new_tokens(self) -> int:
        """Number of positions to fill."""
        return self.n - self.prompt_length

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """All prompts, in the order of `JointDistribution.prefix(...).p.ravel()`."""
        return list(product(range(self.vocab), repeat=self.prompt_length))

    def make_distribution(self) -> JointDistribution:
        """Make the joint distribution of the problem."""
        return JointDistribution.random(
            self.n, self.vocab, dependence=self.dependence, seed=self.seed, structure=self.family
        )


@dataclass(frozen=True)
class Contender:
    """A policy that takes part in the demonstration, with its label and number of steps."""

    label: str
    method: str
    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def make_policy(self) -> Policy | Search:
        """Make the policy."""
        return make_policy(self.method, **self.settings)


@dataclass(frozen=True)
class DemoRow:
    """Utility and cost of one contender on one problem."""

    problem: str
    family: str
    label: str
    method: str
    """Name in `METHODS`; empty for a baseline: not a policy, but a point to compare with."""
    utility: float
    """Expectation over the prompts."""
    stderr: float
    """Standard error of `utility` over the seeds; 0 where it is exact."""
    seeds: int
    """Runs averaged: 1 where the policy drew no random number, for then they are all the same."""
    deterministic: bool
    forwards: float | None
    """Expected denoiser passes per answer; None for an answer found without the denoiser."""
    new_tokens: int

    @property
    def tokens_per_forward(self) -> float | None:
        """Tokens of an answer over the expected forwards."""
        return None if self.forwards is None else self.new_tokens / self.forwards


@dataclass(frozen=True)
class Reveal:
    """The order in which one contender filled the example's canvas."""

    label: str
    step: tuple[int, ...]
    """When each position got its last token, from 1; 0 for the prompt."""
    remasked: tuple[int, ...]
    """How often each position was re-opened."""
    text: str
    utility: float


@dataclass(frozen=True)
class DemoComparison:
    """The contenders on all problems, and the orders in which they fill one example."""

    rows: tuple[DemoRow, ...]
    example: str
    """Problem and prompt of the reveals."""
    reveals: tuple[Reveal, ...]
    config: dict[str, Any]
    """The resolved configuration, in JSON's types."""


DEMO_STUDY = Path(__file__).parent / "demo.toml"
"""Study file of the demonstration, of the small model of the package."""

MODE = "most probable answer"
AT_ONCE = "everything at once"

CONTENDERS: tuple[Contender, ...] = (
    Contender("LLaDA, 8 steps", "llada", 8),
    Contender("LLaDA, 4 steps", "llada", 4),
    Contender("LLaDA, 2 steps", "llada", 2),
    Contender("LLaDA, blocks of 4", "llada", 4, {"block_length": 4}),
    Contender("LLaDA, random order", "llada", 4, {"remasking": "random"}),
    Contender("Dream, entropy", "dream", 4),
    Contender("Dream, margin", "dream", 4, {"alg": "topk_margin"}),
    Contender("Dream, origin", "dream", 4, {"alg": "origin"}),
    Contender("mixed scores", "fixed", 4, {"alpha": "uniform"}),
    Contender("threshold 0.9", "fixed", 8, {"kappa": "above:0.9"}),
    Contender("threshold 0.6", "fixed", 8, {"kappa": "above:0.6"}),
    Contender("WINO", "wino", 8, {"block_length": 8}),
    # The authors' CoRe leaves the last 16 positions alone and probes every 8 steps: never, on 8 tokens.
    Contender(
        "CoRe", "core", 4, {"revise_every": 1, "tail": 0, "candidates": 4, "window": (0.0, 1.0), "replacement": 0.3}
    ),
    Contender("Info-Gain", "info-gain", 4),
    Contender("ReMDM, 8 steps", "revised", 8),
)
"""Published methods on 8 new tokens, at their authors' settings wherever those mean something at that size."""


def demo_problems(per_family: int) -> tuple[DemoProblem, ...]:
    """Make the demonstration's problems: so many distributions of every family."""
    require(per_family >= 1, "problems per family", per_family, "1 or more", "ask for at least one")
    return tuple(DemoProblem(family, seed) for family in FAMILIES for seed in range(per_family))


def run_demo(
    problems: Sequence[DemoProblem],
    contenders: Sequence[Contender],
    *,
    seeds: int,
    on_done: Callable[[DemoProblem, str], None] = lambda problem, label: None,
) -> DemoComparison:
    """Run every contender on every prompt of every problem; `seeds` times where it draws random numbers.

    The reveals are those of one prompt, the most probable one of the problem on which the policies differ most.
    `on_done` is called after each contender.
    """
    require(bool(problems) and bool(contenders), "problems, contenders", (problems, contenders), "one or more", "add")
    for kind, names in (("problems", [p.name for p in problems]), ("contenders", [c.label for c in contenders])):
        require(len(set(names)) == len(names), f"names of {kind}", names, "no name twice", "rows go by these names")
    require(seeds >= 2, "seeds", seeds, "2 or more", "a standard error needs at least two runs")
    rows: list[DemoRow] = []
    threads = torch.get_num_threads()
    # Sharing tensors of a few hundred numbers among threads takes longer than the work.
    torch.set_num_threads(1)
    try:
        for problem in problems:
            trial = _ProblemTrial.of(problem)
            rows += trial.baselines()
            for contender in contenders:
                rows.append(trial.run_contender(contender, seeds))
                on_done(problem, contender.label)
        spread: dict[str, float] = {}
        for problem in problems:
            utilities = [row.utility for row in rows if row.problem == problem.name and row.method]
            spread[problem.name] = float(np.std(utilities))
        example = _ProblemTrial.of(max(problems, key=lambda problem: spread[problem.name]))
        reveals = tuple(example.record_reveals(contender) for contender in contenders)
    finally:
        torch.set_num_threads(threads)
    title = f"{example.problem.name}, prompt {example.spell_tokens(example.most_probable_prompt)!r}"
    return DemoComparison(tuple(rows), title, reveals, demo_config(problems, contenders, seeds))


@dataclass(frozen=True)
class _ProblemTrial:
    """A problem with its denoiser and the best answer to each prompt."""

    problem: DemoProblem
    denoiser: ExactDenoiser
    weight_P: np.ndarray
    """Probability of each prompt."""
    best_P: np.ndarray
    """P(prompt, x) of each prompt's most probable answer."""

    @classmethod
    def of(cls, problem: DemoProblem) -> "_ProblemTrial":
        """Prepare a problem: make its distribution and find the best answers."""
        joint = problem.make_distribution()
        weight_P = joint.prefix(problem.prompt_length).p.ravel()
        return cls(problem, ExactDenoiser(joint), weight_P, joint.p.reshape(len(weight_P), -1).max(1))

    @property
    def most_probable_prompt(self) -> tuple[int, ...]:
        """The most probable prompt."""
        return self.problem.prompts[int(self.weight_P.argmax())]

    def spell_tokens(self, tokens: Sequence[int]) -> str:
        """Write tokens as letters."""
        return LetterCodec(self.problem.vocab).decode(tokens)

    def baselines(self) -> list[DemoRow]:
        """Return the rows of two baselines: the best answer there is, and the best guess after one forward."""
        joint, size = self.denoiser.joint, self.problem.prompt_length
        guesses = [
            (*prompt, *joint.marginals(dict(enumerate(prompt)))[size:].argmax(1).tolist())
            for prompt in self.problem.prompts
        ]
        guessed = float(self.weight_P @ self.utilities_of(guesses))
        return [self._make_exact_row(MODE, "", 1.0, None), self._make_exact_row(AT_ONCE, "", guessed, 1.0)]

    def run_contender(self, contender: Contender, seeds: int) -> DemoRow:
        """Run a contender on all prompts, with each seed; once if it draws no random numbers."""
        policy = contender.make_policy()
        seeds = seeds if policy.random else 1
        noise = Noise(self._make_row_keys(self.problem.prompts, range(seeds)))
        end = self._decode(policy, contender.steps, self.problem.prompts * seeds, noise)
        by_seed = self.utilities_of(end.state.tokens_BL.tolist()).reshape(seeds, -1) @ self.weight_P
        forwards = float(end.forwards_B.numpy().reshape(seeds, -1).mean(0) @ self.weight_P)
        row = self._make_exact_row(contender.label, contender.method, float(by_seed.mean()), forwards)
        if not policy.random:
            return row
        stderr = float(by_seed.std(ddof=1) / np.sqrt(seeds))
        return replace(row, stderr=stderr, seeds=seeds, deterministic=False)

    def record_reveals(self, contender: Contender) -> Reveal:
        """Decode the most probable prompt, and record in which order its positions are filled."""
        noise = Noise(self._make_row_keys([self.most_probable_prompt], range(1)))
        end = self._decode(contender.make_policy(), contender.steps, [self.most_probable_prompt], noise, record=True)
        step_L = torch.zeros_like(end.state.tokens_BL[0])
        remasked_L = torch.zeros_like(step_L)
        for number, step in enumerate(end.steps, start=1):
            step_L[step.revealed_BL[0]] = number
            remasked_L += step.remasked_BL[0]
        answer = end.state.tokens_BL[0].tolist()
        utility = self.denoiser.joint.prob(answer) / float(self.best_P[self.weight_P.argmax()])
        return Reveal(
            contender.label, tuple(step_L.tolist()), tuple(remasked_L.tolist()), self.spell_tokens(answer), utility
        )

    def utilities_of(self, answers: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the utilities of whole canvases, in the order of the prompts (repeated as often as need be)."""
        probability = np.array([self.denoiser.joint.prob(answer) for answer in answers])
        return np.asarray(probability / np.resize(self.best_P, len(answers)))

    def _decode(
        self,
        policy: Policy | Search,
        steps: int,
        prompts: Sequence[Sequence[int]],
        noise: Noise,
        record: bool = False,
    ) -> Trajectory:
        start = State.from_prompts(
            prompts, new_tokens=self.problem.new_tokens, steps=steps, mask_id=self.denoiser.mask_id
        )
        return decode(self.denoiser, policy, start, noise=noise, record=record)

    def _make_row_keys(self, prompts: Sequence[Sequence[int]], seeds: range) -> Tensor:
        """Make the random number keys of the rows, seed by seed; problems have different ones."""
        keys = [row_key(seed, f"({self.problem.identity}, {prompt!r})") for seed in seeds for prompt in prompts]
        return torch.tensor(keys, dtype=torch.long)

    def _make_exact_row(self, label: str, method: str, utility: float, forwards: float | None) -> DemoRow:
        """Make the row of an exact result."""
        return DemoRow(
            problem=self.problem.name,
            family=self.problem.family,
            label=label,
            method=method,
            utility=utility,
            stderr=0.0,
            seeds=1,
            deterministic=True,
            forwards=forwards,
            new_tokens=self.problem.new_tokens,
        )


def demo_config(problems: Sequence[DemoProblem], contenders: Sequence[Contender], seeds: int) -> dict[str, Any]:
    """Return the configuration that the numbers depend on, besides the code."""
    chosen = {
        "problems": [{"name": problem.name, **asdict(problem)} for problem in problems],
        "contenders": [
            {"label": c.label, "steps": c.steps, "policy": describe_policy(c.make_policy())} for c in contenders
        ],
        "seeds": seeds,
        "temperature": 0.0,
        "versions": versions(),
    }
    plain: dict[str, Any] = to_plain(chosen)
    return plain


# The file that keeps the comparison


def load_or_run_demo(
    path: Path,
    problems: Sequence[DemoProblem],
    contenders: Sequence[Contender],
    *,
    seeds: int,
    on_done: Callable[[DemoProblem, str], None] = lambda problem, label: None,
) -> DemoComparison:
    """Read the comparison from a file that this code wrote with these settings; otherwise run it, and write it."""
    config = demo_config(problems, contenders, seeds)
    try:
        text = path.read_bytes().decode()
        kept = from_hashed_json(FORMAT, text, _from_body, kind="comparison", to_body=_to_body)
        if kept.config == config:
            return kept
    except (FileNotFoundError, HashMismatch, UnicodeDecodeError):
        # Nothing is there, nothing whole, or something that other code made.
        pass
    comparison = run_demo(problems, contenders, seeds=seeds, on_done=on_done)
    with atomic_write(path) as partial:
        partial.write_text(to_hashed_json(FORMAT, _to_body(comparison)), encoding="utf-8")
    return comparison


def _to_body(comparison: DemoComparison) -> dict[str, Any]:
    body = to_plain(asdict(comparison))
    # The body of other code differs, so that its file is not taken for one of this code.
    code = [code_fingerprint(), hash_source(Path(__file__))]
    return {"code": code, **{name: body[name] for name in ("example", "rows", "reveals", "config")}}


def _from_body(body: dict[str, Any]) -> DemoComparison:
    reveals = ({**one, "step": tuple(one["step"]), "remasked": tuple(one["remasked"])} for one in body["reveals"])
    return DemoComparison(
        rows=tuple(DemoRow(**row) for row in body["rows"]),
        example=body["example"],
        reveals=tuple(Reveal(**reveal) for reveal in reveals),
        config=body["config"],
    )


# Runs to look at

TRIED_PROMPTS = 8
"""Evaluation prompts of a task that are decoded; the one on which the methods differ most is shown."""


@dataclass(frozen=True)
class ShownMethod:
    """A method whose runs are shown, with a line on what to look for."""

    label: str
    method: str
    look_for: str
    settings: Mapping[str, Any] = field(default_factory=dict)


SHOWN_METHODS: tuple[ShownMethod, ...] = (
    ShownMethod("LLaDA", "llada", "as many tokens at every step, the surest first"),
    ShownMethod("Fast-dLLM", "fast-dllm", "every token that it is sure of: few or many in a step"),
    ShownMethod("WINO", "wino", "reveals many and takes back those that look wrong later", {"block_length": 16}),
)


@dataclass(frozen=True)
class DemoRun:
    """One prompt decoded by one method."""

    task: str
    example: Example
    shown: ShownMethod
    trajectory: Trajectory
    """One row with its steps."""
    judged: ScoredAnswer

    @property
    def forwards(self) -> int:
        """Forwards of the run."""
        return int(self.trajectory.forwards_B[0])

    @property
    def utility(self) -> float | None:
        """Utility of the answer; None where it could not be judged."""
        return None if isnan(self.judged.utility) else self.judged.utility


def make_demo_runs(
    model: LoadedModel,
    study: StudyConfig,
    tasks: Examples,
    methods: Sequence[ShownMethod] = SHOWN_METHODS,
    tried: int = TRIED_PROMPTS,
    on_done: Callable[[DemoRun], None] = lambda run: None,
) -> tuple[DemoRun, ...]:
    """Decode one prompt of each task by all methods: the first of those on which the first two differ most."""
    runs = []
    for task, roles in tasks.items():
        examples = roles["evaluation"][:tried]
        requests = [example_request(model, study.task(task), study.steps[task], example) for example in examples]
        score = partial(score_answers, examples=examples, requests=requests, codec=model.codec, scoring=study.scoring)
        policies = [make_policy(method.method, **method.settings) for method in methods]
        utility_MP = np.array(
            [score(decode_prompts(model, requests, policy, seed=study.seed))["utility"] for policy in policies[:2]]
        )
        at = int(np.nan_to_num(utility_MP.max(0) - utility_MP.min(0)).argmax())
        request = requests[at]
        # As wide a canvas as beside the other prompts: the width moves last bits.
        slots = max(len(one.canvas) for one in requests)
        for method, policy in zip(methods, policies, strict=True):
            start = start_trajectory(model.denoiser, [request], study.seed, slots, extra_steps=policy.extra_steps)
            trajectory = decode(model.denoiser, policy, start)
            answer = tuple(trajectory.state.tokens_BL[0].tolist()[slice(*request.answer)])
            (scored,) = score(pd.DataFrame({"prompt": [request.id], "answer": [answer]})).itertuples()
            judged = ScoredAnswer(scored.text, scored.utility, scored.reason)
            run = DemoRun(task, examples[at], method, trajectory, judged)
            on_done(run)
            runs.append(run)
    return tuple(runs)
