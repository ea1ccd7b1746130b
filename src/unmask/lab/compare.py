"""Policies on the task suite, end to end: every prompt decoded by every policy, scored by the task's own utility.

`evaluate` gives one row per prompt and policy; `summarise` turns them into means, intervals and differences to the
reference on the same prompts. An answer that could not be judged has no utility (NaN, with a reason), never 0.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from unmask.core import Denoiser, Noise, Policy, Proposal, Search, State, row_key
from unmask.decode import decode
from unmask.denoisers import Codec, canvas_of
from unmask.errors import ConfigError, SchemaError, UnknownName, UnmaskError, require
from unmask.lab.prompts import FRESH, prompts_from
from unmask.policies import settings
from unmask.request import TextModel
from unmask.stats.bootstrap import MEAN_RESAMPLES, Estimate, against, macro_intervals, mean_intervals
from unmask.tasks import SPLITS, Example, Task, find, score_all
from unmask.tasks.base import DataDir
from unmask.versions import versions

MACRO = "macro"
"""In place of a task's name: the mean over tasks, each counting the same."""

MOST_ROWS = 256
MOST_LOGITS = {"cuda": 1 << 30, "cpu": 1 << 24}
"""Numbers in the logits of one forward: the default batch is cut to this."""


class CompareProgress(NamedTuple):
    """Where an evaluation stands; answers are counted over all tasks and policies."""

    task: str
    policy: str
    done: int
    total: int


class AnswerRow(NamedTuple):
    """One prompt decoded by one policy."""

    task: str
    policy: str
    prompt: str
    """The id of the example."""
    utility: float
    """In [0, 1]; NaN if the evaluator could not tell."""
    reason: str
    """How the utility came about, or why there is none."""
    forwards: int
    steps: int
    answer: str


@dataclass(frozen=True)
class TaskRun:
    """What was decoded of one task."""

    task: str
    horizon: int
    steps: int
    prompts: int = 0
    """Decoded by every policy."""
    skipped: int = 0
    """Left out: their canvas is longer than the model's limit."""
    unavailable: str = ""
    """Why nothing was decoded; empty if something was."""


@dataclass(frozen=True)
class LeftOut:
    """A policy that could not decode a task, and why."""

    task: str
    policy: str
    reason: str


@dataclass(frozen=True)
class Evaluation:
    """Every answer with what it is worth."""

    split: str
    policies: tuple[str, ...]
    """In the order given; the first is the reference."""
    tasks: tuple[TaskRun, ...]
    rows: tuple[AnswerRow, ...]
    """Task by task, policy by policy, prompts in the order of the split."""
    left_out: tuple[LeftOut, ...]
    config: dict[str, Any]
    """The resolved configuration, in JSON's types."""

    @property
    def reference(self) -> str:
        return self.policies[0]

    def means(self, policy: str | None = None) -> dict[str, float]:
        """Mean utility per task of one policy, by default the reference; NaN where nothing could be scored."""
        known: dict[str, list[float]] = {run.task: [] for run in self.tasks}
        for row in self.rows:
            if row.policy == (policy or self.reference) and not math.isnan(row.utility):
                known[row.task].append(row.utility)
        return {task: sum(found) / len(found) if found else math.nan for task, found in known.items()}


def evaluate(
    model: TextModel,
    tasks: Sequence[str | Task],
    *,
    split: str,
    policies: Mapping[str, Policy | Search],
    prompts: int | None = None,
    steps: int | None = None,
    temperature: float = 0.0,
    seed: int = 0,
    batch: int | None = None,
    data_dir: DataDir = None,
    jobs: int | None = None,
    on_progress: Callable[[CompareProgress], None] = lambda progress: None,
) -> Evaluation:
    """Decode the first `prompts` prompts of each task's split (default: all) with every policy, and score them.

    The first policy is the reference. A row has the task's horizon to write in and `steps` steps (default: half the
    horizon, rounded up). `batch` rows of similar length are decoded together (default: as many as memory is sure to
    hold); it changes nothing but rounding. `jobs` programs run side by side (HumanEval). A prompt gets the answer
    that `Model.generate` would give it with the same seed.

    `split` is development, validation, evaluation, or "fresh": prompts of the generator that no split and no training
    run has. A task whose data is not there, and a policy (not the reference) that cannot decode a task, are reported,
    not raised.
    """
    require(bool(policies), "policies", dict(policies), "one or more, the reference first", "name a policy")
    require(prompts is None or prompts >= 1, "prompts", prompts, "1 or more", "ask for at least one")
    require(batch is None or batch >= 1, "batch", batch, "1 or more", "decode at least one row at a time")
    if split not in (*SPLITS, FRESH):
        raise UnknownName("split", split, (*SPLITS, FRESH))
    chosen = [find(task) if isinstance(task, str) else task for task in tasks]
    names = [task.name for task in chosen]
    require(bool(names) and len(set(names)) == len(names), "tasks", names, "one or more, none twice", "change the list")
    proposal = Proposal(temperature=temperature)
    planned = plan(
        model,
        chosen,
        split=split,
        policies=policies,
        prompts=prompts,
        steps=steps,
        temperature=temperature,
        seed=seed,
    )
    desks = [_evaluator(model, task, split, prompts, _steps(task, steps), batch, seed, data_dir) for task in chosen]
    rows: list[AnswerRow] = []
    left_out: list[LeftOut] = []
    total, done = len(policies) * sum(desk.run.prompts for desk in desks), 0
    for desk in (desk for desk in desks if not desk.run.unavailable):
        for at, (name, policy) in enumerate(policies.items()):
            found: list[AnswerRow] = []
            try:
                for part in desk.decode(model, name, policy, proposal, jobs):
                    found += part
                    on_progress(CompareProgress(desk.run.task, name, done + len(found), total))
            except UnmaskError as error:
                if at == 0:
                    raise
                left_out.append(LeftOut(desk.run.task, name, str(error)))
                total, found = total - desk.run.prompts, []
            done += len(found)
            rows += sorted(found, key=lambda row: desk.place[row.prompt])
    return Evaluation(
        split=split,
        policies=tuple(policies),
        tasks=tuple(desk.run for desk in desks),
        rows=tuple(rows),
        left_out=tuple(left_out),
        config=planned | {"batch": {desk.run.task: desk.rows for desk in desks}, "versions": versions()},
    )


