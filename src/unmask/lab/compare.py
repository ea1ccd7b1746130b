"""Policies on the task suite, end to end: every prompt decoded by every policy, scored by the task's own utility.

`evaluate` gives one row per prompt and policy; `compare_summary` turns them into means, intervals and differences. An
answer that could not be judged has no utility (NaN, with a reason), never 0.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
import torch

from unmask.api import STEPS_SHARE, LoadedModel, json_values, start_trajectory, steps_of
from unmask.base.environment import versions
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.base.files import storable
from unmask.core import AnswerCost, Policy, SamplingParams, Search, Trajectory, cost_columns
from unmask.engine import decode
from unmask.lab.compare_failed import LeftOut, PolicyFailed
from unmask.lab.compare_matched import MatchedControl, sized, sizes
from unmask.lab.compare_prompts import PreparedTask, PromptBatch, TaskRun, prepare
from unmask.lab.compare_store import ComparePieces, hash_of_prompts
from unmask.lab.compare_timing import BatchClock, TimedBatch, stored_time
from unmask.lab.study.prompts import FRESH, Known, score_answers, score_texts
from unmask.methods import BestOf, describe_policy, method_status
from unmask.tasks import SPLITS, DataDir, Task, find_task


class CompareProgress(NamedTuple):
    """Where an evaluation stands; answers are counted over all tasks and policies."""

    task: str
    policy: str
    done: int
    total: int
    kept: int = 0
    """Of those done: found on disk."""


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
    extra_forwards: int
    """Of those: beyond one a step."""
    planner_forwards: int
    remasks: int
    processed_tokens: int
    tokens: int
    """Answer positions, filler included."""
    answer: str
    answer_tokens: int | None = None
    """Tokens before the first end of text; None of an answer that was stored before they were counted."""

    @property
    def steps(self) -> int:
        return self.forwards - self.extra_forwards


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
    damaged: tuple[str, ...] = ()
    """Files of the folder that were not as written, and were decoded again."""
    times: tuple[TimedBatch, ...] = ()
    """Seconds of every batch: no part of what is the same in every run."""
    run: str = ""
    machine: str = ""
    """Which of those seconds were measured just now, and on what."""

    @property
    def reference(self) -> str:
        return self.policies[0]

    def means(self, policy: str | None = None) -> dict[str, float]:
        """Mean utility per task of one policy, by default the reference; NaN where nothing could be scored."""
        judged: dict[str, list[float]] = {run.task: [] for run in self.tasks}
        for row in self.rows:
            if row.policy == (policy or self.reference) and not math.isnan(row.utility):
                judged[row.task].append(row.utility)
        return {task: sum(worth) / len(worth) if worth else math.nan for task, worth in judged.items()}


@dataclass(frozen=True, kw_only=True)
class ComparePlan:
    """What tells one comparison from another; `evaluate` says what the fields mean."""

    tasks: Sequence[str | Task]
    split: str
    policies: Mapping[str, Policy | Search]
    prompts: int | None = None
    steps: int | None = None
    temperature: float = 0.0
    seed: int = 0
    proposal: SamplingParams | None = None
    """How tokens are proposed, where that is more than a temperature."""
    controls: Mapping[str, MatchedControl] = field(default_factory=dict)
    """Arms that come after the policies: best of n of a search's base, with its forwards."""

    def __post_init__(self) -> None:
        require(
            bool(self.policies), "policies", dict(self.policies), "one or more, the reference first", "name a policy"
        )
        require(self.prompts is None or self.prompts >= 1, "prompts", self.prompts, "1 or more", "ask for at least one")
        if self.split not in (*SPLITS, FRESH):
            raise UnknownName("split", self.split, (*SPLITS, FRESH))
        for name in self.arms:
            require(storable(name) == name, "name of a policy", name, "whole characters", "rename it")
        names = [task.name for task in self.chosen]
        fits = bool(names) and len(set(names)) == len(names)
        require(fits, "tasks", names, "one or more, none twice", "change the list")

    @property
    def arms(self) -> Mapping[str, "Policy | Search | MatchedControl"]:
        """Everything that is decoded, the reference first."""
        return {**self.policies, **self.controls}

    @property
    def drawing(self) -> SamplingParams:
        """How tokens are proposed."""
        return self.proposal or SamplingParams(temperature=self.temperature)

    @property
    def chosen(self) -> list[Task]:
        return [find_task(task) if isinstance(task, str) else task for task in self.tasks]

    def config(self, model: LoadedModel) -> dict[str, Any]:
        """The configuration but for batch sizes and versions, in JSON's types."""
        config = {
            "model": {"name": model.name, **model.options},
            "device": str(model.denoiser.device),
            "tasks": {task.name: {"version": task.version, "horizon": task.max_new_tokens} for task in self.chosen},
            "split": self.split,
            "prompts": self.prompts,
            "temperature": self.temperature,
            "seed": self.seed,
            "policies": {name: describe_policy(policy) for name, policy in self.policies.items()},
            "methods": {name: method_status(policy) for name, policy in self.policies.items()},
            "steps": {task.name: self.steps_for(task) for task in self.chosen},
            **({"proposal": asdict(self.proposal)} if self.proposal is not None else {}),
            **({"matched": {n: c.described() for n, c in self.controls.items()}} if self.controls else {}),
        }
        text = json.dumps(json_values(config), ensure_ascii=False, allow_nan=False)
        as_json: dict[str, Any] = json.loads(storable(text))
        return as_json

    def steps_for(self, task: Task) -> int:
        """What was asked for, or the usual share of the horizon."""
        if self.steps is None:
            return steps_of(STEPS_SHARE, task.max_new_tokens)
        allowed = f"1 to {task.max_new_tokens}, the horizon of {task.name}"
        require(1 <= self.steps <= task.max_new_tokens, "steps", self.steps, allowed, "lower it, or leave the task out")
        return self.steps


