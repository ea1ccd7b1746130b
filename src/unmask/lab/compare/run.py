"""A comparison, carried out: prompts in batches, decoded by every policy here or on a cluster, scored and kept.

Answers and all that is counted are the same in every run; seconds are not. So seconds stand apart from answers, and
each says in which run and on which machine it was measured.
"""

import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pandas as pd
import torch

from unmask.api import LoadedModel, Request
from unmask.base.environment import machine_name, versions
from unmask.base.errors import ConfigError, SchemaError, UnmaskError, require
from unmask.base.files import replace_surrogates
from unmask.base.user_code import describe_error, error_location
from unmask.core import AnswerCost, Denoiser, Policy, SamplingParams, Search
from unmask.lab.cluster import Executor, Shared, is_out_of_memory, run_in_order
from unmask.lab.cluster.ray_executor import as_sendable
from unmask.lab.compare.plan import ComparePlan
from unmask.lab.compare.store import BatchStore, hash_prompts
from unmask.lab.controls import ComputeMatchedControl
from unmask.lab.study import decode_prompts
from unmask.lab.study.prompts import Known, example_request, score_answers, score_texts, select_examples
from unmask.methods import BestOf
from unmask.tasks import SPLITS, DataDir, Example, Task

MAX_ROWS = 256
MAX_LOGITS = {"cuda": 1 << 30, "cpu": 1 << 24}
"""Largest number of logits in one forward; the default batch size is cut to it."""

ANSWER_COLUMNS = ("task", "policy", "prompt", "utility", "reason", *AnswerCost._fields, "answer", "answer_tokens")
"""A row per prompt and policy. `utility` is NaN where the evaluator could not tell, with a `reason`; never 0."""
TIME_COLUMNS = ("seconds", "rows", "tokens", "cold", "run", "machine", "answer_tokens")
"""A row per batch and policy: seconds of decoding without scoring, and `cold` where the policy's first batch of the
task in that run was measured, with all that is compiled or recorded on first use."""


class CompareProgress(NamedTuple):
    """Progress of a comparison; answers are counted over all tasks and policies."""

    task: str
    policy: str
    done: int
    total: int
    kept: int = 0
    """Number of answers that were found on disk, among those done."""


@dataclass(frozen=True)
class TaskRun:
    """Counts of one task: prompts decoded and skipped, steps."""

    task: str
    horizon: int
    steps: int
    prompts: int = 0
    """Number of prompts that every policy decodes."""
    skipped: int = 0
    """Number of prompts left out because their canvas is longer than the model's limit."""
    unavailable: str = ""
    """Reason why nothing was decoded; empty if something was."""


@dataclass(frozen=True)
class LeftOut:
    """A policy that could not decode a task, and why."""

    task: str
    policy: str
    reason: str
    traceback: str = ""
    """Traceback of an error that nobody expects, such as one in a policy of a user's own."""


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison: every answer with its utility and cost, and seconds by batch."""

    split: str
    policies: tuple[str, ...]
    """Names of policies in the order given; the first is the reference."""
    tasks: tuple[TaskRun, ...]
    answers: pd.DataFrame
    """`ANSWER_COLUMNS`: task by task, policy by policy, prompts in the order of the split."""
    left_out: tuple[LeftOut, ...]
    config: dict[str, Any]
    """The resolved configuration, in JSON's types."""
    damaged: tuple[str, ...] = ()
    """Names of damaged files, whose batches were decoded again."""
    times: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=["task", "policy", "batch", *TIME_COLUMNS])
    )
    """`TIME_COLUMNS` by task, policy and number of the batch; missing where the file of its seconds is lost."""
    run: str = ""
    machine: str = ""
    """Identifiers of this run and of this machine, to tell which seconds were measured just now."""

    @property
    def reference(self) -> str:
        """Name of the first policy."""
        return self.policies[0]

    def mean_utilities(self, policy: str | None = None) -> dict[str, float]:
        """Return the mean utility per task of one policy, by default the reference; NaN where nothing was scored."""
        rows = self.answers[self.answers["policy"] == (policy or self.reference)]
        means = rows.groupby("task")["utility"].mean()
        return {run.task: float(means.get(run.task, math.nan)) for run in self.tasks}