def plan(
    model: TextModel,
    tasks: Sequence[str | Task],
    *,
    split: str,
    policies: Mapping[str, Policy | Search],
    prompts: int | None = None,
    steps: int | None = None,
    temperature: float = 0.0,
    seed: int = 0,
) -> dict[str, Any]:
    """What tells one evaluation from another, in JSON's types: its configuration but for batch sizes and versions."""
    chosen = [find(task) if isinstance(task, str) else task for task in tasks]
    config = {
        "model": {"name": model.name, **model.options},
        "device": str(model.denoiser.device),
        "tasks": {task.name: {"version": task.version, "horizon": task.horizon} for task in chosen},
        "split": split,
        "prompts": prompts,
        "temperature": temperature,
        "seed": seed,
        "policies": {name: _settings(policy) for name, policy in policies.items()},
        "steps": {task.name: _steps(task, steps) for task in chosen},
    }
    plain: dict[str, Any] = json.loads(json.dumps(config, default=str))
    return plain


def _settings(policy: Policy | Search) -> dict[str, Any]:
    return settings(policy) if is_dataclass(policy) else {"name": policy.name}


@dataclass(frozen=True)
class _Batch:
    """Rows that are decoded together: the same start for every policy."""

    members: tuple[Example, ...]
    canvases: tuple[int, ...]
    """Where each answer ends."""
    start: State
    noise: Noise


@dataclass(frozen=True)
class _Evaluator:
    """One task's prompts, encoded once, and the verdicts so far: policies often agree on an answer."""

    run: TaskRun
    batches: tuple[_Batch, ...] = ()
    place: Mapping[str, int] = field(default_factory=dict)
    """Rank of each prompt in the split."""
    known: dict[tuple[str, bytes], tuple[str, float, str]] = field(default_factory=dict)
    """Text, utility and reason by prompt and tokens."""

    @property
    def rows(self) -> int:
        """Of the largest batch."""
        return max((len(batch.members) for batch in self.batches), default=0)

    def decode(
        self, model: TextModel, name: str, policy: Policy | Search, proposal: Proposal, jobs: int | None
    ) -> Iterator[list[AnswerRow]]:
        """The rows of one policy, batch by batch."""
        for batch in self.batches:
            # Nothing here has gradients: a fifth of the time between forwards goes without the mode.
            with torch.inference_mode():
                end = decode(model.denoiser, policy, batch.start, noise=batch.noise, proposal=proposal, record=False)
            # One copy to the host for all rows.
            tokens = torch.cat((end.state.tokens_BL, end.forwards_B[:, None], end.state.step_B[:, None]), 1)
            table = tokens.cpu().numpy()
            answers = [
                row[length - self.run.horizon : length] for row, length in zip(table, batch.canvases, strict=True)
            ]
            self._judge(model.codec, batch.members, answers, jobs)
            yield [
                AnswerRow(self.run.task, name, example.id, utility, reason, int(row[-2]), int(row[-1]), text)
                for example, answer, row in zip(batch.members, answers, table, strict=True)
                for text, utility, reason in (self.known[example.id, answer.tobytes()],)
            ]

    def _judge(self, codec: Codec, members: Sequence[Example], answers: Sequence[np.ndarray], jobs: int | None) -> None:
        """Verdicts on the answers that are new."""
        keys = [(example.id, answer.tobytes()) for example, answer in zip(members, answers, strict=True)]
        new = [at for at, key in enumerate(keys) if key not in self.known]
        texts = [codec.answer(answers[at].tolist()) for at in new]
        verdicts = scores([(text, members[at]) for text, at in zip(texts, new, strict=True)], jobs)
        for at, text, (utility, reason) in zip(new, texts, verdicts, strict=True):
            self.known[keys[at]] = (text, utility, reason)