def evaluate(
    model: LoadedModel,
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
    work: str | Path | None = None,
    warm_up: bool = False,
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

    `work` is a folder that keeps every finished batch: the same call goes on where it was stopped. With `warm_up` the
    first batch of a policy on a task is decoded once before its seconds are measured.
    """
    plan = ComparePlan(
        tasks=tasks,
        split=split,
        policies=policies,
        prompts=prompts,
        steps=steps,
        temperature=temperature,
        seed=seed,
    )
    return run_comparison(
        model, plan, batch=batch, data_dir=data_dir, jobs=jobs, work=work, warm_up=warm_up, on_progress=on_progress
    )


def run_comparison(
    model: LoadedModel,
    plan: ComparePlan,
    *,
    batch: int | None = None,
    data_dir: DataDir = None,
    jobs: int | None = None,
    work: str | Path | None = None,
    warm_up: bool = False,
    on_progress: Callable[[CompareProgress], None] = lambda progress: None,
    decoder: "BatchDecoder | None" = None,
) -> Evaluation:
    """The same for a plan; what is not in the plan changes no answer. `decoder` is this process, or a cluster."""
    require(batch is None or batch >= 1, "batch", batch, "1 or more", "decode at least one row at a time")
    config = plan.config(model)
    pieces = ComparePieces(None if work is None else Path(work), config)
    use: dict[str, Any] = {"split": plan.split, "prompts": plan.prompts, "batch": batch, "data_dir": data_dir}
    prepared = [prepare(model, task, steps=plan.steps_for(task), **use) for task in plan.chosen]
    decoder = decoder or LocalDecoder(model, plan, jobs, warm_up)
    tasks = [_TaskWork(task, decoder, pieces, jobs) for task in prepared if not task.run.unavailable]
    decoder.expect([call for task in tasks for arm in plan.policies.items() for call in task.missing(*arm)])
    rows: list[AnswerRow] = []
    times: list[TimedBatch] = []
    left_out: list[LeftOut] = []
    total, done, kept = len(plan.arms) * sum(task.run.prompts for task in prepared), 0, 0
    for todo in tasks:
        task = todo.task
        for at, (name, arm) in enumerate(plan.arms.items()):
            answers: list[AnswerRow] = []
            measured: list[TimedBatch] = []
            try:
                for part, time, restored in todo.decode(name, arm, rows):
                    answers += part
                    measured.append(time)
                    kept += len(part) if restored else 0
                    on_progress(CompareProgress(task.run.task, name, done + len(answers), total, kept))
            except PolicyFailed as failed:
                if at == 0:
                    raise failed.cause from None
                left_out.append(failed.left_out(task.run.task, name))
                total, answers, measured = total - task.run.prompts, [], []
            times += measured
            done += len(answers)
            rows += sorted(answers, key=lambda row: task.place[row.prompt])
    return Evaluation(
        split=plan.split,
        policies=tuple(plan.arms),
        tasks=tuple(task.run for task in prepared),
        rows=tuple(rows),
        left_out=tuple(left_out),
        config=config
        | sizes(plan.controls, rows)
        | {"batch": {t.run.task: t.rows for t in prepared}, "versions": versions()},
        damaged=tuple(path.name for path in pieces.damaged),
        times=tuple(times),
        run=decoder.clock.run,
        machine=decoder.clock.machine,
    )


@dataclass(frozen=True)
class BatchCall:
    """One batch to be decoded by one policy."""

    task: str
    arm: str
    policy: Policy | Search
    batch: PromptBatch

    def same(self, other: "BatchCall") -> bool:
        """Of one comparison."""
        return (self.task, self.arm) == (other.task, other.arm) and self.batch is other.batch


class DecodedBatch(NamedTuple):
    """Its answers, and how long they took where."""

    rows: list[AnswerRow]
    seconds: float
    cold: bool
    """The policy's first batch of the task in that process, without a warm-up."""
    machine: str


class BatchDecoder(Protocol):
    """Who decodes batches: this process, or the workers of a cluster."""

    @property
    def clock(self) -> BatchClock: ...

    def expect(self, calls: Sequence[BatchCall]) -> None:
        """These will be asked for, in this order; some may be left out."""
        ...

    def decode(self, call: BatchCall) -> DecodedBatch: ...


class LocalDecoder:
    """Decodes batches in this process, when they are asked for."""

    def __init__(self, model: LoadedModel, plan: ComparePlan, jobs: int | None, warm_up: bool):
        self.model, self.plan, self.jobs, self.warm_up = model, plan, jobs, warm_up
        self.clock = BatchClock(model.denoiser.device)
        self._known: dict[str, Known] = {}
        """Scores by task: many policies agree."""

    def expect(self, calls: Sequence[BatchCall]) -> None:
        """Nothing is done before it is asked for."""

    def decode(self, call: BatchCall) -> DecodedBatch:
        # The keys of `Model.generate`, so that it gives the same answers.
        start = start_trajectory(self.model.denoiser, call.batch.requests, self.plan.seed)

        def work() -> Trajectory:
            # Nothing here has gradients: a fifth of the time between forwards goes without the mode.
            with torch.inference_mode():
                return decode(self.model.denoiser, call.policy, start, sampling=self.plan.drawing, record=False)

        cold = self.clock.first(call.task, call.arm)
        if cold and self.warm_up:
            work()
        end, seconds = self.clock.measured(work)
        return DecodedBatch(self._rows(call, end), seconds, cold and not self.warm_up, self.clock.machine)

    def _rows(self, call: BatchCall, end: Trajectory) -> list[AnswerRow]:
        """Answers with their costs, judged."""
        width = end.state.tokens_BL.shape[1]
        requests = call.batch.requests
        # One copy to the host for all rows.
        table = torch.cat((end.state.tokens_BL, torch.stack(cost_columns(end), 1)), 1).cpu().numpy()
        answers = [row[slice(*request.answer)] for row, request in zip(table, requests, strict=True)]
        tokens_of = [tuple(answer.tolist()) for answer in answers]
        frame = pd.DataFrame({"prompt": [request.id for request in requests], "answer": tokens_of})
        known = self._known.setdefault(call.task, {})
        scored = score_answers(frame, call.batch.members, requests, self.model.codec, workers=self.jobs, known=known)
        judged = zip(scored["text"], scored["utility"], scored["reason"], strict=True)
        costs = [dict(zip(AnswerCost._fields, row[width:].tolist(), strict=True)) for row in table]
        ends = self.model.denoiser.vocabulary.eos_ids
        written = [_before_end(answer.tolist(), ends) for answer in answers]
        return [
            AnswerRow(call.task, call.arm, example.id, utility, reason, **cost, answer=text, answer_tokens=tokens)
            for example, cost, tokens, (text, utility, reason) in zip(
                call.batch.members, costs, written, judged, strict=True
            )
        ]


@dataclass(frozen=True)
class _TaskWork:
    """One task's batches, decoded or found on disk."""

    task: PreparedTask
    decoder: BatchDecoder
    pieces: ComparePieces
    jobs: int | None

    def decode(
        self, name: str, arm: Policy | Search | MatchedControl, others: Sequence[AnswerRow]
    ) -> Iterator[tuple[list[AnswerRow], TimedBatch, bool]]:
        """The rows of one arm, batch by batch, how long they took, and whether they were on disk."""
        task = self.task.run.task
        try:
            policy = sized(arm, others, task) if isinstance(arm, MatchedControl) else arm
        except ConfigError as error:
            raise PolicyFailed(error, BestOf) from error
        if isinstance(arm, MatchedControl):
            self.decoder.expect(self.missing(name, policy))
        for at, batch in enumerate(self.task.batches):
            key = self._key(name, batch)
            stored = self.pieces.read(key)
            if stored is not None:
                rows = [AnswerRow(task, name, **self._judged_again(entry, batch)) for entry in stored]
                yield rows, TimedBatch(task, name, at, stored_time(self.pieces.read_time(key))), True
                continue
            try:
                done = self.decoder.decode(BatchCall(task, name, policy, batch))
            except (Exception, SystemExit) as error:
                raise PolicyFailed(error, type(policy)) from error
            rows, tokens = done.rows, sum(row.tokens for row in done.rows)
            time = self.decoder.clock.time(done.seconds, len(rows), tokens, done.cold, _written(rows))
            time = replace(time, machine=done.machine)
            self.pieces.write(key, [_entry(row) for row in rows], asdict(time))
            yield rows, TimedBatch(task, name, at, time), False

    def missing(self, name: str, policy: Policy | Search) -> list[BatchCall]:
        """What `decode` will ask for, unless a file is damaged."""
        batches = [batch for batch in self.task.batches if not self.pieces.has(self._key(name, batch))]
        return [BatchCall(self.task.run.task, name, policy, batch) for batch in batches]

    def _key(self, name: str, batch: PromptBatch) -> dict[str, Any]:
        return {"task": self.task.run.task, "policy": name, "prompts": hash_of_prompts(batch.members)}

    def _judged_again(self, entry: dict[str, Any], batch: PromptBatch) -> dict[str, Any]:
        """What could not be judged may be by now: its evaluator was installed since."""
        if entry["utility"] is not None:
            return entry
        example = next(example for example in batch.members if example.id == entry["prompt"])
        ((utility, reason),) = score_texts([(entry["answer"], example)], self.jobs)
        return entry | {"utility": utility, "reason": reason}


def _before_end(tokens: Sequence[int], ends: Sequence[int]) -> int:
    return next((at for at, token in enumerate(tokens) if token in ends), len(tokens))


def _written(rows: Sequence[AnswerRow]) -> int:
    """Tokens of all answers, without filler."""
    return sum(row.answer_tokens or 0 for row in rows)


def _entry(row: AnswerRow) -> dict[str, Any]:
    """A row as it is stored; JSON has no NaN."""
    entry = {name: value for name, value in row._asdict().items() if name not in ("task", "policy")}
    return entry | {"utility": None if math.isnan(row.utility) else row.utility}