def run_comparison(
    model: LoadedModel,
    plan: ComparePlan,
    *,
    batch_size: int | None = None,
    data_dir: DataDir = None,
    sandbox_workers: int | None = None,
    work_dir: str | Path | None = None,
    warm_up: bool = False,
    on_progress: Callable[[CompareProgress], None] = lambda progress: None,
    executor: Executor | None = None,
) -> Comparison:
    """Decode the plan's prompts with every policy and score the answers; nothing but the plan changes an answer.

    `batch_size` rows of similar length are decoded together, by default as many as memory is sure to hold.
    `sandbox_workers` programs run side by side (HumanEval). A prompt gets the answer of `Model.generate` with the same
    seed. A task whose data is not there, and a policy that cannot decode a task, are reported, not raised; only the
    reference may not fail.

    `work_dir` is a folder that keeps every finished batch: the same call goes on where it was stopped. With `warm_up`
    the first batch of a policy on a task is decoded once before its seconds are measured. With the `executor`
    of a cluster its workers decode, and `model` has no network.
    """
    require(batch_size is None or batch_size >= 1, "batch_size", batch_size, "1 or more", "decode at least one row")
    config = plan.config(model)
    store = BatchStore(None if work_dir is None else Path(work_dir), config)
    prepared = [prepare_task(model, task, plan, batch_size=batch_size, data_dir=data_dir) for task in plan.chosen_tasks]
    decoder = BatchDecoder(plan.policies, plan.seed, plan.sampling_params, sandbox_workers, warm_up)
    run, machine = uuid4().hex[:12], getattr(model.denoiser, "machine", None) or machine_name(model.denoiser.device)
    # All files before the first forward: what is there is asked of no worker, and damage is known at once.
    stored = {
        (task.run.task, arm, at): store.read(_batch_key(task.run.task, arm, batch))
        for task in prepared
        for arm in plan.arms
        for at, batch in enumerate(task.batches)
    }
    failed: set[tuple[str, str]] = set()

    def missing_batches(task: PreparedTask, arm: str, policy: Policy | Search | None) -> Iterator[BatchCall]:
        # Lazily: a policy that has failed on a task meanwhile is asked for nothing more of it.
        for at, batch in enumerate(task.batches):
            if stored[task.run.task, arm, at] is None and (task.run.task, arm) not in failed:
                yield BatchCall(task.run.task, arm, at, policy, batch)

    # One stream for all policies: workers go on with the next one while the last batches of this one are scored.
    every_call = (call for task in prepared for arm in plan.policies for call in missing_batches(task, arm, None))
    outcomes = decode_calls(model, decoder, every_call, executor)
    total = len(plan.arms) * sum(task.run.prompts for task in prepared)
    done = kept = 0
    answers: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    matched_n: dict[str, dict[str, int]] = {name: {} for name in plan.controls}
    for task in (task for task in prepared if not task.run.unavailable):
        name = task.run.task
        for arm in plan.arms:
            rows: list[dict[str, Any]] = []
            measured: list[dict[str, Any]] = []
            of_arm = outcomes
            try:
                if arm in plan.controls:
                    control = plan.controls[arm]
                    matched_n[arm][name] = n = _control_size(control, name, answers)
                    calls = missing_batches(task, arm, replace(control.policy, n=n))
                    of_arm = decode_calls(model, decoder, calls, executor)
                for at, batch in enumerate(task.batches):
                    key = _batch_key(name, arm, batch)
                    entries = stored[name, arm, at]
                    restored = entries is not None
                    if entries is None:
                        outcome = _take_outcome(of_arm, (name, arm, at))
                        entries, seconds = outcome.entries, {**outcome.time, "run": run}
                        store.write(key, entries, seconds)
                    else:
                        entries = [decoder.score_again(entry, batch) for entry in entries]
                        seconds = store.read_time(key) or {}
                    rows += [{"task": name, "policy": arm, **entry} for entry in entries]
                    measured.append({"task": name, "policy": arm, "batch": at, **seconds})
                    kept += len(entries) if restored else 0
                    on_progress(CompareProgress(name, arm, done + len(rows), total, kept))
            except _PolicyFailed as failure:
                if arm == next(iter(plan.arms)):
                    raise failure.error from None
                # Its finished batches stay on disk, but a mean over some prompts would be no number of this task.
                failed.add((name, arm))
                left_out.append(LeftOut(name, arm, failure.reason, failure.traceback))
                matched_n.get(arm, {}).pop(name, None)
                total -= task.run.prompts
                continue
            done += len(rows)
            # Batches are sorted by length; answers come in the order of the split.
            answers += sorted(rows, key=lambda row: task.rank[row["prompt"]])
            times += measured
    frame = pd.DataFrame(answers, columns=list(ANSWER_COLUMNS))
    # JSON has no NaN, so a file has null.
    frame["utility"] = frame["utility"].astype(float)
    return Comparison(
        split=plan.split,
        policies=tuple(plan.arms),
        tasks=tuple(task.run for task in prepared),
        answers=frame,
        left_out=tuple(left_out),
        config=config
        | ({"matched_n": matched_n} if plan.controls else {})
        | {"batch": {task.run.task: task.rows for task in prepared}, "versions": versions()},
        damaged=tuple(path.name for path in store.damaged),
        # Objects, so that counts stay whole numbers beside missing ones.
        times=pd.DataFrame(times, columns=["task", "policy", "batch", *TIME_COLUMNS], dtype=object),
        run=run,
        machine=machine,
    )