def scores(pairs: Sequence[tuple[str, Example]], jobs: int | None) -> list[tuple[float, str]]:
    """Utility and reason of each answer; NaN where the evaluator is not there."""
    try:
        verdicts = score_all(pairs, jobs)
    except ConfigError as error:
        # Something that scoring needs is not installed. Answers it does not take to judge get their verdict.
        return [_score(pair, error) for pair in pairs]
    return [(math.nan if v.utility is None else v.utility, v.reason) for v in verdicts]


def _score(pair: tuple[str, Example], error: ConfigError) -> tuple[float, str]:
    try:
        (verdict,) = score_all([pair], 1)
    except ConfigError:
        return math.nan, str(error)
    return (math.nan if verdict.utility is None else verdict.utility), verdict.reason


def _evaluator(
    model: TextModel,
    task: Task,
    split: str,
    prompts: int | None,
    steps: int,
    batch: int | None,
    seed: int,
    data_dir: DataDir,
) -> _Evaluator:
    run = TaskRun(task.name, task.horizon, steps)
    try:
        members = prompts_from(task, split, prompts=prompts, data_dir=data_dir)
    except (ConfigError, SchemaError) as error:
        return _Evaluator(replace(run, unavailable=str(error)))
    encoded = [(model.codec.encode(example.prompt), example) for example in members]
    room = task.horizon + len(model.codec.closing)
    fits = [(p, e) for p, e in encoded if model.length is None or len(p) + room <= model.length]
    run = replace(run, prompts=len(fits), skipped=len(encoded) - len(fits))
    if not fits:
        lacking = f"no prompt leaves room for {task.horizon} tokens in {model.length}"
        remedy = "load a model with a longer context, or leave the task out"
        return _Evaluator(replace(run, unavailable=f"{lacking}; {remedy}"))
    size = batch or _rows(model.denoiser, task.horizon)
    fits.sort(key=lambda pair: len(pair[0]))
    batches = [_batch(model.denoiser, model.codec, fits[at : at + size], run, seed) for at in range(0, len(fits), size)]
    return _Evaluator(run, tuple(batches), {example.id: at for at, example in enumerate(members)})


def _batch(
    denoiser: Denoiser, codec: Codec, pairs: Sequence[tuple[list[int], Example]], run: TaskRun, seed: int
) -> _Batch:
    mask_id, device = denoiser.vocabulary.mask_id, denoiser.device
    prompts = [prompt for prompt, _ in pairs]
    canvases, given = zip(*(canvas_of(codec, prompt, run.horizon, mask_id) for prompt in prompts), strict=True)
    start = State.from_canvases(canvases, steps=run.steps, mask_id=mask_id, given=given, device=device)
    # The keys of `Model.generate`, so that it gives the same answers.
    keys = [row_key(seed, np.array(canvas, "<i8").tobytes()) for canvas in canvases]
    lengths = tuple(len(prompt) + run.horizon for prompt in prompts)
    return _Batch(tuple(example for _, example in pairs), lengths, start, Noise.of(keys, device))