def _batch_key(task: str, arm: str, batch: "PromptBatch") -> dict[str, Any]:
    return {"task": task, "policy": arm, "prompts": batch.hash}


def _control_size(control: ComputeMatchedControl, task: str, answers: Sequence[dict[str, Any]]) -> int:
    """Compute n of a best-of-n control on a task, from the forwards of its search and base method."""
    forwards: dict[str, float] = {}
    for arm in (control.search, control.base):
        spent = [row["forwards"] for row in answers if (row["task"], row["policy"]) == (task, arm)]
        if not spent:
            text = f"{arm} could not decode {task}; allowed: controls of arms that can; see its own reason"
            raise _PolicyFailed.of(ConfigError(text), BestOf)
        forwards[arm] = sum(spent) / len(spent)
    return control.affordable_n(forwards)


# Prompts


@dataclass(frozen=True)
class PromptBatch:
    """Prompts that are decoded together, from the same start by every policy."""

    examples: tuple[Example, ...]
    requests: tuple[Request, ...]
    hash: str


@dataclass(frozen=True)
class PreparedTask:
    """Prompts of one task, encoded once for all policies and cut into batches."""

    run: TaskRun
    batches: tuple[PromptBatch, ...] = ()
    rank: Mapping[str, int] = field(default_factory=dict)
    """Position of each prompt in the split."""

    @property
    def rows(self) -> int:
        """Number of rows of the largest batch."""
        return max((len(batch.examples) for batch in self.batches), default=0)


def prepare_task(
    model: LoadedModel, task: Task, plan: ComparePlan, *, batch_size: int | None = None, data_dir: DataDir = None
) -> PreparedTask:
    """Encode the plan's prompts of a task that fit into the model, and cut them into batches of similar length."""
    run = TaskRun(task.name, task.max_new_tokens, plan.steps_for(task))
    try:
        examples = select_examples(task, plan.split, prompts=plan.prompts, data_dir=data_dir)
    except (ConfigError, SchemaError) as error:
        return PreparedTask(replace(run, unavailable=str(error)))
    if not examples:
        there = [other for other in SPLITS if select_examples(task, other, prompts=1, data_dir=data_dir)]
        lacking = f"it has no {plan.split} prompts; allowed: {' or '.join(there)}; name it with --split"
        return PreparedTask(replace(run, unavailable=lacking))
    # Encoded once for all policies: every one starts from the same canvas.
    encoded = [(example_request(model, task, run.steps, example), example) for example in examples]
    fits = [(r, e) for r, e in encoded if model.max_length is None or len(r.canvas) <= model.max_length]
    run = replace(run, prompts=len(fits), skipped=len(encoded) - len(fits))
    if not fits:
        lacking = f"no prompt leaves room for {task.max_new_tokens} tokens in {model.max_length}"
        remedy = "load a model with a longer context, or leave the task out"
        return PreparedTask(replace(run, unavailable=f"{lacking}; {remedy}"))
    size = batch_size or default_batch_size(model.denoiser, task.max_new_tokens)
    # Prompts of similar length together: a batch is as wide as its longest canvas.
    fits.sort(key=lambda pair: len(pair[0].canvas))
    batches = []
    for at in range(0, len(fits), size):
        requests, members = zip(*fits[at : at + size], strict=True)
        batches.append(PromptBatch(members, requests, hash_prompts(members)))
    return PreparedTask(run, tuple(batches), {example.id: at for at, example in enumerate(examples)})