def _steps(task: Task, steps: int | None) -> int:
    if steps is None:
        return -(-task.horizon // 2)
    ok = 1 <= steps <= task.horizon
    require(ok, "steps", steps, f"1 to {task.horizon}, the horizon of {task.name}", "lower it, or leave the task out")
    return steps


def _rows(denoiser: Denoiser, horizon: int) -> int:
    """Rows whose logits, all of the answer masked, stay within the limit."""
    limit = MOST_LOGITS.get(denoiser.device.type, MOST_LOGITS["cpu"])
    return max(1, min(MOST_ROWS, limit // (horizon * denoiser.vocabulary.size)))


# From rows to numbers


@dataclass(frozen=True)
class PolicyLine:
    """A policy's means on one task, or over all of them."""

    task: str
    policy: str
    utility: Estimate
    difference: Estimate
    """To the reference, on the prompts that both have a utility for."""
    forwards: float
    """Per prompt."""
    unscored: int
    """Answers that the evaluator could not judge."""


@dataclass(frozen=True)
class CompareSummary:
    """One line per task and policy, and the mean over tasks."""

    split: str
    reference: str
    tasks: tuple[TaskRun, ...]
    lines: tuple[PolicyLine, ...]
    macro: tuple[PolicyLine, ...]
    """Of the policies that decoded all of `macro_tasks`."""
    macro_tasks: tuple[str, ...]
    """Tasks with a utility of the reference."""
    left_out: tuple[LeftOut, ...]

    def line(self, task: str, policy: str) -> PolicyLine:
        found = {(line.task, line.policy): line for line in (*self.lines, *self.macro)}
        if (task, policy) not in found:
            raise UnknownName("task and policy", f"{task}, {policy}", (f"{t}, {p}" for t, p in found))
        return found[task, policy]

    def of(self, task: str) -> tuple[PolicyLine, ...]:
        return self.macro if task == MACRO else tuple(line for line in self.lines if line.task == task)

    def best(self, task: str) -> PolicyLine | None:
        """The policy with the largest difference, the first of ties; the reference if no other is better.

        None if there is no other.

        Its interval flatters: it was chosen on the same prompts. `picks` of another split avoid that.
        """
        others = [x for x in self.of(task) if x.policy != self.reference and not math.isnan(x.difference.value)]
        best = max(others, key=lambda line: line.difference.value, default=None)
        return best if best is None or best.difference.value > 0 else self.line(task, self.reference)

    def picks(self) -> dict[str, str]:
        """The best policy of each task, and over all: to be shown on other prompts than it was chosen on."""
        found = {task: self.best(task) for task in (*(run.task for run in self.tasks), MACRO)}
        return {task: line.policy for task, line in found.items() if line is not None}


def summarise(evaluation: Evaluation, *, resamples: int = MEAN_RESAMPLES, seed: int | None = None) -> CompareSummary:
    """Means with 95 % intervals from `resamples` bootstrap draws of the prompts; `seed` defaults to the run's."""
    seed = evaluation.config["seed"] if seed is None else seed
    grids = [_PolicyGrid.of(evaluation, run) for run in evaluation.tasks if not run.unavailable]
    scored = [grid for grid in grids if np.isfinite(grid.utility_PA[:, 0]).any()]
    return CompareSummary(
        split=evaluation.split,
        reference=evaluation.reference,
        tasks=evaluation.tasks,
        lines=tuple(line for grid in grids for line in grid.lines(resamples, seed)),
        macro=tuple(_macro(scored, resamples, seed)),
        macro_tasks=tuple(grid.task for grid in scored),
        left_out=evaluation.left_out,
    )


@dataclass(frozen=True)
class _PolicyGrid:
    """One task's utilities, prompts by policies; the reference is the first column."""

    task: str
    policies: tuple[str, ...]
    utility_PA: np.ndarray
    forwards_A: np.ndarray

    @classmethod
    def of(cls, evaluation: Evaluation, run: TaskRun) -> "_PolicyGrid":
        rows = [row for row in evaluation.rows if row.task == run.task]
        out = {left.policy for left in evaluation.left_out if left.task == run.task}
        policies = tuple(policy for policy in evaluation.policies if policy not in out)
        utility = np.array([row.utility for row in rows]).reshape(len(policies), run.prompts).T
        forwards = np.array([row.forwards for row in rows], float).reshape(len(policies), run.prompts).mean(1)
        return cls(run.task, policies, utility, forwards)

    def lines(self, resamples: int, seed: int) -> Iterator[PolicyLine]:
        means = mean_intervals(self.utility_PA, seed=seed, resamples=resamples)
        differences = mean_intervals(against(self.utility_PA, 0), seed=seed, resamples=resamples)
        unscored_A = np.isnan(self.utility_PA).sum(0)
        for policy, *values in zip(self.policies, means, differences, self.forwards_A, unscored_A, strict=True):
            mean, difference, forwards, unscored = values
            yield PolicyLine(self.task, policy, mean, difference, float(forwards), int(unscored))

    def cut(self, policies: Sequence[str]) -> "_PolicyGrid":
        at = [self.policies.index(policy) for policy in policies]
        return _PolicyGrid(self.task, tuple(policies), self.utility_PA[:, at], self.forwards_A[at])


def _macro(grids: Sequence[_PolicyGrid], resamples: int, seed: int) -> Iterator[PolicyLine]:
    if not grids:
        return
    everywhere = [p for p in grids[0].policies if all(p in grid.policies for grid in grids)]
    whole = [grid.cut(everywhere) for grid in grids]
    tables = [grid.utility_PA for grid in whole]
    means = macro_intervals(tables, seed=seed, resamples=resamples)
    differences = macro_intervals([against(x, 0) for x in tables], seed=seed, resamples=resamples)
    forwards_A = np.mean([grid.forwards_A for grid in whole], 0)
    unscored_A = np.sum([np.isnan(x).sum(0) for x in tables], 0)
    for at, policy in enumerate(everywhere):
        yield PolicyLine(MACRO, policy, means[at], differences[at], float(forwards_A[at]), int(unscored_A[at]))