def default_batch_size(denoiser: Denoiser, horizon: int) -> int:
    """Compute how many rows fit into the limit of logits when their whole answers are masked."""
    limit = MAX_LOGITS.get(denoiser.device.type, MAX_LOGITS["cpu"])
    return max(1, min(MAX_ROWS, limit // (horizon * denoiser.vocabulary.size)))


# Batches, decoded here or by the workers of a cluster


class BatchCall(NamedTuple):
    """One batch to be decoded by one arm."""

    task: str
    arm: str
    batch_number: int
    policy: Policy | Search | None
    """Policy to decode with; None for that of the plan. A control gets its size only once its search is decoded."""
    batch: PromptBatch


class DecodedBatch(NamedTuple):
    """The answers of a batch as they are stored, and `TIME_COLUMNS` without the run."""

    entries: list[dict[str, Any]]
    time: dict[str, Any]


class _PolicyFailed(Exception):
    """Error of a policy that could not decode a batch, or whose answers could not be scored."""

    def __init__(self, error: BaseException, reason: str, trace: str):
        super().__init__(error, reason, trace)
        self.error, self.reason, self.traceback = error, reason, trace

    @classmethod
    def of(cls, error: BaseException, kind: type[Policy] | type[Search]) -> "_PolicyFailed":
        """Describe an error with its place in the code, which only the process where it happened knows."""
        place = error_location(error, kind)
        at = f" ({place})" if place else ""
        if isinstance(error, UnmaskError):
            return cls(error, replace_surrogates(str(error)) + at, "")
        reason = f"unexpected {describe_error(error)}{at}; --out keeps its traceback"
        return cls(error, reason, replace_surrogates("".join(traceback.format_exception(error))))


@dataclass
class BatchDecoder:
    """Decoder and scorer of batches; each process has one, which remembers the answers it has scored.

    It travels to workers, so it holds no tasks: their generators cannot be sent.
    """

    policies: Mapping[str, Policy | Search]
    seed: int
    sampling: SamplingParams
    sandbox_workers: int | None
    warm_up: bool
    _known: dict[str, Known] = field(default_factory=dict, repr=False)
    _begun: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def decode(self, model: LoadedModel, call: BatchCall) -> DecodedBatch | _PolicyFailed:
        """Decode and score a batch; a failure of the policy is returned, Ctrl-C is raised."""
        policy = self.policies[call.arm] if call.policy is None else call.policy
        try:
            return self._decode(model, call, policy)
        except (Exception, SystemExit) as error:
            return _PolicyFailed.of(error, type(policy))

    def _decode(self, model: LoadedModel, call: BatchCall, policy: Policy | Search) -> DecodedBatch:
        device, requests, examples = model.denoiser.device, call.batch.requests, call.batch.examples
        # What is compiled or recorded on first use belongs to no other batch: it is marked, not averaged away.
        cold = (call.task, call.arm) not in self._begun
        self._begun.add((call.task, call.arm))
        if cold and self.warm_up:
            decode_prompts(model, requests, policy, seed=self.seed, sampling=self.sampling)
            cold = False
        if device.type == "cuda":
            # What was asked of the device before is not this batch's; its own end is waited for by copying tokens.
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        rows = decode_prompts(model, requests, policy, seed=self.seed, sampling=self.sampling)
        seconds = time.perf_counter() - started
        # Scores are kept for all policies of a task: many give the same answers.
        known = self._known.setdefault(call.task, {})
        scored = score_answers(rows, examples, requests, model.codec, workers=self.sandbox_workers, known=known)
        judged = zip(scored["text"], scored["utility"], scored["reason"], strict=True)
        costs = rows[list(AnswerCost._fields)].to_dict("records")
        entries = [
            {"prompt": example.id, "utility": None if math.isnan(utility) else utility, "reason": reason}
            | {**cost, "answer": text, "answer_tokens": tokens}
            for example, cost, tokens, (text, utility, reason) in zip(
                examples, costs, rows["answer_tokens"].tolist(), judged, strict=True
            )
        ]
        counts = {"rows": len(rows), "tokens": int(rows["tokens"].sum()), "cold": cold}
        written = {"machine": machine_name(device), "answer_tokens": int(rows["answer_tokens"].sum())}
        return DecodedBatch(entries, {"seconds": seconds, **counts, **written})

    def score_again(self, entry: dict[str, Any], batch: PromptBatch) -> dict[str, Any]:
        """Score a stored answer that could not be judged: its evaluator may be installed by now."""
        if entry["utility"] is not None:
            return entry
        example = next(example for example in batch.examples if example.id == entry["prompt"])
        ((utility, reason),) = score_texts([(entry["answer"], example)], self.sandbox_workers)
        return entry | {"utility": None if math.isnan(utility) else utility, "reason": reason}


Outcomes = Iterator[tuple[tuple[str, str, int], DecodedBatch | _PolicyFailed]]
"""Pairs of a batch (task, arm, number) and its outcome."""


def decode_calls(
    model: LoadedModel, decoder: BatchDecoder, calls: Iterable[BatchCall], executor: Executor | None
) -> Outcomes:
    """Decode batches in order; on a cluster some are decoded ahead, so that no worker waits."""
    if executor is None:
        for call in calls:
            yield call[:3], decoder.decode(model, call)
        return
    shared = executor.share(decoder)
    yield from run_in_order(executor, decode_on_worker, None, ((shared, call) for call in calls))


def decode_on_worker(
    model: LoadedModel, shared: Shared[BatchDecoder], call: BatchCall
) -> tuple[tuple[str, str, int], DecodedBatch | _PolicyFailed]:
    """Decode a batch on a worker, with the decoder that the worker keeps."""
    decoder = shared.open()
    outcome = decoder.decode(model, call)
    if isinstance(outcome, _PolicyFailed):
        if is_out_of_memory(outcome.error):
            # The worker's fault, not the policy's: another attempt may have more memory.
            raise outcome.error
        outcome = _PolicyFailed(as_sendable(outcome.error), outcome.reason, outcome.traceback)
    return call[:3], outcome


def _take_outcome(outcomes: Outcomes, wanted: tuple[str, str, int]) -> DecodedBatch:
    """Take the outcome of a batch, and drop those before it, which were begun before their policy had failed."""
    for place, outcome in outcomes:
        if place == wanted:
            if isinstance(outcome, _PolicyFailed):
                raise outcome
            return outcome
    raise AssertionError(f"{wanted} was not asked for")
